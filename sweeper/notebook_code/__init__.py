"""The code of a notebook, read without running it: what it assigns, calls and passes to libraries.

Code that reads or writes notebook files belongs to `notebooks/`.
"""
