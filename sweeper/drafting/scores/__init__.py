"""Find the numbers of a notebook that may be its score: in its code, and in a run of it.

The package `drafting/space/` finds the values to sweep.
"""
