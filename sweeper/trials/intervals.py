"""Intervals of means, and whether two samples show that their means differ."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

# `statistics` is imported where it is used, as it takes a tenth of the command `status`.

#: The part of the intervals that have the true mean in them.
CONFIDENCE = 0.95


def half_interval(values: Sequence[float]) -> float:
    """Half of the 95 % interval of the mean of two values or more, by Student's t distribution."""
    from statistics import variance

    return _t(len(values) - 1) * math.sqrt(variance(values) / len(values))


def differ(first: Iterable[tuple[int, float]], second: Iterable[tuple[int, float]]) -> bool:
    """Whether two samples show, at the level of 5 %, that their means differ.

    By a paired t test where both have one score on each of the same seeds, else by Welch's.

    Args:
        first: seeds with scores, two or more; likewise the second.
    """
    from statistics import fmean, variance

    (seeds, a), (others, b) = (zip(*sorted(pairs), strict=True) for pairs in (first, second))
    if seeds == others and len({*seeds}) == len(seeds):
        differences = [one - other for one, other in zip(a, b, strict=True)]
        return abs(fmean(differences)) > half_interval(differences)
    parts = [(variance(its) / len(its), len(its) - 1) for its in (a, b)]
    if not (error := sum(part for part, _ in parts)):
        return fmean(a) != fmean(b)
    degrees = error**2 / sum(part**2 / df for part, df in parts)
    return abs(fmean(a) - fmean(b)) > _t(degrees) * math.sqrt(error)


def _t(degrees: float) -> float:
    """The quantile of Student's t distribution that bounds the intervals."""
    from scipy.special import stdtrit  # its quantiles; scipy.stats is imported in ten times as long

    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))
