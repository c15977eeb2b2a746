"""Find sources in a notebook that give different values of one score, and describe them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal

from ..notebooks.scores import Given
from ..trials import Disagreement, ScoreRank

#: Two values are the same score if their relative difference is at most this number (chosen, not
#: measured). A sum in float32 in another order differs by 1e-6, and a number printed with `.4g` by
#: 5e-4.
_ROUNDING = 1e-3
#: A value equals a point of a series if their relative difference is at most this number (chosen,
#: not measured). Rounding to a float32 causes such a difference.
_SAME_POINT = 1e-5


def disagreements(name: str, given: Sequence[Given]) -> list[Disagreement]:
    """List the sources that give a score another value than the first source.

    Differences by rounding do not count. A final value agrees with a series if it is a value of the
    series or the mean of the series.

    Args:
        name: Name of the score.
        given: Values from each source. The source that counts comes first.
    """
    first = given[0]
    return [
        Disagreement(
            name=name,
            source=first.source,
            value=first.value,
            other=other.source,
            other_value=other.value,
        )
        for other in given[1:]
        if not _agree(first, other)
    ]


def disagreements_in_words(found: Mapping[str, Sequence[Disagreement]]) -> list[str]:
    """Return one sentence for each pair of sources that disagree, with the number of trials.

    Args:
        found: Disagreements of each trial, by run id.
    """
    by_pair: dict[tuple[str, str, str], list[tuple[str, Disagreement]]] = {}
    for run_id, of_trial in sorted(found.items()):
        for disagreement in of_trial:
            key = (disagreement.name, disagreement.source, disagreement.other)
            by_pair.setdefault(key, []).append((run_id, disagreement))
    sentences = []
    for (name, _, _), trials in by_pair.items():
        run_id, disagreement = trials[0]
        noun = "trial" if len(trials) == 1 else "trials"
        sentences.append(
            f"{name} has two values in {len(trials)} {noun}, such as {run_id}: {disagreement}; the "
            "first counts"
        )
    return sentences


def _agree(first: Given, other: Given) -> bool:
    if _is_point_of(first.value, other) or _is_point_of(other.value, first):
        return True
    is_printed = any(given.rank is ScoreRank.NAMED and given.points for given in (first, other))
    for mine in _summaries(first):
        for theirs in _summaries(other):
            if _is_same(mine, theirs, is_printed=is_printed):
                return True
    return False


def _summaries(given: Given) -> set[float]:
    """Return all numbers from a source that the notebook's author may have meant as the score.

    These are its final value, and the last, smallest, greatest and mean value of its points. Points
    that are NaN do not count. There is no mean if a point is infinite. Without points, only the
    final value is returned.
    """
    values = [value for _, value in given.points if not math.isnan(value)]
    if not values:
        return {given.value}
    found = {given.value, values[-1], min(values), max(values)}
    if all(map(math.isfinite, values)):
        found.add(math.fsum(values) / len(values))
    return found


def _is_point_of(value: float, given: Given) -> bool:
    return any(math.isclose(value, point, rel_tol=_SAME_POINT) for _, point in given.points)


def _is_same(first: float, second: float, *, is_printed: bool) -> bool:
    """Return whether two values are the same score, up to rounding.

    Args:
        first: One value.
        second: The other value.
        is_printed: Whether one of the values was printed, perhaps with few digits or in percent.
    """
    if math.isnan(first) and math.isnan(second):
        return True
    if math.isclose(first, second, rel_tol=_ROUNDING):
        return True
    if not is_printed or not math.isfinite(first) or not math.isfinite(second):
        return False
    for one, other in ((first, second), (100 * first, second), (first, 100 * second)):
        if abs(one - other) <= max(_last_digit(one), _last_digit(other)):
            return True
    return False


def _last_digit(value: float) -> float:
    """Return the size of one unit in the last digit of a number: 0.01 for 0.25."""
    exponent = Decimal(repr(value)).as_tuple().exponent
    return 10.0**exponent if isinstance(exponent, int) else 0.0
