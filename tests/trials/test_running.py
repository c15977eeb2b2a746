"""A running trial: points go to its subscribers."""

from __future__ import annotations

from sweeper.notebook_api.messages import Point, PointSource
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
