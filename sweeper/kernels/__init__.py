"""Run one notebook in one kernel: the only owner of papermill, nbclient and jupyter_client."""

from .engine import Ending, KernelResult, execute, inject
from .guard import Guard
from .pool import KernelPool
from .specs import check_kernel, language_of

__all__ = [
    "Ending",
    "Guard",
    "KernelPool",
    "KernelResult",
    "check_kernel",
    "execute",
    "inject",
    "language_of",
]
