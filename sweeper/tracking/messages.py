"""What a sweep and the process that writes to MLflow send each other; all of it can be pickled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..settings.addresses import Address
from ..trials import StudyPaths

#: The (step, value) pairs of each score of a trial.
Series = Mapping[str, Sequence[tuple[int, float]]]
#: Name, step, value, and time in milliseconds since 1970.
TimedPoint = tuple[str, int, float, int]

# --- to the process ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Where a study's runs are written; the first message.

    Attributes:
        study_id: runs of earlier studies of the same name have other ids and are left alone.
        paths: of the study, with its notebooks and what its trials have saved.
        note: Markdown that MLflow's UI displays above the runs; None leaves it unchanged.
        view: with which MLflow's UI opens the experiment (`view_of`); None leaves it unchanged.
    """

    address: Address
    study: str
    study_id: str
    paths: StudyPaths
    note: str | None = None
    view: str | None = None

    @property
    def is_embedded(self) -> bool:
        """Whether the store is the SQLite file beside the outputs."""
        return self.address.file == self.paths.tracking


class Call(NamedTuple):
    """A call of `RunWriter`: the name of a method, and its arguments.

    Attributes:
        about: the run id of the trial, or what else it is about.
    """

    method: str
    about: str
    arguments: tuple[Any, ...]


# --- from the process ----------------------------------------------------------------------------


class Reply(NamedTuple):
    """The answer to a call, and to the first message.

    Attributes:
        value: what the method has returned; of the first message `experiment_id`, `runs` and
            `attempts` of the `RunWriter`.
        error: why MLflow did not take it; None where it did.
    """

    value: Any = None
    error: str | None = None
