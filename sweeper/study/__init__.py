"""Which trial is next and how each one ended; the only owner of Optuna and SQLAlchemy.

How a trial runs does not belong here.
"""

from .files import BegunTrial, begun_in, facts_in, is_storage, move_records
from .pruners import make_pruner
from .samplers import SamplerFactory
from .study import Study

__all__ = [
    "BegunTrial",
    "SamplerFactory",
    "Study",
    "begun_in",
    "facts_in",
    "is_storage",
    "make_pruner",
    "move_records",
]
