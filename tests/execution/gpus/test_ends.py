"""When running trials should end, from how those went that have come to their end."""

from __future__ import annotations

import pytest

from sweeper.execution.gpus.measures.ends import ExpectedEnds
from sweeper.notebook_api.messages import StopReason
from sweeper.trials import RunningTrial


def trial(steps: int = 0, stepped_at_s: float = 0.0) -> RunningTrial:
    """A trial whose last cell runs."""
    running = RunningTrial()
    running.cell = running.cells = 3
    running.steps, running.stepped_at_s = steps, stepped_at_s
    return running


def known(*took_s: float, steps: int = 0) -> ExpectedEnds:
    """After trials that took so long, and made their last step a second before their end."""
    ends = ExpectedEnds()
    for one_s in took_s:
        ends.learn(trial(steps, one_s - 1), began_s=0.0, now_s=one_s)
    return ends


@pytest.mark.parametrize(
    ("now_s", "is_about"),
    [(50.0, False), (95.0, False), (98.0, True), (102.0, True), (110.0, False)],
)
def test_a_trial_without_steps_takes_as_long_as_others_and_is_not_awaited_when_overdue(
    now_s: float, is_about: bool
) -> None:
    ends = known(99.0, 100.0, 101.0)
    assert ends.is_about_to_end(trial(), began_s=0.0, now_s=now_s) is is_about


def test_a_trial_that_is_slower_than_others_ends_later_by_its_own_steps() -> None:
    ends = known(100.0, 140.0, 60.0, steps=50)
    slow = trial(steps=48, stepped_at_s=192.0)
    assert not ends.is_about_to_end(slow, began_s=0.0, now_s=140.0)
    assert ends.is_about_to_end(slow, began_s=0.0, now_s=199.0), "8 s for two steps, and 1 s"


@pytest.mark.parametrize(
    "ends",
    [
        known(),
        known(100.0),
        known(100.0, 150.0),
        known(100.0, 150.0, steps=50),  # whoever has made no step yet has not come far
    ],
    ids=["none has ended", "one has", "they differ", "by steps"],
)
def test_nothing_is_expected_where_those_that_ended_do_not_show_it(ends: ExpectedEnds) -> None:
    for now_s in range(0, 300, 2):
        assert not ends.is_about_to_end(trial(), began_s=0.0, now_s=float(now_s))


def test_trials_that_were_stopped_or_have_failed_show_nothing() -> None:
    ends = known(100.0, 100.0)
    pruned, failed = trial(), trial()
    pruned.stop(StopReason.PRUNED)
    failed.cell = 1
    for one in (pruned, failed):
        ends.learn(one, began_s=0.0, now_s=10.0)
    assert ends.is_about_to_end(trial(), began_s=0.0, now_s=100.0)
