"""Test that trials have the same seeds in every version of the package."""

from __future__ import annotations

from sweeper.search.seeds import trial_seed


def test_a_trial_has_the_same_seed_in_every_version_of_this_package() -> None:
    seeds = [trial_seed(1, number) for number in (0, 1, 39)]
    assert seeds == [342625015, 1364484195, 1574472841]
