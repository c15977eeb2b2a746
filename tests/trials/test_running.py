"""A running trial passes its reported points to subscribers, and can be stopped or frozen."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from sweeper.notebook_api.messages import Point, PointSource, StopReason
from sweeper.trials import Blocked, Control, Machine, Phase, Points, RunningTrial, ScoreRank


def test_each_subscriber_receives_in_order_all_points_reported_after_it_subscribed() -> None:
    first: list[Point] = []
    second: list[Point] = []
    running = RunningTrial(Points(first.append))
    running.points.publish(Point(step=0, metrics={"loss": 2.0}))
    running.points.subscribe(second.append)
    running.points.publish(Point(step=1, metrics={"loss": 1.0}))
    assert [point.step for point in first] == [0, 1]
    assert [point.step for point in second] == [1]
    assert (running.points.step, running.points.metrics) == (1, {"loss": 1.0})


def test_printed_values_of_a_metric_reach_subscribers_only_until_the_notebook_reports_it() -> None:
    points: list[Point] = []
    running = RunningTrial(Points(points.append))
    printed = Point(step=0, metrics={"loss": 2.0}, source=PointSource.PRINTED)
    running.points.publish(printed)
    running.points.publish(Point(step=0, metrics={"loss": 1.0}))
    running.points.publish(printed)
    assert [point.source for point in points] == [PointSource.PRINTED, PointSource.REPORTED]
    assert running.points.metrics == {"loss": 1.0}


def test_the_librarys_name_is_prefixed_to_its_metric_if_a_source_with_priority_has_it() -> None:
    points: list[Point] = []
    kept: list[Point] = []
    running = RunningTrial(Points(points.append))
    running.points.keep(kept.append, ranks={"acc": ScoreRank.NAMED})
    logged = Point(
        step=0, metrics={"acc": 0.9, "loss": 1.0}, source=PointSource.OBSERVED, library="Keras"
    )
    running.points.publish(logged)
    running.points.publish(Point(step=0, metrics={"loss": 2.0}))
    running.points.publish(logged)
    assert [dict(point.metrics) for point in points] == [
        {"Keras/acc": 0.9, "loss": 1.0},
        {"loss": 2.0},
        {"Keras/acc": 0.9, "Keras/loss": 1.0},
    ]
    assert [point.metrics for point in kept[::2]] == [logged.metrics] * 2


def test_a_printed_text_without_a_number_reaches_no_subscriber() -> None:
    points: list[Point] = []
    kept: list[Point] = []
    running = RunningTrial(Points(points.append))
    running.points.keep(kept.append)
    running.points.publish(
        Point(step=0, metrics={}, source=PointSource.PRINTED, unread={"loss": "n/a"})
    )
    assert (len(points), len(kept), running.points.step) == (0, 1, None)


def test_only_the_first_of_several_stops_of_a_trial_is_stored_and_calls_the_callback() -> None:
    running, calls = RunningTrial(), []
    running.control.on_stop(lambda: calls.append(running.control.stop_reason))
    assert running.control.stop_reason is None
    running.control.stop(StopReason.TIME_LIMIT)
    running.control.stop(StopReason.INTERRUPTED)
    assert calls == [StopReason.TIME_LIMIT]
    assert running.control.stop_reason is StopReason.TIME_LIMIT


def test_a_stop_callback_is_called_at_once_if_the_trial_was_stopped_and_never_if_removed() -> None:
    running, calls = RunningTrial(), []
    running.control.on_stop(lambda: calls.append("gone"))
    running.control.on_stop(None)
    running.control.stop(StopReason.INTERRUPTED)
    running.control.on_stop(lambda: calls.append("now"))
    assert calls == ["now"]


def test_a_stop_callback_may_call_methods_of_the_running_trial() -> None:
    running, calls = RunningTrial(), []

    def callback() -> None:
        running.control.stop(StopReason.TIME_LIMIT)
        running.control.on_stop(None)
        calls.append(running.control.stop_reason)

    running.control.on_stop(callback)
    stopper = threading.Thread(
        target=running.control.stop, args=[StopReason.INTERRUPTED], daemon=True
    )
    stopper.start()
    stopper.join(timeout=60)
    assert not stopper.is_alive()
    assert calls == [StopReason.INTERRUPTED]


def test_a_frozen_trial_is_paused_until_it_is_thawed_or_stopped() -> None:
    running = RunningTrial()
    calls: list[object] = []

    def stand_still(is_frozen: bool) -> bool:
        calls.append(is_frozen)
        return True

    running.control.on_freeze(stand_still)
    running.control.on_stop(lambda: calls.append("stop"))

    assert running.control.freeze() and not running.control.freeze()
    time.sleep(0.05)
    assert running.control.thaw() and not running.control.thaw()
    waited_s = running.control.waited_s
    assert 0.05 <= waited_s < 5.0
    time.sleep(0.01)
    assert running.control.waited_s == waited_s
    assert running.control.freeze()
    running.control.stop(StopReason.INTERRUPTED)
    assert calls == [True, False, True, False, "stop"]
    assert not running.control.freeze(), "a trial that was stopped cannot be frozen"


def test_a_trial_without_a_kernel_or_without_free_memory_is_not_frozen() -> None:
    running = RunningTrial()
    assert not running.control.freeze()
    running.control.on_freeze(lambda _: True)
    running.control.note_machine(Machine(blocked=Blocked))
    assert not running.control.freeze() and not running.control.is_frozen
    running.control.on_freeze(lambda _: False)
    running.control.note_machine(Machine())
    assert not running.control.freeze() and running.control.phase is Phase.RUNNING


def test_waits_and_memory_requests_of_a_run_in_place_of_a_trial_are_those_of_the_trial() -> None:
    asked: list[Blocked] = []
    running, repeated = RunningTrial(control=Control(asked.append)), RunningTrial()
    blocked = Blocked(by=[Control()])
    with running.control.passed_on(repeated.control):
        repeated.control.make_room(blocked)
        with repeated.control.waiting():
            repeated.control.waits_for = "9.0 GB of a GPU"
            assert running.control.waits_for == "9.0 GB of a GPU"
        assert running.control.waits_for == ""
    assert asked == [blocked]


def test_time_for_which_a_trial_is_frozen_does_not_count_towards_its_time_limit() -> None:
    running = RunningTrial()
    running.control.on_freeze(lambda _: True)
    with running.control.limited(0.2):
        running.control.freeze()
        time.sleep(0.4)
        assert running.control.stop_reason is None
        running.control.thaw()
        time.sleep(0.4)
    assert running.control.stop_reason is StopReason.TIME_LIMIT


def test_the_waiting_time_of_a_trial_is_at_most_the_real_time_while_another_thread_waits() -> None:
    running, is_over = RunningTrial(), threading.Event()

    def read() -> float:
        most_s = 0.0
        while not is_over.is_set():
            most_s = max(most_s, running.control.waited_s)
        return most_s

    interval_s, began_s = sys.getswitchinterval(), time.monotonic()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(1) as threads:
            most = threads.submit(read)
            for _ in range(200):
                other = RunningTrial()
                with running.control.passed_on(other.control), other.control.waiting():
                    pass
                with running.control.waiting():
                    pass
            is_over.set()
            assert most.result() <= time.monotonic() - began_s
    finally:
        sys.setswitchinterval(interval_s)
