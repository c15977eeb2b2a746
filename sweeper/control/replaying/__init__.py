"""Run trials again as they were, and compare every score and every step: the command `replay`.

Nothing here proposes trials or changes the study; what a sweep does to a trial that has to be run
once more is in `sweep/scheduling/`.
"""
