"""Student's t distribution for whole degrees of freedom, without SciPy.

The series are 26.7.3 and 26.7.4 of Abramowitz and Stegun, Handbook of Mathematical Functions
(1964), which end after half as many terms as there are degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

#: More halvings do not change a float.
_HALVINGS = 200


def two_sided_p(t: float, degrees: int) -> float:
    """The probability that |T| is at least |t|, where T has Student's t distribution.

    Args:
        degrees: of freedom, 1 or more.
    """
    theta = math.atan2(abs(t), math.sqrt(degrees))
    sine, cosine = math.sin(theta), math.cos(theta)
    term, total = (cosine, 0.0) if degrees % 2 else (1.0, 0.0)
    for k in range(degrees % 2, degrees, 2):
        total += term
        term *= cosine**2 * (k + 1) / (k + 2)
    within = (theta + sine * total) * 2 / math.pi if degrees % 2 else sine * total
    # 1 - within loses digits for a large t, but nothing here depends on so small a p.
    return min(1.0, max(0.0, 1.0 - within))


def two_sided_t(share: float, degrees: int) -> float:
    """The t that |T| stays below with probability `share`, such as 0.95."""
    low, high = 0.0, 1.0
    while 1.0 - two_sided_p(high, degrees) < share:
        high *= 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if 1.0 - two_sided_p(middle, degrees) < share:
            low = middle
        else:
            high = middle
    return high


def paired_p(differences: Sequence[float]) -> float | None:
    """The p-value of Student's paired t-test (Student: The Probable Error of a Mean, 1908).

    Args:
        differences: between two things that were measured under the same conditions, one for each
            condition.

    Returns:
        how likely differences with a mean this far from 0 are where the true mean is 0; None for
        fewer than two differences.
    """
    n = len(differences)
    if n < 2:
        return None
    error = standard_deviation(differences) / math.sqrt(n)
    if error == 0:
        return 1.0 if differences[0] == 0 else 0.0
    return two_sided_p(mean_of(differences) / error, n - 1)


def standard_deviation(values: Sequence[float]) -> float:
    """The standard deviation of a sample of two or more values, with n - 1 in the denominator."""
    mean = mean_of(values)
    largest = max(abs(value - mean) for value in values)
    if len(set(values)) == 1 or largest == 0:
        return 0.0  # and not what rounding leaves
    # Scaled, because the square of a large score would overflow.
    squares = math.fsum(((value - mean) / largest) ** 2 for value in values)
    return largest * math.sqrt(squares / (len(values) - 1))


def mean_of(values: Sequence[float]) -> float:
    """The mean of one or more values."""
    if len(set(values)) == 1:
        return values[0]
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return math.fsum(value / len(values) for value in values)
