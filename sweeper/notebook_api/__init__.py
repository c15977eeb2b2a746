"""What a notebook imports: reports, checkpoints, determinism, and the messages to its sweep.

Standard library only when imported; torch and numpy inside functions. What the sweep does with a
report does not belong here.
"""
