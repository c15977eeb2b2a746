"""How kernels can come to be: started, or forked from a process that is ahead of them."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: The boot of a kernel takes about 0.3 s; a forked one saves it, beside the imports.
_BOOT_S = 0.3
#: The end of what users read of a failed attempt to fork kernels.
SWITCH_OFF = "`kernels: cold` spares the attempt"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSetup:
    """What all kernels of a sweep have in common.

    Attributes:
        name: of their kernelspec.
        env: the environment of all kernels; what differs between trials is set when one begins.
        cwd: the working directory of all kernels.
        runtime_folder: a private folder with a short path, for sockets.
        token: the beginning of the marks in their environments.
        frozen: modules that kernels import in place of what lies on disk: their sources by their
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
        path: the socket of that process.
        lease: ends the process when it is closed.
        cells: the cells by their place in the notebook.
        tagged: how many cells are tagged.
        duration_s: how long the cells ran, which each trial saves.
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
        shared: the cells after which the kernel was forked; None for none.
        reason: why the kernel is started, in words; empty for a forked one.
    """

    is_forked: bool = False
    shared: SharedRun | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkAvailability:
    """Whether kernels can be forked now.

    Attributes:
        can_fork: whether there is a process that forks kernels.
        shared: the shared cells that have run in it; None when there are none.
        import_s: how long the imports took that a forked kernel does not repeat.
        obstacle: why no kernel can be forked, with the remedy if there is one; empty if one can.
        is_coming: whether such a process is being raised.
        is_lasting: whether the obstacle stays, in all of the sweep.
    """

    can_fork: bool = False
    shared: SharedRun | None = None
    import_s: float = 0.0
    obstacle: str = ""
    is_coming: bool = False
    is_lasting: bool = False

    @property
    def saved_s(self) -> float:
        """How long a started kernel takes until it is where a forked one begins."""
        return _BOOT_S + self.import_s + (0.0 if self.shared is None else self.shared.duration_s)
