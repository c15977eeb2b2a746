"""Define how kernels can be made: started, or forked from a process with libraries imported."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any

#: CPU time that the boot of a kernel takes, in seconds (measured: 0.26 s on a machine with two
#: cores). A forked kernel saves this time, in addition to the time of the imports.
_BOOT_S = 0.3
#: Remedy with which messages about a failed attempt to fork kernels end.
SWITCH_OFF = "set `kernels: cold` to skip the attempt to fork kernels"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSetup:
    """What all kernels of a sweep have in common.

    Attributes:
        name: Name of the kernelspec, or absolute path of the interpreter.
        env: Environment of all kernels. Variables that differ between trials are set when a trial
            begins.
        cwd: Working folder of all kernels.
        runtime_folder: Private folder with a short path, for sockets.
        token: Start of the value that the environment variable `guard.MARK_VARIABLE` has in all
            processes of the kernels. By this text, `guard.py` finds the processes that must end.
        frozen: Sources of the modules that kernels import instead of the files on disk, by absolute
            path without symbolic links.
        random_seed: Seed of the random generators when cells tagged `shared` begin to run.
    """

    name: str
    env: Mapping[str, str]
    cwd: Path
    runtime_folder: Path
    token: str
    random_seed: int
    frozen: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RanCell:
    """A cell that has run once for all trials: tagged `shared`, or before a cell with this tag.

    Attributes:
        messages: Messages that the kernel sent while the cell ran.
        execution_count: Execution count of the cell. None if it has none.
    """

    messages: Sequence[Mapping[str, Any]]
    execution_count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRun:
    """Cells tagged `shared` that have run in one process, from which kernels are forked.

    Attributes:
        path: Path of that process's socket.
        lease: Connection to that process. The process ends when the connection closes.
        cells: Cells that have run, by their index in the notebook.
        tagged: Number of cells that are tagged `shared`.
        duration_s: Seconds that the cells took, which each trial saves.
    """

    path: str
    lease: socket.socket
    cells: Mapping[int, RanCell]
    tagged: int
    duration_s: float

    @property
    def until(self) -> int:
        """Index of the first cell that each trial runs itself: the first after the shared cells."""
        return max(self.cells) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelOrigin:
    """How one kernel is made: started, or forked.

    Attributes:
        is_forked: Whether the kernel is forked.
        shared: Cells tagged `shared` that ran before the fork. None if there are none.
        reason: Why the kernel is started, in words. Empty for a forked kernel.
    """

    is_forked: bool = False
    shared: SharedRun | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A process is ready to fork kernels.

    Attributes:
        shared: Cells tagged `shared` that have run in the process. None if there are none.
        import_s: Seconds that the imports took, which each forked kernel saves.
    """

    shared: SharedRun | None = None
    import_s: float = 0.0

    @property
    def saved_s(self) -> float:
        """Seconds that a forked kernel saves in comparison with a started one."""
        shared_s = 0.0 if self.shared is None else self.shared.duration_s
        return _BOOT_S + self.import_s + shared_s


class Stage(Enum):
    """Why no kernel can be forked now.

    Attributes:
        IMPORTS_UNKNOWN: No kernel has shown yet what the process to fork from must import.
        COMING: The process to fork from is importing, or runs the shared cells.
        NEVER: Forking is impossible in this sweep.
    """

    IMPORTS_UNKNOWN = auto()
    COMING = auto()
    NEVER = auto()


@dataclass(frozen=True, slots=True)
class Unready:
    """No process is ready to fork kernels.

    Attributes:
        stage: Why no process is ready, and so whether one may be ready later.
        why: Reason in words, with the remedy if there is one.
    """

    stage: Stage
    why: str


#: Whether kernels can be forked now.
ForkAvailability = Ready | Unready
