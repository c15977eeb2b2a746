"""Writes the trials of a study to MLflow; the only owner of MLflow.

Decisions about what runs do not belong here: no other folder reads MLflow.
"""

from .files import drop_unknown_runs, move_artifacts, sqlite_file
from .new_store import put_in_place
from .params import run_params
from .tracker import Tracker

__all__ = [
    "Tracker",
    "drop_unknown_runs",
    "move_artifacts",
    "put_in_place",
    "run_params",
    "sqlite_file",
]
