"""The encoding of reports as JSON."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.notebook_api.messages import (
    Point,
    decode_float,
    encode_float,
)


@given(st.floats())
def test_every_float_survives_json(value: float) -> None:
    text = json.dumps(encode_float(value), allow_nan=False)
    assert repr(decode_float(json.loads(text))) == repr(value)


@pytest.mark.parametrize("step", [None, 0, 3])
def test_a_point_survives_json(step: int | None) -> None:
    point = Point(step=step, metrics={"a": 0.1, "b": -math.inf})
    assert Point.decode(json.loads(json.dumps(point.encode(), allow_nan=False))) == point
