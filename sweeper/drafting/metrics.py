"""Find in which direction a score is better: by the metric in its name, or by how it changes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from ..settings.yaml_reader import read_yaml

_TABLE = Path(__file__).with_name("metrics.yml")
#: A series rises (or falls) from its first to its last value. It has a trend if at least this share
#: of its changes from one value to the next also rise (or fall). Equal neighbours do not count
#: (chosen, not measured).
_TREND_SHARE = 0.6
_LEAST_OF_TREND = 3
OPPOSITE = {"minimize": "maximize", "maximize": "minimize"}
#: Words that say on which data a score was computed, and the name of these data.
SPLITS = {
    **dict.fromkeys("val valid validation dev cv cross oof oob holdout heldout".split(), "val"),
    **dict.fromkeys("test eval evaluate evaluation".split(), "test"),
    **dict.fromkeys("train training".split(), "train"),
}
#: Rank of each kind of data: a score on the first kind says most about a model. A score whose name
#: has no such word ranks before scores on the training data.
ORDER = {"val": 0, "test": 1, "": 2, "train": 3}


def split_of(words: Sequence[str]) -> str:
    """Return on which data a score was computed, by its name. Empty if the name does not say it."""
    known = (word for word in words if word != "cross" or "entropy" not in words)
    return min(
        (SPLITS[word] for word in known if word in SPLITS), key=ORDER.__getitem__, default=""
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric in a name.

    Attributes:
        name: Its words, with spaces.
        is_weak: Whether its word is one that any score may have, as `loss`.
        is_partial: Whether a model that always predicts the same class may be perfect by it.
        is_by_trend: Whether some people minimise it, so that the direction counts in which it goes.
    """

    name: str
    direction: str
    is_weak: bool = False
    is_partial: bool = False
    is_by_trend: bool = False


@cache
def _metrics() -> dict[tuple[str, ...], Metric]:
    found: dict[tuple[str, ...], Metric] = {}
    for row in read_yaml(_TABLE.read_text("utf-8")):
        for name in row["names"]:
            metric = Metric(
                name=name,
                direction=row["direction"],
                is_weak=bool(row.get("weak", False)),
                is_partial=bool(row.get("partial", False)),
                is_by_trend=bool(row.get("by_trend", False)),
            )
            found.setdefault(tuple(name.split()), metric)
    return found


def words_of(name: str) -> list[str]:
    """Return the words of a name, in small letters."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", re.sub(r"\^2|²", "2", name))
    return re.findall(r"[^\W\d_]+\d*", name.lower())


def metric_of(words: Sequence[str]) -> Metric | None:
    """Return the metric among the words of a name. Of several, the longest or the last counts."""
    words = [_singular(part) for word in words for part in _parts(word)]
    found: list[tuple[bool, int, int, Metric]] = []
    for start in range(len(words)):
        for length in range(1, 5):
            metric = _metrics().get(tuple(words[start : start + length]))
            if metric is not None and start + length <= len(words):
                found.append((not metric.is_weak, length, start, metric))
    return max(found, key=lambda match: match[:3])[3] if found else None


@cache
def _parts(word: str) -> list[str]:
    """Split a word around a metric in Chinese, Japanese or Korean, which may need no spaces."""
    for name, *more in _metrics():
        if not more and name >= "\u3000":
            word = word.replace(name, f" {name} ")
    return word.split()


@cache
def _singular(word: str) -> str:
    """Return `loss` for `losses` and `loss2`, `accuracy` for `accuracies`; others as they are."""
    known = {part for name in _metrics() for part in name}
    stems = (word.removesuffix("s"), word.removesuffix("es"), word.rstrip("0123456789"))
    forms = (word, *stems, f"{word[:-3]}y")
    return next((form for form in forms if form in known), word)


def trend_of(values: Sequence[float]) -> str | None:
    """Return the direction in which a series goes. None if it goes in neither direction."""
    steps = [later - earlier for earlier, later in pairwise(values) if later != earlier]
    if len(values) < _LEAST_OF_TREND or not steps or values[-1] == values[0]:
        return None
    falls = values[-1] < values[0]
    share = sum((step < 0) == falls for step in steps) / len(steps)
    if share < _TREND_SHARE:
        return None
    return "minimize" if falls else "maximize"
