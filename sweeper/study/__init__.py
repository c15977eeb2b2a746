"""The study and who proposes its trials: the only owner of Optuna."""

from .pruners import make_pruner
from .samplers import SamplerFactory
from .study import Study

__all__ = ["SamplerFactory", "Study", "make_pruner"]
