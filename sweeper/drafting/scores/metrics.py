"""Find whether less or more of a score is better, by the metric in its name or by its trend."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from ...settings.yaml_reader import read_yaml

_TABLE = Path(__file__).with_name("metrics.yml")
#: A series that rises (or falls) from its first to its last value has a trend if at least this
#: share of its steps rise (or fall), too. Steps between equal values do not count (chosen, not
#: measured).
_TREND_SHARE = 0.6
_LEAST_OF_TREND = 3
OPPOSITE = {"minimize": "maximize", "maximize": "minimize"}
#: Words in names that say on which data a score was computed: validation, test or training data.
SPLITS = {
    **dict.fromkeys("val valid validation dev cv cross oof oob holdout heldout".split(), "val"),
    **dict.fromkeys("test eval evaluate evaluation".split(), "test"),
    **dict.fromkeys("train training".split(), "train"),
}
#: Rank of scores by their data: validation data come first, because such a score says most about a
#: model and may be optimised. A score whose name has no word for data ranks before training scores.
ORDER = {"val": 0, "test": 1, "": 2, "train": 3}


def split_of(words: Sequence[str]) -> str:
    """Return on which data a score was computed, by the words of its name.

    The result is `val`, `test` or `train`. It is empty if no word names data.
    """
    known = (word for word in words if word != "cross" or "entropy" not in words)
    return min(
        (SPLITS[word] for word in known if word in SPLITS), key=ORDER.__getitem__, default=""
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric that is recognised by its words in the name of a score.

    Attributes:
        name: The metric's words, with spaces.
        direction: Direction in which the metric is better: `minimize` or `maximize`.
        is_weak: Whether other metrics in the same name have priority. In `loss_mse`, the metric is
            `mse`, because `loss` is weak.
        is_partial: Whether a model that always predicts one class may have the best value of the
            metric, such as recall.
        is_by_trend: Whether some people minimise the metric and others maximise it. Then the trend
            of the score's values decides.
    """

    name: str
    direction: str
    is_weak: bool = False
    is_partial: bool = False
    is_by_trend: bool = False


def preference(metric: Metric | None, direction: str | None) -> int:
    """Return the rank of a score's metric. The score with the smallest rank is preferred.

    Args:
        metric: The metric. None if the score's name has none.
        direction: Direction in which the score is better. None if it is not known.

    Returns:
        2 for a weak metric (see `Metric`) that is minimised, such as a loss. 1 for a partial
        metric, such as recall, and if neither metric nor direction is known. Else 0.
    """
    if metric is None:
        return int(direction is None)
    if metric.is_weak:
        return 2 if direction == "minimize" else 0
    return int(metric.is_partial)


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
    """Return the words of a name, in lower case."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", re.sub(r"\^2|²", "2", name))
    return re.findall(r"[^\W\d_]+\d*", name.lower())


def metric_of(words: Sequence[str]) -> Metric | None:
    """Return the metric among the words of a name. None if there is none.

    Of several metrics, one that is not weak has priority, then the one with the most words, then
    the last one.
    """
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
    """Split a Chinese, Japanese or Korean word before and after a metric in it.

    These languages may write a metric without spaces around it. Other words are returned as they
    are, in a list of one.
    """
    for name, *more in _metrics():
        if not more and name >= "\u3000":
            word = word.replace(name, f" {name} ")
    return word.split()


@cache
def _singular(word: str) -> str:
    """Return a metric's word without plural or number: `loss` for `losses` and `loss2`.

    Other words are returned as they are.
    """
    known = {part for name in _metrics() for part in name}
    stems = (word.removesuffix("s"), word.removesuffix("es"), word.rstrip("0123456789"))
    forms = (word, *stems, f"{word[:-3]}y")
    return next((form for form in forms if form in known), word)


def trend_of(values: Sequence[float]) -> str | None:
    """Return `minimize` for a series that mostly falls, and `maximize` for one that mostly rises.

    None for fewer than three values and for a series without trend.
    """
    steps = [later - earlier for earlier, later in pairwise(values) if later != earlier]
    if len(values) < _LEAST_OF_TREND or not steps or values[-1] == values[0]:
        return None
    falls = values[-1] < values[0]
    share = sum((step < 0) == falls for step in steps) / len(steps)
    if share < _TREND_SHARE:
        return None
    return "minimize" if falls else "maximize"
