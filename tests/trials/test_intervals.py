"""Intervals and tests of means agree with SciPy's."""

from __future__ import annotations

import random

import pytest
import scipy.stats

from sweeper.trials import differ, half_interval


@pytest.mark.parametrize("seed", range(20))
def test_samples_differ_where_the_t_test_that_fits_them_says_so(seed: int) -> None:
    rng = random.Random(seed)
    a = [rng.gauss(0, 1) for _ in range(5)]
    b = [rng.gauss(rng.choice([0.0, 1.5]), 0.5) for _ in range(5)]
    paired = differ(enumerate(a), enumerate(b))
    assert paired == (scipy.stats.ttest_rel(a, b).pvalue < 0.05)
    welch = differ(enumerate(a), enumerate(b[1:], 7))
    assert welch == (scipy.stats.ttest_ind(a, b[1:], equal_var=False).pvalue < 0.05)
    low, high = scipy.stats.t.interval(0.95, 4, scale=scipy.stats.sem(a))
    assert half_interval(a) == pytest.approx((high - low) / 2)


def test_samples_without_a_spread_differ_where_their_means_do() -> None:
    assert differ([(1, 2.0), (2, 2.0)], [(3, 1.0), (4, 1.0)])
    assert not differ([(1, 2.0), (2, 2.0)], [(3, 2.0), (4, 2.0)])
    assert not differ([(1, 2.0), (2, 3.0)], [(1, 2.0), (2, 3.0)])
