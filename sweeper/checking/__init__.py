"""Check before a sweep what can be known: `check` for a notebook, `doctor` for a machine.

Code that acts on a study belongs to `control/`.
"""
