"""Find out whether the first trials have equal results although their params differ."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from ...answer import are_equal, execution_of
from ...notebooks.metadata import BLANK, read_metadata
from ...trials import TrialRecord, TrialState, have_equal_scores, is_coarse
from ...trials.confirmation import key_of

#: This number of completed trials with different params is compared (chosen, not measured).
_MOST_COMPARED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Tied:
    """The compared trials have equal scores, which may be a coincidence.

    The scores are coarse (such as 29/30), or series or outputs of the trials differ.

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
    """The compared trials have equal scores, series and outputs, although their params differ.

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

    The rule decides once. As soon as scores of two compared trials differ, it has decided that the
    params have an effect. A trial that ran other code, and all trials before it, are not compared,
    because the notebook may have been corrected since.

    Args:
        code: Version of the code that the sweep's trials run.
        names: Params that can have different values. If the compared scores are equal, the rule
            waits for further trials until each of these params differs between compared trials. It
            does not wait for a param that the oldest compared trial lacks.
    """

    def __init__(self, code: str, names: Collection[str]) -> None:
        self._code, self._names = code, {*names}
        self._has_other_code: dict[int, bool] = {}
        self._lock = threading.Lock()
        self._is_decided = False

    def judge(self, records: Iterable[TrialRecord]) -> Tied | Worthless | None:
        """Compare the last completed trials that have different params, once there are enough.

        Return None if their scores differ, if there are too few, or if an earlier call has decided.

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
            if not compared:
                return None
            if not have_equal_scores(compared):
                self._is_decided = True
                return None
            # The trials of `start` may change only some params. Then wait for other trials.
            changed = _changed_names(compared)
            has_changed_all = self._names & compared[0].params.keys() <= {*changed}
            if len(compared) < _MOST_COMPARED or not has_changed_all:
                return None
            self._is_decided = True
        run_ids = [record.run_id for record in compared]
        are_coarse = all(map(is_coarse, compared[0].scores.values()))
        if are_coarse or not are_equal(map(execution_of, compared)):
            return Tied(run_ids=run_ids)
        return Worthless(run_ids=run_ids, names=changed)

    def _with_different_params(self, records: Iterable[TrialRecord]) -> list[TrialRecord]:
        found: dict[str, TrialRecord] = {}
        completed = [record for record in records if record.state is TrialState.COMPLETED]
        for record in sorted(completed, key=lambda record: record.number, reverse=True):
            if len(found) == _MOST_COMPARED or self._ran_other_code(record):
                break
            found.setdefault(key_of(record.params), record)
        return list(reversed(found.values()))

    def _ran_other_code(self, record: TrialRecord) -> bool:
        if record.number not in self._has_other_code:
            code = (read_metadata(record.notebook) or BLANK).code
            self._has_other_code[record.number] = code not in ("", self._code)
        return self._has_other_code[record.number]


def _changed_names(records: Sequence[TrialRecord]) -> list[str]:
    """Return the first trial's params that another trial lacks or has with another value."""
    return [
        name
        for name in records[0].params
        if len({repr(record.params.get(name)) for record in records}) > 1
    ]
