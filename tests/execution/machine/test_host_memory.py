"""Trials beside each other on one machine, and one that has it for itself."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from studies import PATIENCE_S, until

from sweeper.execution.machine.host_memory import HostMemory, Stay
from sweeper.execution.machine.ledger import StoppedWaiting
from sweeper.notebook_api.messages import StopReason
from sweeper.testing import trial_spec
from sweeper.trials import RunningTrial


class Trial:
    """A trial in a thread of its own, which ends when it is asked to."""

    def __init__(self, memory: HostMemory, *, alone: bool = False) -> None:
        self.running = RunningTrial()
        self.stay: Stay | None = None
        self.was_stopped = False
        self._memory, self._alone = memory, alone
        self._may_end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            spec = replace(trial_spec(), is_alone=self._alone)
            with self._memory.share(spec, self.running) as self.stay:
                self._may_end.wait()
        except StoppedWaiting:
            self.was_stopped = True

    def has_been_stopped(self) -> bool:
        return self.was_stopped

    def has_begun(self) -> bool:
        return self.stay is not None

    def is_alone(self) -> bool:
        return self.stay is not None and self.stay.is_alone

    def waits(self) -> bool:
        """Whether it has asked, and is in the queue."""
        return self.stay is None and self.running.waited_s > 0

    def begun(self) -> Trial:
        until(self.has_begun)
        return self

    def end(self) -> None:
        self._may_end.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@pytest.fixture
def memory(tmp_path: Path) -> HostMemory:
    return HostMemory(tmp_path)


def test_trials_run_beside_each_other(memory: HostMemory) -> None:
    first = Trial(memory).begun()
    assert first.is_alone()
    second = Trial(memory).begun()
    assert not first.is_alone()
    first.end()
    assert not second.is_alone(), "the other one has run meanwhile"
    second.end()
    last = Trial(memory).begun()
    assert last.is_alone()
    last.end()


def test_a_trial_that_is_alone_waits_for_all_others_and_those_after_it_wait_for_its_end(
    memory: HostMemory,
) -> None:
    others = [Trial(memory).begun(), Trial(memory).begun()]
    alone = Trial(memory, alone=True)
    until(alone.waits)
    after = Trial(memory)
    until(after.waits)
    others[0].end()
    assert not alone.has_begun()
    assert not after.has_begun()
    others[1].end()
    alone.begun()
    assert not after.has_begun()
    alone.end()
    assert alone.is_alone()
    after.begun().end()


def test_two_trials_that_have_to_be_alone_run_one_after_the_other(memory: HostMemory) -> None:
    other = Trial(memory).begun()
    pair = [Trial(memory, alone=True), Trial(memory, alone=True)]
    for trial in pair:
        until(trial.waits)
    other.end()
    until(lambda: any(trial.has_begun() for trial in pair))
    first, second = sorted(pair, key=lambda trial: not trial.has_begun())
    assert not second.has_begun()
    first.end()
    second.begun().end()
    assert all(trial.is_alone() for trial in pair)


def test_a_stop_ends_the_wait_and_those_behind_it_go_on(memory: HostMemory) -> None:
    other = Trial(memory).begun()
    alone = Trial(memory, alone=True)
    until(alone.waits)
    after = Trial(memory)
    until(after.waits)
    alone.running.stop(StopReason.INTERRUPTED)
    alone.end()
    assert alone.has_been_stopped()
    after.begun().end()
    other.end()


def test_a_trial_that_was_stopped_before_does_not_wait(memory: HostMemory) -> None:
    running = RunningTrial()
    running.stop(StopReason.INTERRUPTED)
    with memory.share(trial_spec(), running) as stay:
        assert stay.is_alone, "nothing is in its way, and what runs it sees the stop"
        with pytest.raises(StoppedWaiting):
            memory.share(replace(trial_spec(), is_alone=True), running).__enter__()
    Trial(memory, alone=True).begun().end()


def test_a_trial_sees_the_kills_since_it_began(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    counts = tmp_path / "proc" / "vmstat"
    counts.write_text("oom_kill 3\n")
    memory = HostMemory(tmp_path)
    with ExitStack() as stack:
        before = stack.enter_context(memory.share(trial_spec(), RunningTrial()))
        assert [before.was_short] == [False]
        counts.write_text("oom_kill 4\n")
        assert [before.was_short] == [True]
        later = stack.enter_context(memory.share(trial_spec(), RunningTrial()))
        assert not later.was_short
