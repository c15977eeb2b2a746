"""What a notebook imports: reports, scores, checkpoints, determinism, and messages to the sweep.

Imports the standard library only; torch and numpy inside functions. What the sweep does with a
report does not belong here.
"""
