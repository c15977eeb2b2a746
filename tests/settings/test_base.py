"""Names and plain values that a notebook can take."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic_core import PydanticCustomError

from sweeper.settings.base import check_name, read_plain


@pytest.mark.parametrize("name", ["lr", "größe", "_x", "x1", "match"])
def test_python_identifiers_are_names(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    ("name", "fragment"),
    [
        ("my-lr", "space.my-lr: not a Python identifier; use letters"),
        ("1x", "space.1x: not a Python identifier"),
        ("", "space.'': not a Python identifier"),
        ("class", "a word of Python's own; choose another name"),
    ],
)
def test_the_message_for_a_wrong_name_has_its_key(name: str, fragment: str) -> None:
    with pytest.raises(PydanticCustomError) as raised:
        check_name(name, where="space.")
    assert fragment in str(raised.value)


@pytest.mark.parametrize("value", [None, True, 1, 0.5, math.inf, "a", [1, [2]], {"a": {"b": []}}])
def test_a_plain_value_is_read_as_it_is(value: Any) -> None:
    assert read_plain(value) == value


def test_tuples_are_read_as_lists() -> None:
    assert read_plain((1, {"a": (2,)})) == [1, {"a": [2]}]


@pytest.mark.parametrize(
    ("value", "fragment"),
    [
        ({1: 2}, "by text"),
        (b"x", "got binary data"),
        ({"a": [object]}, "expected a number, text"),
    ],
)
def test_any_other_value_is_refused(value: Any, fragment: str) -> None:
    with pytest.raises(PydanticCustomError) as raised:
        read_plain(value)
    assert fragment in str(raised.value)


def test_a_value_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(PydanticCustomError, match="holds itself"):
        read_plain(endless)
