"""Write the trials of a study to MLflow. No other folder uses MLflow.

The sweep's process uses `Tracker` and does not import MLflow. A separate process uses `RunWriter`
to write to MLflow.
"""

from .files import move_artifacts, put_in_place, replace_database
from .messages import Store
from .opening import check_reachable, free_port, usable
from .runs import RunWriter
from .tracker import PATIENCE_S, Tracker
from .ui import ui_over
from .values import run_params
from .views import view_of, view_url

__all__ = [
    "PATIENCE_S",
    "RunWriter",
    "Store",
    "Tracker",
    "check_reachable",
    "free_port",
    "move_artifacts",
    "put_in_place",
    "replace_database",
    "run_params",
    "ui_over",
    "usable",
    "view_of",
    "view_url",
]
