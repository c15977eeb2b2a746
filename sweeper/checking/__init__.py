"""Checks before a sweep: `check` runs the notebook a few times, `doctor` describes the machine.

Code that acts on a study belongs to `control/`.
"""
