"""Define the messages between a sweep and the process that writes to MLflow.

All messages can be pickled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..settings.addresses import Address
from ..trials import StudyPaths

#: (Step, value) pairs of each score of a trial, by the name of the score.
Series = Mapping[str, Sequence[tuple[int, float]]]
#: Name, step and value of a point, and its time in milliseconds since 1970.
TimedPoint = tuple[str, int, float, int]

# --- messages to the writing process -------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """The MLflow store of a study, and what the study's experiment shows.

    This is the first message to the writing process.

    Attributes:
        address: Address of MLflow's store or server.
        study: Name of the study, which is also the name of its experiment.
        study_id: Id of the study. Runs of earlier studies of the same name have other ids and are
            not changed.
        paths: Paths of the study, with its notebooks and artifacts.
        note: Markdown that MLflow's UI displays above the runs. None leaves it unchanged.
        view: View with which MLflow's UI opens the experiment, as `view_of` makes it. None leaves
            it unchanged.
    """

    address: Address
    study: str
    study_id: str
    paths: StudyPaths
    note: str | None = None
    view: str | None = None

    @property
    def is_embedded(self) -> bool:
        """Whether the store is the SQLite file in the folder of the outputs."""
        return self.address.file == self.paths.tracking


class Call(NamedTuple):
    """A call of a method of `RunWriter`.

    Attributes:
        method: Name of the method.
        about: Run id of the trial, or another subject of the call, for messages.
        arguments: Arguments of the method.
    """

    method: str
    about: str
    arguments: tuple[Any, ...]


# --- messages from the writing process -----------------------------------------------------------


class Upload(NamedTuple):
    """A file that is logged next, before the answer to a call.

    Attributes:
        n_bytes: Size of the file in bytes.
    """

    n_bytes: int


#: A function that is called before each file is logged.
Tell = Callable[[Upload], object]


class Reply(NamedTuple):
    """The answer to a call, or to the first message.

    Attributes:
        value: Return value of the method. For the first message: `experiment_id`, `runs` and
            `attempts` of the `RunWriter`.
        error: Why MLflow did not accept the call. None if MLflow accepted the call.
    """

    value: Any = None
    error: str | None = None
