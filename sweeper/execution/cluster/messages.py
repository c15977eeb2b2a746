"""What travels between a sweep (home) and the host process of a worker (there), as pickles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ...notebook_api.messages import Point, StopReason
from ...settings.machines import Resources
from ...trials import Reason, TrialOutcome, TrialSpec, TrialState
from ..executor import TimeLeft
from ..workload import Workload

#: The bytes that one message has of a file at most, so that no process holds a whole checkpoint.
CHUNK_BYTES = 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """To the host, first: what is asked of it.

    Attributes:
        modules: that the notebook imports.
        resources: that its trials are to have.
    """

    kernel_name: str
    resources: Resources
    modules: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """From the host: what it has.

    Attributes:
        host: the name of the machine.
        obstacle: why the kernel, or a GPU, cannot be used there; empty where they can.
        python: of the kernel, as `python_of` describes it; None where that is not known.
    """

    host: str
    obstacle: str = ""
    python: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """To the host, when the sweep begins: what all trials have in common.

    Attributes:
        code_sign: a file in the notebook's folder with its text, by which a worker recognises that
            it has the same folder on a disk that both use; None where it is to have a copy.
        checkpoints_sign: the same of the study's folder.
    """

    workload: Workload
    code_sign: tuple[Path, str] | None
    checkpoints_sign: tuple[Path, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """From the host: which folders of home it has."""

    shares_code: bool
    shares_checkpoints: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """To the host: how long it may wait for a disk, and how long the sweep still has."""

    patience_s: float
    left_s: float | None

    @classmethod
    def of(cls, time_left: TimeLeft) -> Self:
        """The times as they are now."""
        return cls(patience_s=time_left.patience_s(), left_s=time_left.left_s())


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """To the host: all files are there, trials may come."""

    times: Times


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """From the host: trials may come.

    Attributes:
        obstacle: why they may not, because their data is not there; empty where they may.
    """

    obstacle: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetching:
    """From the host: how far it is with the data of the trials, for people."""

    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """To the host: run this trial."""

    spec: TrialSpec
    trials_left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """To the host: stop this trial, if it still runs."""

    number: int
    reason: StopReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """To the host: no more trials come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """Both ways: the next bytes of a file.

    Attributes:
        path: of the file at home.
        offset: of these bytes in the file.
    """

    path: Path
    offset: int
    data: bytes
    is_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """Both ways: a file, or a folder with all that is in it, is gone.

    Attributes:
        path: of it at home.
    """

    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """From the host: a point of a running trial."""

    number: int
    point: Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """From the host: how far a running trial is."""

    number: int
    cell: int
    cells: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """From the host: how a trial ended; its files came before."""

    number: int
    outcome: TrialOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """From the host, last: what it knows of all its trials."""

    findings: Sequence[str]


ToHost = Look | Begin | Open | Run | Stop | Times | End | FilePart | Remove
FromHost = (
    Looked | Greeting | Fetching | Opened | Reported | Cells | Ended | Left | FilePart | Remove
)


def lost_outcome(host: str) -> TrialOutcome:
    """The outcome of a trial whose worker was lost."""
    place = f" on {host}" if host else ""
    return TrialOutcome(
        state=TrialState.STOPPED,
        reason=Reason.WORKER_LOST,
        message=f"the worker{place} that ran the trial is gone",
        host=host,
    )
