"""Whether a study can have no trial that completes: its first ones fail alike, before they differ.

A package that is missing, a path that is wrong: every trial meets the same error, and the sweep
would spend hours on it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ...errors import NotebookError
from ...notebooks import read_executed
from ...trials import Reason, TrialRecord, TrialState

#: How many trials must have failed alike.
ENOUGH = 3
_IN_A_CELL = (Reason.CELL_ERROR, Reason.OUT_OF_MEMORY, Reason.OUT_OF_HOST_MEMORY)
_WORD = re.compile(r"\w+")
#: Ways to a parameter without its name: through the namespace, through other code that runs in
#: it, and through our own record of the trial.
_INDIRECT = re.compile(
    r"(?<![\w.])(globals|locals|vars|exec|eval|compile|get_ipython)\s*\(|__main__|__dict__|"
    r"^\s*%run\b|\.run_cell\b|\.params\b|[\"']params[\"']|SWEEPER_",
    re.MULTILINE,
)
_NO_CODE_OF_THE_USER = "injected-parameters"


class FirstFailures:
    """Watches the ends of a sweep's first trials.

    Args:
        swept: names that have another value in each trial.
        earlier: the trials of earlier sweeps.
    """

    def __init__(self, swept: Collection[str], earlier: Collection[TrialRecord]) -> None:
        self._swept = frozenset(swept)
        #: The cell in which all have failed so far, counted from 1, and the error; None before.
        self._place: tuple[int, str] | None = None
        self._failed: list[str] = []
        self._has_hope = any(record.state is TrialState.COMPLETED for record in earlier)

    def note(self, record: TrialRecord) -> str | None:
        """A trial has ended.

        Returns:
            why no other trial can fare better, in words; None while that may be.
        """
        if self._has_hope or record.state is TrialState.STOPPED:
            return None
        place = self._place_of(record)
        self._has_hope = place is None or self._place not in (None, place)
        if place is None or self._has_hope:
            return None
        self._place = place
        self._failed.append(record.run_id)
        if len(self._failed) < ENOUGH:
            return None
        return (
            f"the same error in code cell {place[0]} of the first {len(self._failed)} trials, "
            "which no parameter reaches"
        )

    def _place_of(self, record: TrialRecord) -> tuple[int, str] | None:
        """Where a trial has failed; None for one that has not, or that may have for its params."""
        if record.reason not in _IN_A_CELL:
            return None
        try:
            cells = read_executed(record.notebook).cells
        except NotebookError:
            return None
        number = _untouched_failure(cells, self._swept)
        return None if number is None else (number, record.message)


def _untouched_failure(cells: Sequence[Mapping[str, Any]], swept: frozenset[str]) -> int | None:
    """The number of the code cell that failed, counted from 1 as in the research notebook.

    None where none has failed, or where a swept name can matter in it or in a cell before it.
    """
    number = 0
    for cell in cells:
        metadata = cell["metadata"]
        tags = metadata.get("tags", [])
        if cell["cell_type"] != "code" or _NO_CODE_OF_THE_USER in tags:
            continue
        number += 1
        # The parameters cell itself assigns the defaults, before any other value is there.
        source = "" if "parameters" in tags else "".join(cell["source"])
        if swept.intersection(_WORD.findall(source)) or _INDIRECT.search(source):
            return None
        if metadata.get("papermill", {}).get("status") == "failed":
            return number
    return None
