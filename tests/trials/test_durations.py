"""How long a sweep will still take, by the params of its trials."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

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


def drawn(rng: random.Random) -> tuple[Params, float]:
    """Params of a usual notebook, and what it takes: epochs and steps, and a slower optimizer."""
    epochs, batch_size = rng.choice([2, 4, 8, 16]), rng.choice([16, 32, 64, 128])
    params: Params = {
        "epochs": epochs,
        "batch_size": batch_size,
        "lr": 10 ** rng.uniform(-4, -1),
        "dropout": rng.choice([0.0, 0.2, 0.5]),
        "optimizer": rng.choice(["sgd", "adam"]),
    }
    slower = 1.5 if params["optimizer"] == "adam" else 1.0
    seconds = 5 + 100 * epochs / batch_size * slower
    return params, seconds * rng.uniform(0.95, 1.05)


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


def test_running_trials_are_expected_to_take_what_their_params_let_expect() -> None:
    rng = random.Random(3)
    records = [ended(n, *drawn(rng)) for n in range(24)]
    errors = []
    for _ in range(40):
        params, seconds = drawn(rng)
        found = seconds_left(records, [runs(params)], to_start=0, at_once=1)
        assert found is not None
        errors.append(abs(found / seconds - 1))
    assert sorted(errors)[len(errors) // 2] < 0.15
    mean_s = sum(record.duration_s for record in records) / len(records)
    long: Params = {"epochs": 16, "batch_size": 16, "lr": 0.01, "dropout": 0.0, "optimizer": "adam"}
    found = seconds_left(records, [runs(long)], to_start=0, at_once=1)
    assert found is not None
    assert found > 2 * mean_s


def test_after_ten_of_forty_trials_the_rest_is_known_within_thirty_percent() -> None:
    errors = []
    for seed in range(30):
        rng = random.Random(seed)
        trials = [drawn(rng) for _ in range(40)]
        # Four slots: at the time when ten have ended, four are half done.
        records = [ended(n, *trial) for n, trial in enumerate(trials[:10])]
        running = [runs(params, seconds / 2) for params, seconds in trials[10:14]]
        left_s = sum(s for _, s in trials[10:14]) / 2 + sum(s for _, s in trials[14:])
        found = seconds_left(records, running, to_start=26, at_once=4)
        assert found is not None
        errors.append(abs(found / (left_s / 4) - 1))
    assert sorted(errors)[len(errors) // 2] < 0.3


def test_a_trial_that_is_late_has_a_part_of_its_time_left() -> None:
    records = [ended(n, {"x": n}, 10.0) for n in range(8)]
    found = seconds_left(records, [runs({"x": 3}, 100.0)], to_start=0, at_once=1)
    assert found == pytest.approx(1.0)


def test_pruned_trials_shorten_what_is_expected_of_those_that_run() -> None:
    records = [ended(n, {"x": n}, 10.0) for n in range(8)]
    records += [ended(n, {"x": n}, 2.0, TrialState.PRUNED) for n in range(8, 16)]
    found = seconds_left(records, [runs({"x": 3})], to_start=0, at_once=1)
    assert found == pytest.approx(6.0, rel=0.05)


def test_params_of_branches_and_values_that_nobody_had_are_no_obstacle() -> None:
    kinds: list[Any] = ["a", "b", None, [1, 2], True, float("nan")]
    records = [ended(n, {"kind": kinds[n % 6], "x": -n}, 10.0) for n in range(12)]
    running = [runs({"kind": "new", "deep": 3}), runs({}), runs({"x": 10**400})]
    found = seconds_left(records, running, to_start=0, at_once=3)
    assert found == pytest.approx(10.0, rel=0.5)


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
