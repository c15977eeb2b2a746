"""What an observer is told, and what it cannot do to the sweep."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections import Counter

import pytest

from sweeper.trials import Event, Events, TrialRecord


def test_many_threads_announce_and_the_observer_is_called_once_at_a_time() -> None:
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

    with events.delivered():
        threads = [threading.Thread(target=announce) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(calls) == 4 * 20 * len(Event)


def test_what_an_observer_raises_is_logged_once_and_it_is_called_again(
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
    with events.delivered():
        for event in (Event.TRIAL_STARTED, Event.TRIAL_ENDED, Event.COPYING):
            events.announce(event)
    assert calls == [Event.TRIAL_STARTED, Event.TRIAL_ENDED, Event.COPYING]
    (record,) = caplog.records
    assert "the observer failed at trial_started: MemoryError: MemoryError" in record.getMessage()


def test_an_observer_and_a_signal_handler_may_announce_what_follows() -> None:
    heard: Counter[Event] = Counter()
    alarms = 0

    def observe(event: Event, _record: TrialRecord | None) -> None:
        heard[event] += 1
        if event is Event.TRIAL_ENDED:
            events.announce(Event.STOPPING)

    def alarm(*_: object) -> None:
        nonlocal alarms
        alarms += 1
        events.announce(Event.TRIAL_ENDED)

    events = Events(observe)
    before = signal.signal(signal.SIGALRM, alarm)
    try:
        with events.delivered():
            signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
            announced = 0
            while alarms < 20:
                events.announce(Event.TRIAL_STARTED)
                announced += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert heard == {
        Event.TRIAL_STARTED: announced,
        Event.TRIAL_ENDED: alarms,
        Event.STOPPING: alarms,
    }


def test_an_observer_that_does_not_return_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sweeper.trials.events._PATIENCE_S", 0.05)
    returns = threading.Event()
    events = Events(lambda *_: [returns.wait(60)].clear())
    with events.delivered():
        events.announce(Event.SWEEP_STARTED)
    returns.set()


def test_without_an_observer_there_is_no_thread() -> None:
    events, before = Events(None), threading.active_count()
    with events.delivered():
        events.announce(Event.SWEEP_STARTED)
        assert threading.active_count() == before
