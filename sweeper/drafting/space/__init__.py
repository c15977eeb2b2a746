"""Find the values of a notebook that can be swept, and a range for each.

The package `drafting/scores/` finds the scores.
"""
