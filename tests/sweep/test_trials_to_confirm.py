"""Test which trials of a search run again on fresh seeds."""

from __future__ import annotations

import pytest
from studies import small_settings, trial_record

from sweeper.sweep.confirming import trials_to_confirm

SPACE = {"x": {"low": 0.0, "high": 1.0}, "y": {"low": 0.0, "high": 1.0}}


def test_the_next_best_trial_is_confirmed_in_place_of_one_that_the_parameters_file_excludes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = [{"x": 0.1}, {"x": 0.2, "y": 0.5}, {"x": 3.0, "y": 0.5}, {"x": 0.3, "y": 0.5}]
    scores = [0.9, 0.8, 0.7, 0.6]
    records = [
        trial_record(number, params=params, scores={"val": score})
        for number, (params, score) in enumerate(zip(found, scores, strict=True))
    ]
    settings = small_settings("s", space=SPACE)
    best = trials_to_confirm(settings, records, count=2)
    assert [record.number for record in best] == [1, 3]
    before_y, outside = (record.getMessage() for record in caplog.records)
    assert "trial 0000" in before_y and "before y was swept" in before_y
    assert "trial 0002" in outside and "outside the space" in outside


def test_trials_outside_the_space_are_not_reported_if_enough_better_trials_are_confirmed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    params = [{"x": 0.5}, {"x": 3.0}]
    records = [
        trial_record(number, params=its, scores={"val": -number})
        for number, its in enumerate(params)
    ]
    (best,) = trials_to_confirm(small_settings("s"), records, count=1)
    assert (best.number, caplog.records) == (0, [])
