"""Student's t distribution against the values of printed tables."""

from __future__ import annotations

import math

import pytest

from sweeper.trials.student_t import (
    mean_of,
    paired_p,
    standard_deviation,
    two_sided_p,
    two_sided_t,
)


@pytest.mark.parametrize(
    ("degrees", "t"),
    [(1, 12.706205), (2, 4.302653), (3, 3.182446), (4, 2.776445), (9, 2.262157), (30, 2.042272)],
)
def test_the_quantiles_are_those_of_the_tables(degrees: int, t: float) -> None:
    assert two_sided_t(0.95, degrees) == pytest.approx(t, abs=1e-6)
    assert two_sided_p(-t, degrees) == pytest.approx(0.05, abs=1e-7)


def test_no_difference_has_the_p_value_1_and_a_great_one_nearly_0() -> None:
    assert two_sided_p(0.0, 3) == 1.0
    assert 0.0 <= two_sided_p(1e9, 3) < 1e-12


def test_a_paired_test_is_that_of_students_paper() -> None:
    # Additional hours of sleep by two drugs for ten patients: t = 4.0621 with 9 degrees.
    differences = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    assert paired_p(differences) == pytest.approx(0.00283, abs=5e-6)


def test_differences_that_are_all_the_same_leave_no_doubt() -> None:
    assert paired_p([0.1, 0.1, 0.1]) == 0.0
    assert paired_p([0.0, 0.0]) == 1.0
    assert paired_p([0.3]) is None


def test_equal_values_have_no_spread_and_large_ones_a_finite_one() -> None:
    assert standard_deviation([0.1, 0.1, 0.1]) == 0.0
    assert standard_deviation([1.0, 3.0]) == pytest.approx(math.sqrt(2))
    assert math.isfinite(standard_deviation([1e300, -1e300]))
    assert mean_of([1.7e308, 1.6e308]) == pytest.approx(1.65e308)
