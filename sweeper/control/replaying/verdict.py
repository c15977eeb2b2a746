"""Compare a trial with its replay: every score and every step, to the last bit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from ...kernels.forking.evidence import difference, gather
from ...notebooks.scores import Scraped, Series, scrape
from ...settings import Settings
from ...trials import display_path
from ..differences import Parting, parting, parting_in_words

Points = Sequence[tuple[int, float]]


class ReplayState(StrEnum):
    """What a replay came to."""

    EQUAL = "equal"
    DIFFERENT = "different"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the replay of one trial came to.

    Attributes:
        original: the executed notebook of the trial.
        replay: that of the replay.
        n_scores: how many final scores were compared.
        n_points: how many reported points were compared.
        scores: the final scores that differ, of the trial and of the replay; None for one without.
        first: the name of the series that parts first, and where; None where none does.
        distance: how far two numbers are apart at most, relative to the larger one; infinite where
            one of them is missing or not finite.
        output: the first output that differs; empty where none does. Outputs do not decide.
        causes: what may have made the difference, the likeliest first.
        message: why there is nothing to compare, for a replay that failed.
    """

    run_id: str
    state: ReplayState
    original: Path
    replay: Path
    n_scores: int = 0
    n_points: int = 0
    scores: Mapping[str, tuple[float | None, float | None]]
    first: tuple[str, Parting] | None = None
    distance: float = 0.0
    output: str = ""
    causes: Sequence[str] = ()
    message: str = ""
    duration_s: float = 0.0

    @property
    def difference(self) -> str:
        """What differs, in one line; empty for an equal replay."""
        if self.state is ReplayState.FAILED:
            return self.message
        parts = [f"{name} {_number(a)} → {_number(b)}" for name, (a, b) in self.scores.items()]
        if self.first is not None:
            name, where = self.first
            parts.insert(0, f"{name}: {parting_in_words(where)}")
        return "; ".join(parts)

    def lines(self) -> list[str]:
        """The verdict for people, the first line by itself enough to go on."""
        if self.state is ReplayState.FAILED:
            return [f"{self.run_id}: not compared: {self.message}"]
        if self.state is ReplayState.EQUAL:
            compared = _compared(self.n_scores, self.n_points)
            lines = [f"{self.run_id}: equal, bit for bit: {compared} ({self.duration_s:.1f} s)"]
            return lines + ([f"  an output differs: {self.output}"] if self.output else [])
        far = (
            "" if math.isinf(self.distance) else f"; at most {self.distance:.2g} apart, relatively"
        )
        lines = [f"{self.run_id}: different: {self.difference}{far}"]
        none = "nothing that is known to change results was found in the code or the environment"
        lines += [f"  {cause}" for cause in self.causes or [none]]
        return [*lines, f"  compare {display_path(self.original)} and {display_path(self.replay)}"]

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints; numbers that JSON does not have are text."""
        return {
            "run_id": self.run_id,
            "verdict": str(self.state),
            "notebook": display_path(self.original),
            "replay": display_path(self.replay),
            "scores": {name: [_json(a), _json(b)] for name, (a, b) in self.scores.items()},
            "compared": {"scores": self.n_scores, "points": self.n_points},
            "first_step": None if self.first is None else self.first[1].step,
            "first_series": None if self.first is None else self.first[0],
            "distance": _json(self.distance),
            "output": self.output,
            "causes": list(self.causes),
            "message": self.message,
            "duration_s": round(self.duration_s, 3),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How the numbers of two executed notebooks compare; the attributes are those of `Verdict`."""

    n_scores: int
    n_points: int
    scores: Mapping[str, tuple[float | None, float | None]]
    first: tuple[str, Parting] | None
    distance: float
    output: str

    @property
    def is_equal(self) -> bool:
        """Whether all numbers are the same bits."""
        return not self.scores and self.first is None


def compare(original: Any, replay: Any, settings: Settings, *, is_cut: bool) -> Comparison:
    """Compare the executed notebook of a trial with that of its replay.

    Args:
        is_cut: whether the trial was ended early, by its pruner: what it had reported until then
            is compared, and neither scores nor outputs.
    """
    found = [
        scrape(node, sources=settings.scores, objectives=settings.objective)
        for node in (original, replay)
    ]
    before, now = found
    series = _cut(now.series, before.series) if is_cut else now.series
    names = dict.fromkeys([*before.series, *series])
    partings = {n: parting(before.series.get(n, ()), series.get(n, ())) for n in names}
    apart = [(it.step, name) for name, it in partings.items() if it.step is not None]
    first = min(apart, default=None)
    scores = {} if is_cut else _unequal(before.scores, now.scores)
    pairs = list(scores.values())
    pairs += [pair for n in names for pair in _pairs(before.series.get(n, ()), series.get(n, ()))]
    return Comparison(
        n_scores=0 if is_cut else len(before.scores),
        n_points=sum(map(len, before.series.values())),
        scores=scores,
        first=None if first is None else (first[1], partings[first[1]]),
        distance=max((_distance(a, b) for a, b in pairs), default=0.0),
        output="" if is_cut else _output(original, replay, before, now),
    )


def _cut(series: Series, like: Series) -> Series:
    """The series as far as the others go."""
    return {name: series.get(name, [])[: len(points)] for name, points in like.items()}


def _unequal(
    before: Mapping[str, float], now: Mapping[str, float]
) -> dict[str, tuple[float | None, float | None]]:
    pairs = {name: (before.get(name), now.get(name)) for name in dict.fromkeys([*before, *now])}
    # By their representation, because no NaN equals another.
    return {name: pair for name, pair in pairs.items() if repr(pair[0]) != repr(pair[1])}


def _pairs(before: Points, now: Points) -> list[tuple[float | None, float | None]]:
    """The values of both at each step at which they differ."""
    first, second = dict(before), dict(now)
    steps = dict.fromkeys([*first, *second])
    pairs = [(first.get(step), second.get(step)) for step in steps]
    return [(a, b) for a, b in pairs if repr(a) != repr(b)]


def _distance(before: float | None, now: float | None) -> float:
    if before is None or now is None or not (math.isfinite(before) and math.isfinite(now)):
        return math.inf
    largest = max(abs(before), abs(now))
    return abs(before / largest - now / largest) if largest else 0.0


def _output(original: Any, replay: Any, before: Scraped, now: Scraped) -> str:
    """The first output that differs, in words, times and addresses not counted; else empty."""
    first, second = (
        gather(node, scores={}, series={}, at_start={}, at_end={}) for node in (original, replay)
    )
    if len(first.cells) != len(second.cells):
        return "the notebooks have not as many code cells"
    found = difference(first, second)
    return "" if found is None else str(found)


def _compared(n_scores: int, n_points: int) -> str:
    parts = []
    if n_scores:
        parts.append(f"{n_scores} score{'s' if n_scores > 1 else ''}")
    if n_points:
        parts.append(f"{n_points} reported point{'s' if n_points > 1 else ''}")
    return " and ".join(parts) or "nothing was reported"


def _number(value: float | None) -> str:
    return "none" if value is None else repr(value)


def _json(value: float | None) -> float | str | None:
    return str(value) if value is not None and not math.isfinite(value) else value
