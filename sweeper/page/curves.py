"""The learning curves of a study's trials, read from their executed notebooks once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..notebooks.metadata import read_metadata
from ..notebooks.scores import series_of
from ..trials import TrialRecord
from .content import number_of

#: The most points of one curve; more of them would lie on the same pixels of a screen.
_MOST_POINTS = 300


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

    def update(self, records: Iterable[TrialRecord]) -> bool:
        """Read the curves of trials that have ended since; whether there were some."""
        new = [
            record
            for record in records
            if record.is_final and self._known.get(record.run_id, ("",))[0] != _stamp(record)
        ]
        for record in new:
            series = series_of(read_metadata(record.notebook) or {})
            curves = {name: _thinned(points) for name, points in series.items()}
            self._known[record.run_id] = _stamp(record), curves
        return bool(new)

    def to_json(self) -> str:
        """What `load` takes."""
        return json.dumps(self._known, separators=(",", ":"), ensure_ascii=False)


def _stamp(record: TrialRecord) -> str:
    """What no other attempt has, not even one of an earlier study in the same folder."""
    return f"{record.attempt} {record.started_at_s}"


def _thinned(points: Sequence[tuple[int, float]]) -> tuple[list[int], list[float | str]]:
    """The steps and the values of a curve; every k-th of many points, and always the last one."""
    last = list(dict(points).items())  # of several points of a step the last one counts
    kept = last[:: -(-len(last) // _MOST_POINTS) or 1]
    if last and kept[-1] != last[-1]:
        kept.append(last[-1])
    return [step for step, _ in kept], [number_of(value) for _, value in kept]


def read_file(path: Path, call: str) -> str:
    """The argument of the one call that a file of the page consists of; empty without the file."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return text.removeprefix(f"{call}(").removesuffix(");")
