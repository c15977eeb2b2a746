"""How kernels can come to be: started, or forked from a process that is ahead of them."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any

#: How long a kernel boots (measured); a forked one saves that, in addition to the imports.
_BOOT_S = 0.3
#: The end of what users read of a failed attempt to fork kernels.
SWITCH_OFF = "`kernels: cold` spares the attempt"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSetup:
    """What all kernels of a sweep have in common.

    Attributes:
        name: The name of their kernelspec.
        env: The environment of all kernels. What differs between trials is set when one begins.
        cwd: The working directory of all kernels.
        runtime_folder: A private folder with a short path, for sockets.
        token: The beginning of the marks in their environments.
        frozen: Modules that kernels import in place of what lies on disk: their sources by their
            absolute paths without links.
    """

    name: str
    env: Mapping[str, str]
    cwd: Path
    runtime_folder: Path
    token: str
    frozen: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RanCell:
    """One shared cell that has run."""

    messages: Sequence[Mapping[str, Any]]
    execution_count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRun:
    """Shared cells that have run in a process of their own, from which kernels are forked.

    Attributes:
        path: The socket of that process.
        lease: Ends the process when it is closed.
        cells: The cells by their place in the notebook.
        tagged: How many cells are tagged.
        duration_s: How long the cells ran, which each trial saves.
    """

    path: str
    lease: socket.socket
    cells: Mapping[int, RanCell]
    tagged: int
    duration_s: float

    @property
    def until(self) -> int:
        """The place of the first cell that each trial runs itself."""
        return max(self.cells) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelOrigin:
    """How one kernel comes to be: started, or forked from a process that is ahead of it.

    Attributes:
        shared: The cells after which the kernel was forked; None for none.
        reason: Why the kernel is started, in words; empty for a forked one.
    """

    is_forked: bool = False
    shared: SharedRun | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """There is a process that forks kernels.

    Attributes:
        shared: The shared cells that have run in it; None when there are none.
        import_s: How long the imports took that a forked kernel does not repeat.
    """

    shared: SharedRun | None = None
    import_s: float = 0.0

    @property
    def saved_s(self) -> float:
        """How long a started kernel takes until it is where a forked one begins."""
        shared_s = 0.0 if self.shared is None else self.shared.duration_s
        return _BOOT_S + self.import_s + shared_s


class Stage(Enum):
    """How far the process is that forks kernels, while there is none."""

    IMPORTS_UNKNOWN = auto()
    COMING = auto()
    NEVER = auto()


@dataclass(frozen=True, slots=True)
class Unready:
    """There is no process that forks kernels, and why; with the remedy if there is one."""

    stage: Stage
    why: str


#: Whether kernels can be forked now.
ForkAvailability = Ready | Unready
