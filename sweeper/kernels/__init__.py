"""Run one notebook in one kernel: the only owner of papermill, nbclient and jupyter_client."""

from .engine import Ending, KernelResult, execute
from .evidence import Evidence, gather
from .guard import Guard, kill_marked, mark_of
from .inject import inject
from .kernel import Kernel
from .policy import Experiment, ForkPolicy, Proof, Reference, Way
from .pool import KernelPool
from .sharing import CellsToShare, SharedRun, cells_to_share
from .specs import check_kernel, language_of

__all__ = [
    "CellsToShare",
    "Ending",
    "Evidence",
    "Experiment",
    "ForkPolicy",
    "Guard",
    "Kernel",
    "KernelPool",
    "KernelResult",
    "Proof",
    "Reference",
    "SharedRun",
    "Way",
    "cells_to_share",
    "check_kernel",
    "execute",
    "gather",
    "inject",
    "kill_marked",
    "language_of",
    "mark_of",
]
