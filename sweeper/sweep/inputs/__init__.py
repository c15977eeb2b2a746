"""Find what a sweep uses in addition to its notebook: files of other studies, and its data.

The folder `settings/` defines the sections `inputs` and `data`. `data/archive.py` fetches the data.
"""
