"""Events reach an observer in order, and an observer cannot harm the sweep."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections import Counter

import pytest

from sweeper.trials import Event, Events, TrialRecord


def test_events_from_many_threads_reach_the_observer_one_at_a_time() -> None:
    calls: list[Event] = []
    inside = threading.Lock()

    def observe(event: Event, _record: TrialRecord | None) -> None:
        assert inside.acquire(blocking=False)
        calls.append(event)
        time.sleep(0)
        inside.release()

    events = Events(observe)

    def announce() -> None:
        for event in list(Event) * 20:
            events.announce(event)

    with events.delivering():
        threads = [threading.Thread(target=announce) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(calls) == 4 * 20 * len(Event)


def test_an_exception_of_the_observer_is_logged_and_the_observer_is_called_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[Event] = []

    def observe(event: Event, _record: TrialRecord | None) -> None:
        calls.append(event)
        if event is Event.TRIAL_ENDED:
            sys.exit("no more")
        raise MemoryError

    events = Events(observe)
    caplog.set_level(logging.WARNING, logger="sweeper.trials.events")
    with events.delivering():
        for event in (Event.TRIAL_STARTED, Event.TRIAL_ENDED, Event.COPYING):
            events.announce(event)
    assert calls == [Event.TRIAL_STARTED, Event.TRIAL_ENDED, Event.COPYING]
    (record,) = caplog.records
    assert "the observer failed at trial_started: MemoryError: MemoryError" in record.getMessage()


def test_an_observer_and_a_signal_handler_may_announce_events_while_events_are_delivered() -> None:
    observed: Counter[Event] = Counter()
    alarms = 0

    def observe(event: Event, _record: TrialRecord | None) -> None:
        observed[event] += 1
        if event is Event.TRIAL_ENDED:
            events.announce(Event.STOPPING)

    def alarm(*_: object) -> None:
        nonlocal alarms
        alarms += 1
        events.announce(Event.TRIAL_ENDED)

    events = Events(observe)
    before = signal.signal(signal.SIGALRM, alarm)
    try:
        with events.delivering():
            signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
            announced = 0
            while alarms < 20:
                events.announce(Event.TRIAL_STARTED)
                announced += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert observed == {
        Event.TRIAL_STARTED: announced,
        Event.TRIAL_ENDED: alarms,
        Event.STOPPING: alarms,
    }


def test_an_observer_that_does_not_return_delays_the_end_of_a_sweep_only_briefly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sweeper.trials.events._MAX_CALL_S", 0.05)
    returns = threading.Event()
    events = Events(lambda *_: [returns.wait(60)].clear())
    with events.delivering():
        events.announce(Event.SWEEP_STARTED)
    returns.set()
