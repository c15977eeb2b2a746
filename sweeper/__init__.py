"""Sweep the hyperparameters of a notebook. `report` is for the notebook, `Sweep` for scripts.

Notebooks import this package in every trial, so the import must be fast. Each name's module is
imported only when the name is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .control.loaded import load
    from .errors import SweepError
    from .notebook_api import checks
    from .notebook_api.artifacts import save_artifact
    from .notebook_api.calls import (
        TrialPruned,
        TrialStopped,
        report,
        score,
        should_stop,
        trial,
    )
    from .notebook_api.checkpoints import load_checkpoint, save_checkpoint
    from .notebook_api.determinism import seed_everything, seeded_loader
    from .settings import Settings
    from .sweep import Sweep
    from .trials import SweepResult

__all__ = [
    "Settings",
    "Sweep",
    "SweepError",
    "SweepResult",
    "TrialPruned",
    "TrialStopped",
    "checks",
    "load",
    "load_checkpoint",
    "report",
    "save_artifact",
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
    "SweepResult": "trials",
    "TrialPruned": "notebook_api.calls",
    "TrialStopped": "notebook_api.calls",
    "checks": "notebook_api.checks",
    "load": "control.loaded",
    "load_checkpoint": "notebook_api.checkpoints",
    "report": "notebook_api.calls",
    "save_artifact": "notebook_api.artifacts",
    "save_checkpoint": "notebook_api.checkpoints",
    "score": "notebook_api.calls",
    "seed_everything": "notebook_api.determinism",
    "seeded_loader": "notebook_api.determinism",
    "should_stop": "notebook_api.calls",
    "trial": "notebook_api.calls",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(f".{_HOMES[name]}", __name__)
    value = home if name == "checks" else getattr(home, name)
    globals()[name] = value
    return value


def load_ipython_extension(shell: Any) -> None:
    """Add the line magic `%sweep` to IPython, after the user's `%load_ext sweeper`."""
    magic = import_module(".cli.magic", __name__)
    shell.register_magic_function(magic.sweep, "line")


def __dir__() -> list[str]:
    return sorted(__all__)
