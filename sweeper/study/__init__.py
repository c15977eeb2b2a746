"""Which trial is next and how each one ended; the only owner of Optuna and SQLAlchemy.

How a trial runs does not belong here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .confirmations import confirmation_of
    from .files import BegunTrial, begun_in, facts_in, is_storage, move_records
    from .pruners import make_pruner
    from .samplers import SamplerFactory
    from .stored import StoredStudy
    from .study import Study

__all__ = [
    "BegunTrial",
    "SamplerFactory",
    "StoredStudy",
    "Study",
    "begun_in",
    "confirmation_of",
    "facts_in",
    "is_storage",
    "make_pruner",
    "move_records",
]

#: Names are loaded when they are first used. Those in `confirmations`, `files` and `stored` do
#: without Optuna.
_HOMES = {
    "BegunTrial": "files",
    "SamplerFactory": "samplers",
    "StoredStudy": "stored",
    "Study": "study",
    "begun_in": "files",
    "confirmation_of": "confirmations",
    "facts_in": "files",
    "is_storage": "files",
    "make_pruner": "pruners",
    "move_records": "files",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
