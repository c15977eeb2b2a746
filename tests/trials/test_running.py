"""A running trial: points go to its subscribers, and one stop reaches it."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from sweeper.notebook_api.messages import Point, PointSource, StopReason
from sweeper.trials import Phase, RunningTrial, ScoreRank


def test_each_subscriber_receives_each_point_in_order() -> None:
    first: list[Point] = []
    second: list[Point] = []
    running = RunningTrial(first.append)
    running.publish(Point(step=0, metrics={"loss": 2.0}))
    running.subscribe(second.append)
    running.publish(Point(step=1, metrics={"loss": 1.0}))
    assert [point.step for point in first] == [0, 1]
    assert [point.step for point in second] == [1]
    assert (running.step, running.metrics) == (1, {"loss": 1.0})


def test_a_printed_value_counts_until_the_notebook_reports_the_metric() -> None:
    points: list[Point] = []
    running = RunningTrial(points.append)
    printed = Point(step=0, metrics={"loss": 2.0}, source=PointSource.PRINTED)
    running.publish(printed)
    running.publish(Point(step=0, metrics={"loss": 1.0}))
    running.publish(printed)
    assert [point.source for point in points] == [PointSource.PRINTED, PointSource.REPORTED]
    assert running.metrics == {"loss": 1.0}


def test_a_librarys_values_are_not_those_of_a_score_that_another_source_gives() -> None:
    points: list[Point] = []
    kept: list[Point] = []
    running = RunningTrial(points.append)
    running.record = kept.append
    running.ranks["acc"] = ScoreRank.NAMED
    logged = Point(
        step=0, metrics={"acc": 0.9, "loss": 1.0}, source=PointSource.OBSERVED, library="Keras"
    )
    running.publish(logged)
    running.publish(Point(step=0, metrics={"loss": 2.0}))
    running.publish(logged)
    assert [dict(point.metrics) for point in points] == [
        {"Keras/acc": 0.9, "loss": 1.0},
        {"loss": 2.0},
        {"Keras/acc": 0.9, "Keras/loss": 1.0},
    ]
    assert [point.metrics for point in kept[::2]] == [logged.metrics] * 2


def test_a_printed_text_without_a_number_reaches_no_subscriber() -> None:
    points: list[Point] = []
    kept: list[Point] = []
    running = RunningTrial(points.append)
    running.record = kept.append
    running.publish(Point(step=0, metrics={}, source=PointSource.PRINTED, unread={"loss": "n/a"}))
    assert (len(points), len(kept), running.step) == (0, 1, None)


def test_the_first_reason_to_stop_counts_and_is_delivered_once() -> None:
    running, calls = RunningTrial(), []
    running.on_stop(lambda: calls.append(running.stop_reason))
    assert running.stop_reason is None
    running.stop(StopReason.TIME_LIMIT)
    running.stop(StopReason.INTERRUPTED)
    assert calls == [StopReason.TIME_LIMIT]
    assert running.stop_reason is StopReason.TIME_LIMIT


def test_a_callback_that_is_set_after_the_stop_is_called_at_once_and_a_removed_one_never() -> None:
    running, calls = RunningTrial(), []
    running.on_stop(lambda: calls.append("gone"))
    running.on_stop(None)
    running.stop(StopReason.INTERRUPTED)
    running.on_stop(lambda: calls.append("now"))
    assert calls == ["now"]


def test_a_callback_may_use_the_running_trial() -> None:
    running, calls = RunningTrial(), []

    def callback() -> None:
        running.stop(StopReason.TIME_LIMIT)
        running.on_stop(None)
        calls.append(running.stop_reason)

    running.on_stop(callback)
    stopper = threading.Thread(target=running.stop, args=[StopReason.INTERRUPTED], daemon=True)
    stopper.start()
    stopper.join(timeout=60)
    assert not stopper.is_alive()
    assert calls == [StopReason.INTERRUPTED]


def test_a_frozen_trial_is_idle_until_it_goes_on_or_is_stopped() -> None:
    running = RunningTrial()
    calls: list[object] = []

    def stand_still(is_frozen: bool) -> bool:
        calls.append(is_frozen)
        return True

    running.on_freeze(stand_still)
    running.on_stop(lambda: calls.append("stop"))

    assert running.freeze() and not running.freeze()
    time.sleep(0.05)
    assert running.thaw() and not running.thaw()
    waited_s = running.waited_s
    assert 0.05 <= waited_s < 5.0
    time.sleep(0.01)
    assert running.waited_s == waited_s
    assert running.freeze()
    running.stop(StopReason.INTERRUPTED)
    assert calls == [True, False, True, False, "stop"]
    assert not running.freeze(), "a trial that is to end does not stand still"


def test_a_trial_without_kernel_or_without_room_is_not_frozen() -> None:
    running = RunningTrial()
    assert not running.freeze()
    running.on_freeze(lambda _: True)
    running.has_room = lambda: False
    assert not running.freeze() and not running.is_frozen
    running.on_freeze(lambda _: False)
    running.has_room = lambda: True
    assert not running.freeze() and running.phase is Phase.RUNNING


def test_the_time_limit_stands_still_with_a_frozen_trial() -> None:
    running = RunningTrial()
    running.on_freeze(lambda _: True)
    with running.limited(0.2):
        running.freeze()
        time.sleep(0.4)
        assert running.stop_reason is None
        running.thaw()
        time.sleep(0.4)
    assert running.stop_reason is StopReason.TIME_LIMIT


def test_how_long_a_trial_has_waited_is_read_while_another_thread_waits() -> None:
    running, is_over = RunningTrial(), threading.Event()

    def read() -> float:
        most_s = 0.0
        while not is_over.is_set():
            most_s = max(most_s, running.waited_s)
        return most_s

    interval_s, began_s = sys.getswitchinterval(), time.monotonic()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(1) as threads:
            most = threads.submit(read)
            for _ in range(200):
                other = RunningTrial()
                with running.passed_on(other), other.waiting():
                    pass
                with running.waiting():
                    pass
            is_over.set()
            assert most.result() <= time.monotonic() - began_s
    finally:
        sys.setswitchinterval(interval_s)
