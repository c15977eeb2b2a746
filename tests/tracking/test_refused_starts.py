"""Test when the starts of trials that MLflow did not accept are sent again."""

from __future__ import annotations

import math

from sweeper.tracking.messages import Call
from sweeper.tracking.refused_starts import _AGAIN_S, RefusedStarts

START, OTHER = Call("start", "0000", ()), Call("start", "0001", ())


def test_the_pause_before_a_start_that_mlflow_refused_is_sent_again_doubles_each_time() -> None:
    starts, now_s = RefusedStarts(), 0.0
    for pause_s in (_AGAIN_S, 2 * _AGAIN_S, 4 * _AGAIN_S):
        starts.add(START, now_s)
        assert starts.pop_due(now_s + pause_s - 0.1) == []
        now_s += pause_s
        assert starts.pop_due(now_s) == [START]
        assert starts.pop_due(math.inf) == [], "the start would be sent twice"
    starts.add(OTHER, now_s)
    assert starts.pop_due(now_s + _AGAIN_S) == [OTHER], "the pause of another trial has grown too"


def test_the_refused_start_of_a_trial_that_has_ended_is_not_sent_again() -> None:
    starts = RefusedStarts()
    starts.add(START, 0.0)
    starts.forget("0000")
    assert starts.pop_due(math.inf) == []
