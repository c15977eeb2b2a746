"""Stops of a trial and of all of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sweeper.notebook_api.messages import StopReason
from sweeper.sweep.stop_switch import StopSwitch
from sweeper.trials import Events, RunningTrial


def test_a_trial_that_is_to_be_stopped_before_it_has_begun_is_stopped_as_it_begins() -> None:
    stop_switch = StopSwitch(Events(None))
    stop_switch.stop(3, "stopped by the command stop")
    others, wanted = RunningTrial(), RunningTrial()
    stop_switch.enter(2, others)
    stop_switch.enter(3, wanted)
    assert others.stop_reason is None
    assert (wanted.stop_reason, wanted.message) == (
        StopReason.BY_HAND,
        "stopped by the command stop",
    )


_STOPPED_MEANWHILE = """
import signal
from sweeper.sweep.stop_switch import StopSwitch
from sweeper.trials import Events, RunningTrial

class Interrupted(RunningTrial):
    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "_stop_reason" and value is not None:
            signal.raise_signal(signal.SIGTERM)

stop_switch = StopSwitch(Events(None))
signal.signal(signal.SIGTERM, lambda *_: stop_switch.stop_all("a signal"))
stop_switch.enter(0, Interrupted(lambda _: None))
stop_switch.stop_all("the end")
"""


@pytest.mark.slow
def test_a_signal_may_stop_the_trial_that_is_just_being_stopped() -> None:
    # In a process of its own: one that waits for itself could not be ended here.
    subprocess.run([sys.executable, "-c", _STOPPED_MEANWHILE], check=True, timeout=30)
