"""When a running trial is given up: the pruners by name, with options of theirs.

When a trial is judged, and how its notebook is stopped, does not belong here.
"""

from optuna.pruners import BasePruner as Pruner

from .bound import floor_of
from .curves import Curve, Curves, curves_of
from .factory import make_pruner, why_pruned
from .predictive import Outlook, PredictivePruner, Verdict

__all__ = [
    "Curve",
    "Curves",
    "Outlook",
    "PredictivePruner",
    "Pruner",
    "Verdict",
    "curves_of",
    "floor_of",
    "make_pruner",
    "why_pruned",
]
