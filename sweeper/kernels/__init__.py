"""Run one notebook in one kernel.

Only this folder uses papermill, nbclient, jupyter_client and zmq. The folder `execution` calls
`execute`, and decides from its result how the trial has ended.
"""

from .cells.engine import execute, wait_for_stop
from .cells.inject import inject
from .cells.request import (
    CellFailed,
    Ending,
    ExecutionRequest,
    Finished,
    KernelDied,
    KernelResult,
    NotStarted,
    Raised,
    Stopped,
)
from .forking.fork_server import obstacle_of_system
from .forking.origins import KernelOrigin, KernelSetup, Ready
from .forking.policy import Failed, Inconclusive, Proof, Reference, Repetition, Run, Verdict
from .forking.sharing import SharedCells
from .forking.zygote.in_kernel import WATCH_VARIABLE
from .process.pool import KernelPool
from .process.specs import (
    KernelChoice,
    check_kernel,
    choose_kernel,
    environment_of,
    installed_kernels,
    interpreter_of,
    language_of,
)

__all__ = [
    "WATCH_VARIABLE",
    "CellFailed",
    "Ending",
    "ExecutionRequest",
    "Failed",
    "Finished",
    "Inconclusive",
    "KernelChoice",
    "KernelDied",
    "KernelOrigin",
    "KernelPool",
    "KernelResult",
    "KernelSetup",
    "NotStarted",
    "Proof",
    "Raised",
    "Ready",
    "Reference",
    "Repetition",
    "Run",
    "SharedCells",
    "Stopped",
    "Verdict",
    "check_kernel",
    "choose_kernel",
    "environment_of",
    "execute",
    "inject",
    "installed_kernels",
    "interpreter_of",
    "language_of",
    "obstacle_of_system",
    "wait_for_stop",
]
