"""Run one notebook in one kernel: the only owner of papermill, nbclient and jupyter_client."""

from .engine import Ending, KernelResult, execute
from .guard import Guard, kill_marked, make_runtime_folder, mark_of
from .inject import inject
from .kernel import Kernel
from .pool import KernelPool
from .sharing import CellsToShare, SharedRun, cells_to_share
from .specs import check_kernel, language_of

__all__ = [
    "CellsToShare",
    "Ending",
    "Guard",
    "Kernel",
    "KernelPool",
    "KernelResult",
    "SharedRun",
    "cells_to_share",
    "check_kernel",
    "execute",
    "inject",
    "kill_marked",
    "language_of",
    "make_runtime_folder",
    "mark_of",
]
