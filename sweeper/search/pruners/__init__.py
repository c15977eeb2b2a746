"""Decide whether a running trial continues: the pruners by name, with their options.

The folder `sweep/scheduling` asks a pruner after each report, and `kernels` stops a notebook.
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
