"""What a sweep uses beside its notebook: files of other studies, and the data of its trials.

What the sections `inputs` and `data` may say does not belong here, but in `settings/`; nor how data
is fetched, which `sync/archive.py` does.
"""
