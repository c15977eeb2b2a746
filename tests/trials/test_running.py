"""A running trial: points go to its subscribers, and one stop reaches it."""

from __future__ import annotations

import threading

from sweeper.notebook_api.messages import Point, PointSource, StopReason
from sweeper.trials import RunningTrial


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


def test_only_one_of_many_simultaneous_stops_is_delivered() -> None:
    running, calls = RunningTrial(), []
    running.on_stop(lambda: calls.append(1))
    gate = threading.Barrier(8)

    def stop() -> None:
        gate.wait()
        running.stop(StopReason.INTERRUPTED)

    threads = [threading.Thread(target=stop) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == [1]
