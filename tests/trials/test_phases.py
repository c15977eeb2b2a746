"""A trial may be frozen (paused), thawed or stopped, lose its kernel, or end, in any order."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given, settings
from hypothesis import strategies as st
from studies import until

from sweeper.notebook_api.messages import StopReason
from sweeper.trials import Phase, RunningTrial

#: For each method: the phases of a trial in which it has an effect, and the phase after it. In all
#: other phases the method changes nothing.
LEGAL = {
    "freeze": {Phase.RUNNING: Phase.FROZEN},
    "thaw": {Phase.FROZEN: Phase.RUNNING},
    "stop": {Phase.FROZEN: Phase.LEAVING},
    "die": {Phase.FROZEN: Phase.LOST},
    "end": dict.fromkeys(Phase, Phase.ENDED),
}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([*LEGAL, "halt fails"]), max_size=12))
def test_freezing_thawing_and_stopping_change_a_trials_phase_only_as_the_table_allows(
    steps: list[str],
) -> None:
    began_s, running = time.monotonic(), RunningTrial()
    is_still, can_halt, has_kernel, is_stopped, slots = False, True, True, False, 1

    def stand_still(still: bool) -> bool:
        nonlocal is_still
        is_still = still and can_halt
        return can_halt

    running.control.on_freeze(stand_still)
    for step in steps:
        before = running.control.phase
        expected = LEGAL.get(step, {}).get(before, before)
        if step == "freeze":
            if is_stopped or not has_kernel or not can_halt:
                expected = before
            assert running.control.freeze() is (expected is not before)
            slots -= expected is not before
        elif step == "thaw":
            assert running.control.thaw() is (expected is not before)
            slots += expected is not before
        elif step == "stop":
            running.control.stop(StopReason.INTERRUPTED)
            is_stopped = True
        elif step == "die":
            running.control.on_freeze(None)
            is_still, has_kernel = False, False
        elif step == "end":
            running.control.end()
            running.control.on_freeze(None)
            is_still, has_kernel, slots = False, False, 0
        else:
            can_halt = False
        assert running.control.phase is expected
        assert is_still == (running.control.phase is Phase.FROZEN)
        assert slots == (running.control.phase is Phase.RUNNING)
        assert 0 <= running.control.own_s <= time.monotonic() - began_s
        waited_s = running.control.waited_s
        assert running.control.is_frozen or running.control.waited_s == waited_s


def test_each_thaw_uses_one_slot_and_each_freeze_or_end_frees_one() -> None:
    running = RunningTrial()
    running.control.on_freeze(lambda _: True)
    with ThreadPoolExecutor(30) as threads:
        slots = [threads.submit(running.control.wait_for_rest)]
        for _ in range(20):
            assert running.control.freeze()
            assert sum(threads.map(lambda _: running.control.thaw(), range(4))) == 1
            slots.append(threads.submit(running.control.wait_for_rest))
        until(lambda: sum(slot.done() for slot in slots) == 20)
        assert running.control.phase is Phase.RUNNING
        running.control.end()
        for slot in slots:
            slot.result(timeout=10)
