"""The learning curves of a study's trials, read from their executed notebooks once."""

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
from ..trials import TrialRecord

#: The most points of one curve; more of them would lie on the same pixels of a screen.
_MOST_POINTS = 300
#: Of more trials no eye tells the curves apart, and a browser does not draw them soon.
_MOST_CURVES = 500


class Curves:
    """The curves of the trials that have ended."""

    def __init__(self) -> None:
        #: By run id: the stamp of the attempt, and the steps and values of each score.
        self._known: dict[str, tuple[str, Mapping[str, Any]]] = {}

    def load(self, text: str) -> None:
        """Take the curves that were written before; what is not readable is read anew."""
        with suppress(ValueError, TypeError, AttributeError):
            for run_id, (stamp, curves) in json.loads(text).items():
                self._known[run_id] = stamp, curves

    def update(self, records: Sequence[TrialRecord], objectives: Mapping[str, str]) -> bool:
        """Read the curves of trials that have ended since; whether there were some.

        Args:
            records: all trials; of more than 500 those count that are best by the first objective.
            objectives: the direction of each.
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
        """What `load` takes."""
        return json.dumps(self._known, separators=(",", ":"), ensure_ascii=False)


def _best(records: Sequence[TrialRecord], objectives: Mapping[str, str]) -> Sequence[TrialRecord]:
    """As many trials as have curves on the page; those without a score come last."""
    if len(records) <= _MOST_CURVES:
        return records
    name, direction = next(iter(objectives.items()))
    sign = 1 if direction == "minimize" else -1

    def rank(record: TrialRecord) -> float:
        score = sign * record.scores.get(name, math.nan)
        return math.inf if math.isnan(score) else score

    return sorted(records, key=rank)[:_MOST_CURVES]


def _stamp(record: TrialRecord) -> str:
    """What no other attempt has, not even one of an earlier study in the same folder."""
    return f"{record.attempt} {record.started_at_s}"


def _thinned(points: Sequence[tuple[int, float]]) -> tuple[list[int], list[float | str]]:
    """The steps and the values of a curve; every k-th of many points, and always the last one."""
    last = list(dict(points).items())  # of several points of a step the last one counts
    kept = last[:: -(-len(last) // _MOST_POINTS) or 1]
    if last and kept[-1] != last[-1]:
        kept.append(last[-1])
    return [step for step, _ in kept], [encode_float(value) for _, value in kept]


def read_file(path: Path, call: str) -> str:
    """The argument of the one call that a file of the page consists of; empty without the file."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return text.removeprefix(f"{call}(").removesuffix(");")
