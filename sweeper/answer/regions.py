"""Find the part of the space in which some trials are, such as the best tenth of them.

A range is reported only if so narrow a range would not come about by chance: the test counts the
ways in which as many trials could be chosen from all trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import comb, log
from typing import Any

from ..settings.space import AnyDimension, ChoiceDimension, SearchSpace
from ..trials import NumberRange, Region, TrialRecord, Value, ValueSet, value_text

#: A range is reported if it would come about by chance with less than this probability, divided by
#: the number of params (chosen).
_LEVEL = 0.01
#: The best tenth of the trials, but at least this number (chosen): fewer have narrow ranges by
#: chance.
_FEWEST_BEST = 5
#: With fewer completed trials, the best ones are not a tenth of them (chosen).
_FEWEST_TRIALS = 20
#: Fewer failed trials have no region (chosen).
_FEWEST_FAILED = 3
#: A range ends at an end of the space if the gap between them is less than this share of the space
#: (chosen).
_GAP = 0.05


def best_region(
    completed: Sequence[TrialRecord], objective: str, *, sign: int, space: SearchSpace
) -> Region | None:
    """Return where the best tenth of the completed trials are. None if they are everywhere.

    Args:
        completed: Completed trials with finite scores.
        objective: Name of the score.
        sign: 1 if the score is maximized, -1 if it is minimized.
        space: Search space, for the ends of the ranges.
    """
    if len(completed) < _FEWEST_TRIALS:
        return None
    count = max(_FEWEST_BEST, round(len(completed) / 10))
    ordered = sorted(completed, key=lambda record: -sign * record.scores[objective])
    # Trials with the same score as the last one of the best are as good.
    last = ordered[count - 1].scores[objective]
    best = [record for record in ordered if sign * record.scores[objective] >= sign * last]
    return _region(best, completed, space)


def failed_region(
    failed: Sequence[TrialRecord], ended: Sequence[TrialRecord], *, space: SearchSpace
) -> Region | None:
    """Return where the failed trials are. None if they are everywhere, or too few."""
    return _region(failed, ended, space) if len(failed) >= _FEWEST_FAILED else None


def _region(
    chosen: Sequence[TrialRecord], trials: Sequence[TrialRecord], space: SearchSpace
) -> Region | None:
    names = [name for name in chosen[0].params if all(name in r.params for r in trials)]
    parts = []
    inside = list(trials)
    for name in names:
        part = _part(name, chosen, trials, level=_LEVEL / len(names))
        if part is None:
            continue
        parts.append(_with_open_end(part, space.get(name)))
        inside = [record for record in inside if _is_in(record.params[name], part)]
    if not parts:
        return None
    return Region(trials=len(chosen), inside=len(inside), of=len(trials), parts=parts)


def _part(
    name: str, chosen: Sequence[TrialRecord], trials: Sequence[TrialRecord], *, level: float
) -> NumberRange | ValueSet | None:
    """Return what the values of chosen trials have in common. None if it may be chance."""
    own: list[Any] = [record.params[name] for record in chosen]
    tried: list[Any] = [record.params[name] for record in trials]
    n_all, n_chosen = len(trials), len(chosen)
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in tried):
        found: NumberRange | ValueSet = NumberRange(
            param=name, low=min(own), high=max(own), tried_low=min(tried), tried_high=max(tried)
        )
        n_inside = sum(_is_in(value, found) for value in tried)
        chance = sum(
            (n_all - span) * comb(span - 1, n_chosen - 2) for span in range(n_chosen - 1, n_inside)
        ) / comb(n_all, n_chosen)
    else:
        found = ValueSet(param=name, values=_distinct(own))
        n_inside, n_values = sum(_is_in(value, found) for value in tried), len(_distinct(tried))
        ways = comb(n_values, len(found.values))
        chance = ways * comb(n_inside, n_chosen) / comb(n_all, n_chosen)
    return found if chance < level and n_inside < n_all else None


def _with_open_end(
    part: NumberRange | ValueSet, dimension: AnyDimension | None
) -> NumberRange | ValueSet:
    """Return a range that says at which end of the search space it ends, if it does at one."""
    if isinstance(part, ValueSet) or dimension is None or isinstance(dimension, ChoiceDimension):
        return part
    scale = log if dimension.log else float
    low, high = scale(dimension.low), scale(dimension.high)
    is_at_low = scale(part.low) - low < _GAP * (high - low)
    is_at_high = high - scale(part.high) < _GAP * (high - low)
    if is_at_low == is_at_high:
        return part
    return replace(part, open_end="low" if is_at_low else "high")


def _is_in(value: Any, part: NumberRange | ValueSet) -> bool:
    if isinstance(part, ValueSet):
        return value_text(value) in map(value_text, part.values)
    return bool(part.low <= value <= part.high)


def _distinct(values: Sequence[Value]) -> list[Value]:
    return [*{value_text(value): value for value in values}.values()]
