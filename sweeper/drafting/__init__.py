"""From a notebook to a first parameters file.

What the file may say does not belong here, but in `settings`.
"""
