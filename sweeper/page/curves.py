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
    """The learning curves of the trials that have ended."""

    def __init__(self) -> None:
        #: By run id: a text that identifies the attempt, and the steps and values of each score.
        self._known: dict[str, tuple[str, Mapping[str, Any]]] = {}

    def load(self, text: str) -> None:
        """Load the curves that an earlier page has. Curves that cannot be read are made again.

        Args:
            text: The curves as JSON, as `to_json` returns them.
        """
        with suppress(ValueError, TypeError, AttributeError):
            for run_id, (stamp, curves) in json.loads(text).items():
                self._known[run_id] = stamp, curves

    def update(self, records: Sequence[TrialRecord], objectives: Mapping[str, str]) -> bool:
        """Read the curves of trials that have ended since the last call. Return whether any is new.

        Args:
            records: Records of all trials. If there are more than 500, only the best trials by the
                first objective count.
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
    """Return the trials whose curves are on the page: all, or the best if there are too many.

    Trials without a score count as the worst.
    """
    if len(records) <= _MOST_CURVES:
        return records
    name, direction = next(iter(objectives.items()))
    scored = [record for record in records if has_score(record, name)]
    others = [record for record in records if not has_score(record, name)]
    scored.sort(key=lambda record: record.scores[name], reverse=direction == "maximize")
    return [*scored, *others][:_MOST_CURVES]


def _stamp(record: TrialRecord) -> str:
    """Return a text that identifies an attempt at a trial, even among studies of the same name."""
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
    """Return the data in a script of the page, which is the argument of its only call.

    Args:
        path: Path of the script.
        call: Name of the function that the script calls.

    Returns:
        The argument as text. Empty if the script cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return text.removeprefix(f"{call}(").removesuffix(");")
