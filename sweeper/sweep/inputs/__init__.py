"""What a sweep uses of other studies: finds the trials, checks what they have saved, keeps it.

What the section `inputs` may say does not belong here, but in `settings/stages/`.
"""
