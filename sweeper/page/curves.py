"""Collect the learning curves of a study's trials. Each executed notebook is read once."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..notebook_api.messages import encode_float
from ..notebooks.metadata import BLANK, read_metadata
from ..notebooks.scores import series_of
from ..trials import TrialRecord, has_score

#: A curve has at most this number of points (chosen, not measured). More points would share the
#: same pixels.
_MOST_POINTS = 300
#: At most this number of curves is drawn (chosen, not measured). Nobody could tell more curves
#: apart, and a browser would draw them slowly.
_MOST_CURVES = 500


class Curves:
    """The learning curves on a study's page, of at most `_MOST_CURVES` trials that have ended."""

    def __init__(self) -> None:
        #: By run id: a text that identifies the attempt, and the steps and values of each series.
        self._known: dict[str, tuple[str, Mapping[str, Any]]] = {}

    def load(self, text: str) -> None:
        """Load the curves that an earlier page has. `update` then reads only the other curves.

        If the text cannot be parsed, `update` reads all curves from the executed notebooks.

        Args:
            text: The curves as JSON, as `to_json` returns them.
        """
        with suppress(ValueError, TypeError, AttributeError):
            for run_id, (stamp, curves) in json.loads(text).items():
                self._known[run_id] = stamp, curves

    def update(self, records: Sequence[TrialRecord], objectives: Mapping[str, str]) -> bool:
        """Read the curves of trials that have ended since the last call.

        Return whether a curve was added, replaced or removed.

        Args:
            records: Records of all trials. If more than 500 trials have ended, only the 500 best by
                the first objective count.
            objectives: Direction of each objective, by name.
        """
        shown = _best([record for record in records if record.is_final], objectives)
        before, self._known = self._known, {}
        for record in shown:
            stamp, curves = before.get(record.run_id, ("", {}))
            if stamp != _stamp(record):
                series = series_of(read_metadata(record.notebook) or BLANK)
                curves = {name: _thinned(points) for name, points in series.items()}
            self._known[record.run_id] = _stamp(record), curves
        return before != self._known

    def to_json(self) -> str:
        """Return the curves in the format that `load` reads."""
        return json.dumps(self._known, separators=(",", ":"), ensure_ascii=False)


def _best(records: Sequence[TrialRecord], objectives: Mapping[str, str]) -> Sequence[TrialRecord]:
    """Return the trials whose curves are on the page: all, or the `_MOST_CURVES` best.

    The first objective decides. Trials without a score count as the worst.

    Args:
        records: Records of the trials that have ended.
        objectives: Direction of each objective, by name.
    """
    if len(records) <= _MOST_CURVES:
        return records
    name, direction = next(iter(objectives.items()))
    scored = [record for record in records if has_score(record, name)]
    others = [record for record in records if not has_score(record, name)]
    scored.sort(key=lambda record: record.scores[name], reverse=direction == "maximize")
    return [*scored, *others][:_MOST_CURVES]


def _stamp(record: TrialRecord) -> str:
    """Return a text that is different for each attempt that ever had the trial's run id.

    The run id alone does not identify an attempt: trials are repeated, and a study may begin anew.
    """
    return f"{record.attempt} {record.started_at_s}"


def _thinned(points: Sequence[tuple[int, float]]) -> tuple[list[int], list[float | str]]:
    """Return the steps and the values of a curve.

    If there are too many points, only every k-th point and the last point are kept.
    """
    values = dict(points)  # If a step has several points, the last one counts.
    steps = [*values]
    distance = math.ceil(len(steps) / _MOST_POINTS)
    if distance > 1:
        steps = [*steps[:-1:distance], steps[-1]]
    return steps, [encode_float(values[step]) for step in steps]


def read_file(path: Path, call: str) -> str:
    """Return the data in a script of the page. The script is one call, with the data as argument.

    Args:
        path: Path of the script.
        call: Name of the function that the script calls.

    Returns:
        The data as JSON text. Empty if the script cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return text.removeprefix(f"{call}(").removesuffix(");")
