"""Find the values of a notebook that can be swept, and a range for each.

The scores of a draft belong to `drafting/scores/`.
"""
