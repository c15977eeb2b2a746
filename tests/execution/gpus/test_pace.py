"""How many trials at once get most done on a GPU, found from how fast each one steps."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from sweeper.execution.gpus.measures.pace import Pace
from sweeper.trials import RunningTrial

STEPS = 1000


@dataclass
class Trial:
    """A trial that makes one step per second where nobody is in its way."""

    running: RunningTrial
    done: float = 0.0


def sweep(
    speeds: Sequence[float],
    *,
    trials: int = 40,
    steps: int = STEPS,
    apart_s: int = 0,
    pace: Pace | None = None,
    began_s: float = 0.0,
) -> tuple[Pace, list[int], float]:
    """Run trials on a GPU where n of them go at `speeds[n - 1]` each.

    Args:
        apart_s: how long after another trial one may begin.

    Returns:
        the pace, how many trials there were in each second, and the seconds.
    """
    pace = pace or Pace(window_s=20)
    on: list[Trial] = []
    counts: list[int] = []
    now_s, last_s, to_begin = began_s, -1e9, trials
    while on or to_begin:
        may = min(len(speeds), pace.limit)
        while to_begin and len(on) < may and now_s - last_s >= apart_s:
            on.append(Trial(RunningTrial()))
            to_begin, last_s = to_begin - 1, now_s
        now_s += 1
        counts.append(len(on))
        for trial in on:
            trial.done += speeds[len(on) - 1]
            while trial.running.steps < int(trial.done):
                trial.running.steps += 1
                trial.running.stepped_at_s = now_s
        pace.look([trial.running for trial in on], now_s)
        for trial in [trial for trial in on if trial.done >= steps]:
            pace.ended(trial.running, len(on), now_s)
            on.remove(trial)
    return pace, counts, now_s - began_s


#: Each neighbour beyond two slows all trials by 35 %.
CROWDED = [1.0, 1.0, 0.65, 0.42]


@pytest.mark.parametrize("apart_s", [0, 60])
def test_where_fewer_trials_get_more_done_no_more_run_at_once(apart_s: int) -> None:
    pace, counts, took_s = sweep(CROWDED, apart_s=apart_s)
    # Two at once get 3 % more done than three, which is too little to tell.
    assert set(counts[len(counts) // 2 : -2 * STEPS]) <= {2, 3}
    assert statistics.mode(counts) == 3
    best_s = 40 * STEPS / 2  # two at once, from the beginning
    assert took_s < 1.1 * best_s
    assert "at most 3 trials share a GPU: 4 at once got 14% less done" in pace.finding


def test_the_first_probe_is_enough_where_trials_do_not_end_at_once() -> None:
    _, counts, _ = sweep(CROWDED, apart_s=15)
    probed = counts.index(3, counts.index(4))
    assert 4 not in counts[probed:], "two trials have then been watched as three and as four"


@pytest.mark.parametrize(
    "speeds",
    [
        [1.0, 0.8, 0.65, 0.55],  # each one is slower, and together they get more done
        [1.0, 0.5, 0.34, 0.25],  # the GPU is full with one
    ],
)
def test_trials_that_only_slow_each_other_down_are_not_held_back(speeds: list[float]) -> None:
    pace, counts, took_s = sweep(speeds)
    assert pace.finding == ""
    assert took_s < 1.03 * 40 * STEPS / (4 * speeds[3])
    assert statistics.mode(counts) == 4


def test_trials_that_one_was_no_faster_without_are_never_probed() -> None:
    _, counts, _ = sweep([1.0] * 4, apart_s=30)
    alone, last = counts.index(4), len(counts) - counts[::-1].index(4)
    assert set(counts[alone + 30 : last]) <= {3, 4}
    assert counts[alone:last].count(3) < 4 * 40, "a slot is empty only until 30 s have passed"


def test_short_trials_and_trials_without_steps_are_never_held_back() -> None:
    _, counts, _ = sweep(CROWDED, steps=30)
    assert set(counts[:-60]) == {4}
    still = Pace(window_s=20)
    running = [RunningTrial() for _ in range(4)]
    for now_s in range(5000):
        still.look(running, float(now_s))
    still.ended(running[0], 4, 5000.0)
    assert still.limit == float("inf")


def test_the_question_is_asked_anew_after_many_trials() -> None:
    pace, _, took_s = sweep(CROWDED)
    _, counts, _ = sweep([1.0] * 4, trials=100, pace=pace, began_s=took_s)
    assert statistics.mode(counts[:10_000]) == 3
    assert statistics.mode(counts[-10_000:]) == 4
