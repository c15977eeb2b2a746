"""What trials are expected to take of a GPU, and which of them are run again with more."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.execution.gpus import CONTEXT_BYTES
from sweeper.sweep.scheduling.gpu_memory import TakenMemory
from sweeper.sweep.scheduling.gpu_needs import GpuNeeds
from sweeper.testing import trial_spec
from sweeper.trials import (
    GpuNeed,
    GpuUse,
    Params,
    Reason,
    RunningTrial,
    SettledMemory,
    TrialOutcome,
    TrialRecord,
    TrialState,
)

GB = 10**9


def record(params: Params, peak_bytes: int | None, state: str = "completed") -> TrialRecord:
    return TrialRecord(
        number=0,
        state=TrialState(state),
        params=params,
        seed=0,
        attempt=1,
        notebook=Path("0000.ipynb"),
        gpu=None if peak_bytes is None else GpuUse(peak_bytes=peak_bytes),
    )


def short(peak_bytes: int = 0) -> TrialOutcome:
    return TrialOutcome(
        state=TrialState.FAILED,
        reason=Reason.OUT_OF_MEMORY,
        message="cell 3: OutOfMemoryError: CUDA out of memory.",
        gpu=GpuUse(peak_bytes=peak_bytes),
    )


# --- what is expected ----------------------------------------------------------------------------


def test_nothing_is_expected_before_a_trial_has_ended() -> None:
    needs = GpuNeeds(None)
    needs.note(record({"lr": 0.1}, None))
    needs.note(record({"lr": 0.1}, 5 * GB, "failed"))
    assert needs.need(record({"lr": 0.1}, None)) == GpuNeed()


def test_a_learning_rate_moves_no_memory() -> None:
    taken: list[tuple[Params, int]] = [({"lr": 0.1, "momentum": 0.9}, 8 * GB)]
    expected = TakenMemory(taken).expected_bytes({"lr": 3e-4, "momentum": 0.5})
    assert expected is not None
    assert 8 * GB < expected < 9 * GB


def test_the_same_params_are_expected_to_take_what_they_took() -> None:
    taken: list[tuple[Params, int]] = [({"batch": 64}, 8 * GB), ({"batch": 64}, 9 * GB)]
    expected = TakenMemory(taken).expected_bytes({"batch": 64})
    assert expected is not None
    assert 9 * GB < expected < 9.5 * GB


@pytest.mark.parametrize(
    ("now", "least_gb", "most_gb"),
    [
        ({"batch": 128, "width": 32}, 16, 18),
        ({"batch": 32, "width": 32}, 8, 9),  # a part of the memory is not the batch's
        ({"batch": 128, "width": 64}, 32, 36),
        ({"batch": 64, "width": 32, "amp": True}, 12, 14),
    ],
)
def test_a_larger_trial_is_expected_to_take_more_by_the_sizes_that_grow(
    now: Params, least_gb: float, most_gb: float
) -> None:
    expected = TakenMemory([({"batch": 64, "width": 32}, 8 * GB)]).expected_bytes(now)
    assert expected is not None
    assert least_gb * GB <= expected <= most_gb * GB


@pytest.mark.parametrize("seed", range(5))
def test_after_some_trials_no_trial_takes_more_than_expected_and_most_nearly_as_much(
    seed: int,
) -> None:
    """Memory as a notebook takes it: weights, and activations by batch, in steps of 20 MB."""
    rng = random.Random(seed)

    def trial() -> tuple[Params, int]:
        batch, optimizer = rng.choice([32, 64, 128, 256]), rng.choice(["sgd", "adam"])
        params: Params = {"batch": batch, "optimizer": optimizer, "lr": rng.uniform(1e-4, 1e-1)}
        exact = 0.5 * GB + 0.02 * GB * batch + (0.2 * GB if optimizer == "adam" else 0)
        return params, -int(-exact // (20 * 2**20)) * 20 * 2**20

    taken = [trial() for _ in range(20)]
    above = []
    for params, peak in [trial() for _ in range(200)]:
        expected = TakenMemory(taken).expected_bytes(params)
        assert expected is not None
        above.append(expected / peak)
    assert min(above) >= 1
    assert sorted(above)[100] < 1.2


@pytest.mark.parametrize("square", [0.0, 0.1, 0.25])
def test_below_two_sizes_a_trial_takes_no_more_than_where_memory_grows_with_their_square(
    square: float,
) -> None:
    """Memory of 4 GB, and of a size in proportion and by its square: 6 GB more from 5 to 7."""

    def exact(size: int) -> float:
        return (4 + square * size**2 + (3 - 12 * square) * size) * GB

    taken: list[tuple[Params, int]] = [
        ({"size": size, "lr": 0.1 / size}, round(exact(size))) for size in (7, 5)
    ]
    for size in (1, 2, 3, 4):
        expected = TakenMemory(taken).expected_bytes({"size": size, "lr": 0.5}) or 0
        assert exact(size) < expected < 1.1 * exact(5)
    other: Params = {"size": 1, "lr": 0.5, "optimizer": "adam"}
    assert (TakenMemory(taken).expected_bytes(other) or 0) > 1.1 * exact(5)


def test_where_a_fit_meets_all_trials_little_is_added_for_the_next() -> None:
    rates = [0.1, 0.03, 0.01, 0.003]
    taken: list[tuple[Params, int]] = [({"lr": lr}, 8 * GB) for lr in rates]
    # Before there are enough for a fit, a trial may differ from the others by more.
    assert TakenMemory(taken[:2]).expected_bytes({"lr": 0.05}) == pytest.approx(8.8 * GB)
    for known in (taken[:3], taken):
        assert TakenMemory(known).expected_bytes({"lr": 0.05}) == pytest.approx(8.04 * GB)
    uneven = [*taken[:3], ({"lr": 0.003}, 9 * GB)]
    assert (TakenMemory(uneven).expected_bytes({"lr": 0.003001}) or 0) > 9.2 * GB


def test_three_trials_on_a_line_show_what_those_between_them_take() -> None:
    taken: list[tuple[Params, int]] = [
        ({"batch": batch, "lr": lr}, (3 + batch) * GB) for batch, lr in ((8, 0.1), (2, 0.3), (4, 3))
    ]
    expected = TakenMemory(taken).expected_bytes
    assert expected({"batch": 6, "lr": 0.2}) == pytest.approx(1.005 * 9 * GB)
    # Beyond them the line may bend, and with two values of a param any two trials are on a line.
    assert expected({"batch": 16, "lr": 0.2}) == pytest.approx(1.1 * 19 * GB)
    two = [*taken[:2], ({"batch": 2, "lr": 0.01}, 5 * GB)]
    assert TakenMemory(two).expected_bytes({"batch": 6, "lr": 0.2}) == pytest.approx(1.1 * 11 * GB)


def test_a_line_that_misses_one_of_three_trials_shows_nothing() -> None:
    taken: list[tuple[Params, int]] = [
        ({"batch": n}, gb * GB) for n, gb in ((2, 2), (4, 5), (6, 6))
    ]
    assert TakenMemory(taken).expected_bytes({"batch": 5}) == pytest.approx(1.1 * 5 * GB)


def test_sizes_that_only_changed_together_show_nothing_of_one_alone() -> None:
    taken: list[tuple[Params, int]] = [
        ({"batch": n, "width": 2 * n}, (1 + 3 * n) * GB) for n in (1, 2, 3, 4)
    ]
    expected = TakenMemory(taken).expected_bytes({"batch": 2, "width": 8})
    assert expected == pytest.approx(1.1 * 13 * GB)


def test_more_is_added_where_trials_are_further_from_the_fit() -> None:
    uneven: list[tuple[Params, int]] = [
        ({"batch": n}, round((n + off) * 1e9)) for n, off in ((10, 0.0), (20, 0.05), (30, 0.0))
    ]
    expected = TakenMemory(uneven).expected_bytes({"batch": 25})
    assert expected is not None
    assert 1.005 * 25 * GB < expected < 1.02 * 25 * GB


def test_trials_that_come_one_by_one_let_expect_what_they_do_together() -> None:
    chance = random.Random(0)
    taken: list[tuple[Params, int]] = []
    known = TakenMemory()
    for number in range(150):
        kinds = ["a", "b", "c"] if number > 90 else ["a", "b"]  # a value that no trial had before
        params: Params = {"batch": chance.choice([16, 32, 64]), "kind": chance.choice(kinds)}
        expected = known.expected_bytes(params)
        assert expected == TakenMemory(taken).expected_bytes(params)
        taken.append((params, chance.randrange(10**9, 10**10)))
        known.add(*taken[-1])
        rate: Params = {**params, "lr": chance.random()}  # no trial had the same params
        assert known.expected_bytes(rate) == TakenMemory(taken).expected_bytes(rate)


def test_a_stated_memory_counts_whatever_was_measured() -> None:
    needs = GpuNeeds(9 * GB)
    needs.note(record({"lr": 0.1}, 20 * GB))
    assert needs.need(record({"lr": 0.1}, None)) == GpuNeed(memory_bytes=9 * GB + CONTEXT_BYTES)


def test_a_stated_memory_that_was_too_little_gives_way_to_what_was_measured() -> None:
    needs = GpuNeeds(4 * GB)
    needs.run_again(trial_spec(5, gpu_need=needs.need(record({"lr": 0.1}, None))), short(4 * GB))
    needs.note(record({"lr": 0.1}, 8 * GB))
    assert needs.need(record({"lr": 0.2}, None)).memory_bytes == pytest.approx(8.8 * GB)


# --- what running trials show --------------------------------------------------------------------


def begun(needs: GpuNeeds, number: int, batch: int) -> tuple[TrialRecord, RunningTrial]:
    """A trial that runs; nothing has been seen of its memory."""
    mine, running = replace(record({"batch": batch}, None), number=number), RunningTrial()
    needs.begin(mine, running)
    return mine, running


def settled(
    peak_gb: float, *, first_gb: float | None = None, may_grow: float = 0.0
) -> SettledMemory:
    first_bytes = round((peak_gb if first_gb is None else first_gb) * GB)
    return SettledMemory(first_bytes=first_bytes, peak_bytes=round(peak_gb * GB), may_grow=may_grow)


def test_a_running_trial_shows_what_others_need_by_the_sizes_that_grow() -> None:
    needs = GpuNeeds(None)
    first, running = begun(needs, 0, batch=4)
    larger, _ = begun(needs, 1, batch=8)
    assert needs.need(larger) == GpuNeed()
    running.gpu_memory = settled(8, may_grow=0.125)
    need = needs.need(larger)
    assert need.is_estimate
    assert need.memory_bytes == pytest.approx(1.1 * 2 * 9 * GB)
    running.gpu_memory = settled(8, may_grow=0.0125)
    assert needs.need(larger).memory_bytes == pytest.approx(1.1 * 2 * 8.1 * GB)
    assert needs.need(first).memory_bytes == pytest.approx(1.02 * 8.1 * GB)


def test_what_a_running_trial_may_still_grow_by_says_nothing_of_smaller_ones() -> None:
    needs = GpuNeeds(None)
    _, small = begun(needs, 0, batch=5)
    _, large = begun(needs, 1, batch=7)
    smaller, _ = begun(needs, 2, batch=1)
    small.gpu_memory, large.gpu_memory = settled(8), settled(11, may_grow=0.14)
    # 3 GB from 5 to 7 are 3.125 of the 8 GB at 5 by the square, and 0.125 at 1.
    assert needs.need(smaller).memory_bytes == pytest.approx(1.1 * 5 * GB)


def test_a_few_running_trials_show_what_any_size_takes() -> None:
    needs = GpuNeeds(None)
    for number, batch in enumerate((2, 4, 7)):
        _, running = begun(needs, number, batch=batch)
        running.gpu_memory = settled(1 + batch, may_grow=0.1 / (1 + number))
    for number, batch in enumerate((3, 6), start=3):
        between, _ = begun(needs, number, batch=batch)
        assert needs.need(between).memory_bytes == pytest.approx(1.02 * 1.1 * (1 + batch) * GB)


def test_a_running_trial_is_expected_to_grow_as_much_as_those_did_that_have_ended() -> None:
    needs = GpuNeeds(None)
    first, running = begun(needs, 0, batch=1)
    second, other = begun(needs, 1, batch=8)
    running.gpu_memory = settled(4, first_gb=2)
    other.gpu_memory = settled(5)
    needs.note(replace(first, state=TrialState.COMPLETED, gpu=GpuUse(peak_bytes=4 * GB)))
    need = needs.need(second)
    assert need.memory_bytes == pytest.approx(1.02 * 2 * 5 * GB)
    assert not need.is_estimate


def test_trials_of_an_earlier_sweep_do_not_show_how_much_a_running_one_will_grow() -> None:
    needs = GpuNeeds(None)
    needs.note(record({"batch": 1}, 4 * GB))
    mine, running = begun(needs, 1, batch=2)
    running.gpu_memory = settled(0.5)
    assert needs.need(mine).memory_bytes == pytest.approx(2 * 4.4 * GB)


def test_once_enough_trials_have_ended_running_ones_change_nothing() -> None:
    needs = GpuNeeds(None)
    mine, running = begun(needs, 0, batch=3)
    running.gpu_memory = settled(1)
    for number, batch in enumerate((1, 2, 4, 8), start=1):
        ended, seen = begun(needs, number, batch)
        seen.gpu_memory = settled(batch)
        needs.note(replace(ended, state=TrialState.COMPLETED, gpu=GpuUse(peak_bytes=batch * GB)))
    assert needs.need(mine) == GpuNeed(memory_bytes=round(1.005 * 3 * GB))


def test_a_running_trial_of_which_nothing_is_seen_shows_nothing_beside_others() -> None:
    """In a container the driver does not tell whose memory it is."""
    needs = GpuNeeds(None)
    _, first = begun(needs, 0, batch=1)
    mine, second = begun(needs, 1, batch=1)
    second.gpu_memory = settled(0)
    assert needs.need(mine) == GpuNeed(memory_bytes=0, is_estimate=True), "a notebook without a GPU"
    first.gpu_memory = settled(8)
    assert needs.need(mine).memory_bytes == pytest.approx(1.02 * 8 * GB)


def test_needs_are_asked_for_while_trials_begin_and_end() -> None:
    needs, ended = GpuNeeds(None), threading.Event()
    mine, _ = begun(needs, 9999, batch=5)

    def ask() -> int:
        count = 0
        while not ended.is_set() or not count:
            needs.need(mine)
            count += 1
        return count

    with ThreadPoolExecutor() as threads:
        asked = [threads.submit(ask) for _ in range(3)]
        for number in range(300):
            one, running = begun(needs, number, batch=1 + number % 8)
            running.gpu_memory = settled(1 + number % 8)
            gpu = GpuUse(peak_bytes=(1 + number % 8) * GB)
            needs.note(replace(one, state=TrialState.COMPLETED, gpu=gpu))
        ended.set()
    assert all(one.result() for one in asked)
    assert needs.need(mine).memory_bytes == pytest.approx(1.005 * 5 * GB)


# --- who is run again ----------------------------------------------------------------------------


def test_a_trial_that_ran_out_of_memory_gets_more_and_then_a_gpu_of_its_own() -> None:
    needs = GpuNeeds(None)
    needs.note(record({"lr": 0.1}, 8 * GB))
    mine = record({"lr": 0.1}, None)
    first = trial_spec(0, gpu_need=needs.need(mine))
    assert needs.run_again(first, short(9 * GB)) == "with 11.2 GB of its GPU"
    second = replace(first, gpu_need=needs.need(mine))
    assert second.gpu_need.memory_bytes == round(1.25 * 9 * GB)
    assert needs.run_again(second, short()) == "alone on its GPU"
    third = replace(first, gpu_need=needs.need(mine))
    assert third.gpu_need == GpuNeed(is_alone=True)
    assert needs.run_again(third, short()) is None, "no GPU has more for it"


def test_a_trial_that_was_expected_to_need_more_when_it_began_gets_more_than_that() -> None:
    needs = GpuNeeds(None)
    asked_for = trial_spec(0)  # nothing was known then
    had = GpuNeed(memory_bytes=8 * GB)
    outcome = replace(short(2 * GB), gpu_need=had)
    assert needs.run_again(asked_for, outcome) == "with 10.0 GB of its GPU"
    assert needs.run_again(asked_for, outcome) == "alone on its GPU"


def test_a_trial_that_ran_out_of_memory_gets_at_once_what_another_one_took() -> None:
    needs = GpuNeeds(None)
    needs.note(record({"lr": 0.1, "width": 64}, 4 * GB))
    small = trial_spec(1, gpu_need=needs.need(record({"lr": 0.2, "width": 64}, None)))
    needs.note(record({"lr": 0.3, "width": 256}, 12 * GB))
    assert needs.run_again(small, short(4 * GB)) == "with 12.2 GB of its GPU"


def test_a_trial_of_unknown_need_that_ran_out_of_memory_is_alone_next() -> None:
    needs = GpuNeeds(None)
    assert needs.run_again(trial_spec(0), short()) == "alone on its GPU"
    assert needs.need(record({}, None)) == GpuNeed(is_alone=True)


def test_memory_that_runs_out_without_a_gpu_is_a_failure() -> None:
    assert GpuNeeds(None).run_again(trial_spec(0), replace(short(), gpu=None)) is None
    failed = TrialOutcome(
        state=TrialState.FAILED, reason=Reason.CELL_ERROR, gpu=GpuUse(peak_bytes=1)
    )
    assert GpuNeeds(None).run_again(trial_spec(0), failed) is None
