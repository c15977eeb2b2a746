"""The params of the runs with which a sweep is checked."""

from __future__ import annotations

import pytest
from studies import small_settings

from sweeper.control.checking.corners import largest_params, random_params, typical_params

SPACE = {
    "lr": {"low": 1e-4, "high": 1e-2, "log": True},
    "width": {"low": 16, "high": 100, "step": 32},
    "batch": [32, 256, 64],
    "kind": ["a", "b"],
    "deep": {"low": 1, "high": 9, "when": {"kind": "b"}},
}


def test_a_typical_trial_has_the_values_of_start_then_of_the_notebook_then_the_middle() -> None:
    start = [{"lr": 3e-3, "kind": "b"}]
    settings = small_settings("corners", space=SPACE, start=start)
    source = "lr = 1e-3; width = 48\nbatch = 7  # outside\ndeep = depth()"
    source = source.replace("; ", "\n")
    assert typical_params(settings, source) == {
        "lr": 3e-3,
        "width": 48,
        "batch": 32,
        "kind": "b",
        "deep": 5,
    }
    plain = small_settings("corners", space=SPACE)
    assert typical_params(plain, "")["lr"] == pytest.approx(1e-3)  # the middle of its scale


def test_the_largest_trial_has_the_greatest_sizes_that_the_space_has() -> None:
    settings = small_settings("corners", space=SPACE)
    typical = typical_params(settings, "kind = 'b'")
    largest = largest_params(settings, typical)
    assert largest == {**typical, "width": 80, "batch": 256, "deep": 9}


def test_random_params_are_in_the_space_and_repeat_for_a_seed() -> None:
    settings = small_settings("corners", space=SPACE)
    drawn = [random_params(settings, seed) for seed in range(50)]
    for params in drawn:
        settings.check_params(params)
    assert drawn == [random_params(settings, seed) for seed in range(50)]
    assert {params["kind"] for params in drawn} == {"a", "b"}
    assert {params["width"] for params in drawn} == {16, 48, 80}
