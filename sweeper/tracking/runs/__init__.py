"""Writes the runs of trials to MLflow: their params, points, artifacts and ends.

It runs in the process that writes. How messages come to that process does not belong here.
"""

from .run_writer import RunWriter

__all__ = ["RunWriter"]
