"""The study and who proposes its trials: the only owner of Optuna."""

from .files import begun_in, facts_in, is_storage, move_records
from .pruners import make_pruner
from .samplers import SamplerFactory
from .study import Study

__all__ = [
    "SamplerFactory",
    "Study",
    "begun_in",
    "facts_in",
    "is_storage",
    "make_pruner",
    "move_records",
]
