"""Trial records show whether a trial has ended for good, and how long further ones will take."""

from __future__ import annotations

import pytest
from studies import trial_record

from sweeper.trials import GpuUse, Progress, Reason, TrialRecord, TrialState
from sweeper.trials.durations import seconds_left


def ended(duration_s: float, state: TrialState = TrialState.COMPLETED) -> TrialRecord:
    return trial_record(duration_s=duration_s, state=state)


def runs(elapsed_s: float = 0.0, waits_for: str = "") -> Progress:
    return Progress(
        run_id="0099",
        params={},
        attempt=1,
        cell=1,
        cells=3,
        step=None,
        metrics={},
        elapsed_s=elapsed_s,
        memory_bytes=None,
        waits_for=waits_for,
    )


def test_the_time_left_is_unknown_before_a_trial_has_completed() -> None:
    assert seconds_left([], [runs()], to_start=9) is None
    assert seconds_left([ended(3.0, TrialState.FAILED)], [], to_start=9) is None


@pytest.mark.parametrize(
    ("running", "to_start", "expected_s"),
    [
        ([], 0, 0.0),
        ([], 4, 60.0),
        ([runs(), runs()], 2, 30.0),
        ([runs(10.0)], 0, 5.0),
        ([runs(100.0)], 0, 1.5),  # the trial already runs longer than the mean duration
        ([runs(), runs(waits_for="a GPU")], 2, 60.0),
    ],
)
def test_the_time_left_is_predicted_from_the_mean_duration_of_the_ended_trials(
    running: list[Progress], to_start: int, expected_s: float
) -> None:
    found_s = seconds_left([ended(10.0), ended(20.0)], running, to_start=to_start)
    assert found_s == pytest.approx(expected_s)


@pytest.mark.parametrize("state", TrialState)
@pytest.mark.parametrize("reason", [None, Reason.INTERRUPTED, Reason.BY_HAND])
def test_a_stopped_trial_has_ended_for_good_only_if_it_was_stopped_by_hand(
    state: TrialState, reason: Reason | None
) -> None:
    record = trial_record(state=state, reason=reason)
    is_by_hand = (state, reason) == (TrialState.STOPPED, Reason.BY_HAND)
    assert record.is_final is (
        is_by_hand or state in (TrialState.COMPLETED, TrialState.PRUNED, TrialState.FAILED)
    )


@pytest.mark.parametrize(("peak_bytes", "is_likely"), [(0, False), (10**9, True), (None, True)])
def test_a_trial_counts_as_having_used_its_gpu_unless_its_measured_memory_peak_is_zero(
    peak_bytes: int | None, is_likely: bool
) -> None:
    assert GpuUse(peak_bytes=peak_bytes).is_likely is is_likely


def test_the_repr_of_a_trial_record_is_one_line_and_jupyter_shows_a_table_of_its_params() -> None:
    record = trial_record(3, params={"lr": 0.123456789, "kind": "<b>"}, scores={"val": 0.5})
    assert repr(record) == "<trial 0003: completed, val=0.5; lr=0.1235, kind=<b>>"
    shown = record._repr_html_()
    assert 'trial <a href="out/0003.ipynb">0003</a>: completed, val=0.5' in shown
    assert "<th>lr</th><td>0.123456789</td>" in shown
    assert "<b>" not in shown
