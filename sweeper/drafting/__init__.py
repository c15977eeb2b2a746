"""Draft a first parameters file (a sweep's settings in YAML) for a notebook.

The package `settings` defines the format of the file.
"""
