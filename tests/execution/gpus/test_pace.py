"""How many trials at once get most done on a GPU, found from how fast each one steps."""

from __future__ import annotations

import re
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
    alone_s: int = 0,
    busy_share: float | None = None,
    pace: Pace | None = None,
    began_s: float = 0.0,
) -> tuple[Pace, list[int], float]:
    """Run trials on a GPU where n of them go at `speeds[n - 1]` each.

    Args:
        apart_s: how long after another trial one may begin.
        alone_s: how long the first one has the GPU for itself.
        busy_share: of the GPU's time, that is seen.

    Returns:
        the pace, how many trials there were in each second, and the seconds.
    """
    pace = pace or Pace(window_s=20)
    on: list[Trial] = []
    counts: list[int] = []
    now_s, last_s, to_begin = began_s, -1e9, trials
    while on or to_begin:
        may = min(len(speeds), pace.limit)
        if now_s - began_s < alone_s:
            may = 1
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
        pace.look([trial.running for trial in on], now_s, busy_share=busy_share)
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
    # 14 % with endless steps; each trial has made some ten.
    assert re.match(r"at most 3 trials .* 4 at once got 1[2-7]% less done than 3,", pace.finding)


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


def test_two_are_watched_before_others_join_a_trial_that_keeps_the_gpu_busy() -> None:
    pace, counts, took_s = sweep(CROWDED, alone_s=10, busy_share=0.9)
    first_four = counts.index(4)
    assert set(counts[10:first_four]) == {2}
    assert 20 <= first_four - 10 <= 25, "as long as a measurement takes"
    assert counts.count(4) < 3 * STEPS, "the first four trials show it, long before one ends"
    assert re.match(r"at most 3 .* 4 at once got 1[4-8]% less done than 2,", pace.finding)
    assert took_s < 1.05 * 40 * STEPS / 2


@pytest.mark.parametrize("busy_share", [0.3, None])
def test_others_join_at_once_where_the_gpu_is_not_seen_to_be_busy(busy_share: float | None) -> None:
    _, counts, _ = sweep(CROWDED, alone_s=10, busy_share=busy_share)
    assert counts[9:11] == [1, 4]


def test_others_join_at_once_where_steps_are_too_long_to_watch_two() -> None:
    slow = [speed / 15 for speed in CROWDED]
    _, counts, _ = sweep(slow, alone_s=40, busy_share=0.9, trials=4, steps=20)
    assert counts[39:41] == [1, 4]


def test_others_join_after_a_while_where_the_second_trial_shows_nothing() -> None:
    pace, first = Pace(window_s=20), RunningTrial()
    pace.look([], 0.0)  # trials on other GPUs only
    for now_s in range(1, 20):
        first.steps, first.stepped_at_s = now_s, float(now_s)
        pace.look([first], now_s, busy_share=0.9)
    assert pace.limit == 2
    second = RunningTrial()
    for now_s in range(20, 200):
        first.steps, first.stepped_at_s = now_s, float(now_s)
        pace.look([first, second], now_s, busy_share=0.9)
        if pace.limit > 2:
            break
    assert 60 <= now_s - 20 <= 65


def test_where_two_get_more_done_than_eight_half_of_those_between_run() -> None:
    crowded = [1.0, 1.0, 0.7, 0.55, 0.45, 0.35, 0.25, 0.2]
    pace, counts, _ = sweep(crowded, alone_s=10, busy_share=0.9)
    assert "at most 5 trials share a GPU: 8 at once got 20% less done than 2," in pace.finding
    assert counts.count(8) < 6 * STEPS, "only the first eight ran at once"
    assert statistics.mode(counts) in {4, 5}


def test_company_that_has_made_no_step_does_not_count() -> None:
    pace = Pace(window_s=20)
    first, second = RunningTrial(), RunningTrial()
    for now_s in range(1, 400):  # as fast in company, as long as that imports
        first.steps, first.stepped_at_s = now_s, float(now_s)
        pace.look([first] if now_s < 50 else [first, second], now_s)
    pace.ended(first, 2, 400.0)
    assert pace.limit == float("inf"), (
        "nothing is known of two, so that one is not compared with it"
    )
