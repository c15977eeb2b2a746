"""What MLflow is given: the only owner of MLflow.

Nothing is read back from here to decide what runs.
"""

from .files import drop_unknown_runs, move_artifacts, put_in_place, sqlite_file
from .tracker import Tracker

__all__ = ["Tracker", "drop_unknown_runs", "move_artifacts", "put_in_place", "sqlite_file"]
