"""Draft a first parameters file for a notebook.

The format of the file does not belong here, but in `settings`.
"""
