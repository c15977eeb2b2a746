"""Run one notebook in one kernel: the only owner of papermill, nbclient and jupyter_client."""

from .engine import Ending, KernelResult, execute, inject
from .guard import MARK_VARIABLE, Guard, kill_marked
from .specs import check_kernel, language_of

__all__ = [
    "MARK_VARIABLE",
    "Ending",
    "Guard",
    "KernelResult",
    "check_kernel",
    "execute",
    "inject",
    "kill_marked",
    "language_of",
]
