"""Define the functions that a notebook imports: for reports, checkpoints, artifacts and seeds.

Importing these modules must be fast. So they import only the standard library at the top, and torch
and numpy inside of functions.
"""
