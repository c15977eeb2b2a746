"""Hyperparameter sweeps over a notebook: `report` and friends inside it, `Sweep` around it.

Every kernel pays for `import sweeper`, so names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checkpoints import load_checkpoint, save_checkpoint
    from .determinism import seed_everything, seeded_loader
    from .errors import SweepError
    from .reporting import TrialPruned, TrialStopped, on_stop, report, score, should_stop, trial
    from .results import SweepResult
    from .settings import Settings
    from .sweep import Sweep

__all__ = [
    "Settings",
    "Sweep",
    "SweepError",
    "SweepResult",
    "TrialPruned",
    "TrialStopped",
    "load_checkpoint",
    "on_stop",
    "report",
    "save_checkpoint",
    "score",
    "seed_everything",
    "seeded_loader",
    "should_stop",
    "trial",
]

_HOMES = {
    "Settings": "settings",
    "Sweep": "sweep",
    "SweepError": "errors",
    "SweepResult": "results",
    "TrialPruned": "reporting",
    "TrialStopped": "reporting",
    "load_checkpoint": "checkpoints",
    "on_stop": "reporting",
    "report": "reporting",
    "save_checkpoint": "checkpoints",
    "score": "reporting",
    "seed_everything": "determinism",
    "seeded_loader": "determinism",
    "should_stop": "reporting",
    "trial": "reporting",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
