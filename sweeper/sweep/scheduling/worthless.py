"""Find out whether the params have no effect on the first trials, so that more would be wasted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...answer import are_equal, execution_of
from ...notebooks.compare import Execution
from ...notebooks.metadata import BLANK, read_metadata
from ...trials import TrialRecord, TrialState, is_coarse

#: This number of completed trials with different params is compared (chosen, not measured).
_MOST_COMPARED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Tied:
    """The first trials have equal scores, which may be a coincidence.

    Attributes:
        run_ids: Run ids of the trials.
    """

    run_ids: Sequence[str]

    def __str__(self) -> str:
        return (
            f"{', '.join(self.run_ids)} have the same scores over different params: the score may "
            "be too coarse, or nothing reads the swept names"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Worthless:
    """The first trials have equal scores, series and outputs, although their params differ.

    Attributes:
        run_ids: Run ids of the trials.
        names: Names of the params that differ between them.
    """

    run_ids: Sequence[str]
    names: Sequence[str]

    def __str__(self) -> str:
        return (
            f"equal trials: {', '.join(self.run_ids)} have the same scores, series and outputs to "
            f"the last bit over different params, so none of their results depends on "
            f"{', '.join(self.names)}; correct the code that should use these names, or continue "
            "with --allow-changes"
        )


class WorthlessRule:
    """Compares the last three completed trials with different params, as soon as there are three.

    Only trials after the last one that ran other code count, because the notebook may have been
    corrected since. The executed notebooks of earlier trials are not read.

    Args:
        code: Version of the code that the sweep's trials run.
        names: Names of the search space. Trials with equal scores are compared only if each of
            these params that they have differs between them.
        code_of: Returns the version of the code that a trial ran, empty if it is not known.
            Default: from its executed notebook.
        read: Reads the scores, series and outputs of a trial. Default: from its executed notebook.
    """

    def __init__(
        self,
        code: str,
        names: Collection[str],
        *,
        code_of: Callable[[TrialRecord], str] | None = None,
        read: Callable[[TrialRecord], Execution] | None = None,
    ) -> None:
        self._code, self._names, self._code_of = code, {*names}, code_of or _code_of
        self._read = read or execution_of
        self._has_other_code: dict[int, bool] = {}
        self._lock = threading.Lock()
        self._is_decided = False

    def judge(self, records: Iterable[TrialRecord]) -> Tied | Worthless | None:
        """Compare the first completed trials, once there are enough of them.

        Return None if they differ, if there are too few, or if they were judged before.

        Args:
            records: Records of all trials.

        Raises:
            OSError: An executed notebook cannot be read.
            NotebookError: An executed notebook is damaged.
        """
        with self._lock:
            if self._is_decided:
                return None
            compared = self._with_different_params(records)
            scores = {repr(sorted(record.scores.items())) for record in compared}
            are_enough = len(compared) == _MOST_COMPARED and self._all_differ(compared)
            self._is_decided = len(scores) > 1 or are_enough
            if len(scores) > 1 or not are_enough:
                return None
        run_ids = [record.run_id for record in compared]
        are_coarse = all(map(is_coarse, compared[0].scores.values()))
        if are_coarse or not are_equal([self._read(record) for record in compared]):
            return Tied(run_ids=run_ids)
        return Worthless(run_ids=run_ids, names=_changed_names(compared))

    def _all_differ(self, compared: Sequence[TrialRecord]) -> bool:
        """Return whether every param differs: the trials of `start` may change only some params."""
        changed = {*_changed_names(compared)}
        return changed >= self._names & compared[0].params.keys()

    def _with_different_params(self, records: Iterable[TrialRecord]) -> list[TrialRecord]:
        found: dict[str, TrialRecord] = {}
        completed = [record for record in records if record.state is TrialState.COMPLETED]
        for record in sorted(completed, key=lambda record: record.number, reverse=True):
            if len(found) == _MOST_COMPARED or self._ran_other_code(record):
                break
            found.setdefault(repr(sorted(record.params.items())), record)
        return list(reversed(found.values()))

    def _ran_other_code(self, record: TrialRecord) -> bool:
        if record.number not in self._has_other_code:
            self._has_other_code[record.number] = self._code_of(record) not in ("", self._code)
        return self._has_other_code[record.number]


def _changed_names(records: Sequence[TrialRecord]) -> list[str]:
    values: Mapping[str, set[str]] = {
        name: {repr(record.params.get(name)) for record in records} for name in records[0].params
    }
    return [name for name, found in values.items() if len(found) > 1]


def _code_of(record: TrialRecord) -> str:
    return (read_metadata(record.notebook) or BLANK).code
