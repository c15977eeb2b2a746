"""What a sweep and the process that writes to MLflow send each other; all of it can be pickled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..settings.addresses import Address
from ..trials import TrialRecord, TrialState
from .views import View

#: The (step, value) pairs of each score of a trial.
Series = Mapping[str, Sequence[tuple[int, float]]]
#: Name, step, value, and time in milliseconds since 1970.
TimedPoint = tuple[str, int, float, int]

_STATUS = {
    TrialState.COMPLETED: "FINISHED",
    TrialState.PRUNED: "FINISHED",
    TrialState.FAILED: "FAILED",
    TrialState.STOPPED: "KILLED",
}


class RunEnd(NamedTuple):
    """How a run has ended in MLflow: its status, and the attempt that its tag names."""

    status: str
    attempt: str


def end_of(record: TrialRecord) -> RunEnd:
    """How the run of a trial that has ended ends in MLflow."""
    return RunEnd(_STATUS[record.state], str(record.attempt))


# --- to the process ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Where a study's runs are written; the first message.

    Attributes:
        study_id: runs of earlier studies of the same name have other ids and are left alone.
        is_embedded: whether the store is the SQLite file beside the outputs.
        artifacts: the folder of an embedded store's artifacts.
        cells: the folder for rendered notebooks of the comparison page.
        saved: the folder of what trials have saved; None where it is not to be logged.
        note: Markdown that MLflow's UI displays above the runs; None leaves it unchanged.
        view: with which MLflow's UI opens the experiment; None leaves it unchanged.
    """

    address: Address
    study: str
    study_id: str
    is_embedded: bool
    artifacts: Path
    cells: Path
    saved: Path | None = None
    note: str | None = None
    view: View | None = None


class Call(NamedTuple):
    """A call of `RunWriter`: the name of a method, and its arguments.

    Attributes:
        about: the run id of the trial, or what else it is about.
    """

    method: str
    about: str
    arguments: tuple[Any, ...]


class Mark(NamedTuple):
    """Asks for the answer `Reached`, when all calls before it have been carried out."""

    number: int


#: Ends the process.
END = Mark(-1)

# --- from the process ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The store can be written; see the attributes of `RunWriter`."""

    experiment_id: str
    runs: Mapping[str, str]
    ends: Mapping[str, RunEnd]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The store cannot be used.

    Attributes:
        message: why, for the user.
        is_temporary: whether it may be used again without any change to it.
    """

    message: str
    is_temporary: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A call was carried out, but for its error.

    Attributes:
        mlflow_id: MLflow's id of the trial's run; None where it has none.
        end: how the run has ended; None while it has not.
        error: why MLflow did not take it; None where it did.
    """

    method: str
    about: str
    mlflow_id: str | None
    end: RunEnd | None
    error: str | None


class Reached(NamedTuple):
    """All calls before a mark have been carried out."""

    number: int


class StopTagged(NamedTuple):
    """A user has set the stop tag on a running trial's run."""

    run_id: str


class Logged(NamedTuple):
    """A record of logging, for the log of the sweep's process."""

    level: int
    text: str


Reply = Opened | Refused | Done | Reached | StopTagged | Logged
