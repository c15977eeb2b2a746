"""Propose the params of trials: the samplers by name, their options, and Optuna's search space.

The folder `study` decides when a proposal is made, and which queued trials come before it.
"""

from .distributions import as_queued, distributions, suggest
from .effects import effects_of
from .factory import SamplerFactory
from .fitting import check_fits
from .score_model import ScoreModels, can_predict
from .surfaces import surfaces_of
from .views import StorageView, in_order

__all__ = [
    "SamplerFactory",
    "ScoreModels",
    "StorageView",
    "as_queued",
    "can_predict",
    "check_fits",
    "distributions",
    "effects_of",
    "in_order",
    "suggest",
    "surfaces_of",
]
