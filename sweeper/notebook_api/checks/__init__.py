"""Checks that a notebook runs before a long training: `sweeper.checks`.

Each returns a `CheckResult`, which is true where the check has passed and displays itself with
figures and the remedy, and raises `CheckFailed` only with `raises=True`. None of them changes the
training that follows: random states, weights, gradients, modes and loaders are as before. What
judges a trial's outcome does not belong here, but to the sweep.
"""

from .loaders import loader_is_seeded
from .models import gradients_flow, near_chance, overfits_one_batch
from .result import CheckFailed, CheckResult
from .round_trip import checkpoint_round_trip

__all__ = [
    "CheckFailed",
    "CheckResult",
    "checkpoint_round_trip",
    "gradients_flow",
    "loader_is_seeded",
    "near_chance",
    "overfits_one_batch",
]
