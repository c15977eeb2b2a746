"""Define what a notebook imports: reports, scores, checkpoints, artifacts, determinism.

Modules import only the standard library at the top, and torch and numpy inside functions. The
sweep's side of a report belongs to other folders.
"""
