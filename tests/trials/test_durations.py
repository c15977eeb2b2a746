"""How long a sweep will still take, by what its trials took."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sweeper.trials import Params, Progress, TrialRecord, TrialState
from sweeper.trials.durations import mean_at_once, seconds_left


def ended(
    number: int, params: Params, duration_s: float, state: TrialState = TrialState.COMPLETED
) -> TrialRecord:
    return TrialRecord(
        number=number,
        state=state,
        params=params,
        seed=0,
        attempt=1,
        notebook=Path("nb.ipynb"),
        started_at_s=1000.0 + number,
        duration_s=duration_s,
    )


def runs(params: Params, elapsed_s: float = 0.0) -> Progress:
    return Progress(
        run_id="0099",
        params=params,
        attempt=1,
        cell=1,
        cells=3,
        step=None,
        metrics={},
        elapsed_s=elapsed_s,
        memory_bytes=None,
    )


def test_nothing_is_expected_before_a_trial_has_ended() -> None:
    assert seconds_left([], [runs({"x": 1})], to_start=9, at_once=2) is None
    failed = ended(0, {"x": 1}, 3.0, TrialState.FAILED)
    assert seconds_left([failed], [], to_start=9, at_once=2) is None


def test_a_few_trials_let_expect_their_mean() -> None:
    records = [ended(0, {"x": 1}, 10.0), ended(1, {"x": 2}, 20.0)]
    assert seconds_left(records, [], to_start=4, at_once=2) == pytest.approx(30.0)
    assert seconds_left(records, [runs({"x": 9}, 10.0)], to_start=0, at_once=2) == pytest.approx(
        5.0
    )
    assert seconds_left(records, [], to_start=0, at_once=2) == 0.0


def test_the_latest_half_of_the_trials_says_how_long_the_others_take() -> None:
    took_s = [10.0] * 10 + [100.0] * 10
    records = [ended(number, {}, seconds) for number, seconds in enumerate(took_s)]
    assert seconds_left(records, [], to_start=1, at_once=1) == pytest.approx(100.0)


def test_a_trial_that_is_late_has_a_part_of_its_time_left() -> None:
    records = [ended(n, {"x": n}, 10.0) for n in range(8)]
    found = seconds_left(records, [runs({"x": 3}, 100.0)], to_start=0, at_once=1)
    assert found == pytest.approx(1.0)


def test_trials_that_wait_for_a_gpu_let_expect_fewer_at_once_than_there_are_slots() -> None:
    now_s = time.time()
    records = [
        TrialRecord(
            number=n,
            state=TrialState.COMPLETED,
            params={},
            seed=0,
            attempt=1,
            notebook=Path("nb.ipynb"),
            started_at_s=now_s - 99,
            duration_s=25.0,
        )
        for n in range(8)
    ]
    found = mean_at_once(records, [], since_s=now_s - 100, jobs=4)
    assert found == pytest.approx(2.0, rel=0.1)
    assert mean_at_once(records[:3], [], since_s=now_s - 100, jobs=4) == 4.0  # too few to say
    assert mean_at_once(records, [], since_s=now_s - 1, jobs=4) == 4.0  # of an earlier sweep
