"""What a trial tries: the samplers by name, options of theirs, and the search space for Optuna.

When a proposal is made, and what the queue has before it, does not belong here.
"""

from .distributions import as_queued, suggest
from .factory import SamplerFactory
from .fitting import check_fits
from .views import InOrder

__all__ = [
    "InOrder",
    "SamplerFactory",
    "as_queued",
    "check_fits",
    "suggest",
]
