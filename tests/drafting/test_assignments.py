"""The assignments of a parameters cell, and the hints in its comments."""

from __future__ import annotations

from typing import Any

import pytest

from sweeper.drafting.cells import assignments
from sweeper.drafting.hints import Bounds, bounds_in, choices_in


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("lr = 1e-3", [("lr", 1e-3)]),
        ("a, b = 1, -2", [("a", 1), ("b", -2)]),
        ("a = 1\na = 2", [("a", 2)]),
        ("size = 2 ** 5 + 1", [("size", 33)]),
        ("sizes = (32, 64)", [("sizes", [32, 64])]),
        ("options = {'a': [1, None]}", [("options", {"a": [1, None]})]),
        ("x: int = 3", [("x", 3)]),
    ],
)
def test_plain_values_are_read_without_running_the_cell(source: str, expected: Any) -> None:
    found = assignments(source)
    assert all(assignment.is_plain for assignment in found)
    assert [(assignment.name, assignment.value) for assignment in found] == expected


@pytest.mark.parametrize(
    "source",
    [
        "x = f()",
        "x = y",
        "x = 10 ** 99",
        "x = {**y}",
        "x = '\\ud800'",
        "x = 1\nx += 1",
        "*x, y = z",
    ],
)
def test_any_other_value_is_not_plain(source: str) -> None:
    assert not assignments(source)[0].is_plain


def test_comments_and_literals_belong_to_their_assignment() -> None:
    lines = (
        "# above",
        "lr = 0.1  # 0.01 to 1",
        "opt: Literal['a', 'b'] = 'a'",
        "big = [  # first",
        "    1]  # last",
    )
    lr, opt, big = assignments("\n".join(lines))
    assert (lr.comment, opt.comment, big.comment) == ("0.01 to 1", "", "last")
    assert (lr.literals, opt.literals) == ((), ("a", "b"))


@pytest.mark.parametrize(
    ("comment", "own", "choices"),
    [
        ("sgd | adam", "sgd", ["sgd", "adam"]),
        ("one of: sgd, adam (default)", "adam", ["sgd", "adam"]),
        ("or adam", "sgd", ["sgd", "adam"]),
        ("16, 32, 64", 32, [16, 32, 64]),
        ("sgd | adam", "rmsprop", []),
        ("the optimizer", "sgd", []),
        ("sgd | adam", 3, []),
    ],
)
def test_choices_in_a_comment_contain_the_own_value(
    comment: str, own: Any, choices: list[Any]
) -> None:
    assert choices_in(comment, own) == choices


@pytest.mark.parametrize(
    ("comment", "own", "bounds"),
    [
        ("0.1 to 0.5", 0.2, Bounds(0.1, 0.5, False)),
        ("1e-4 - 1e-1", 1e-3, Bounds(1e-4, 1e-1, True)),
        ("[1, 8]", 4, Bounds(1, 8, False)),
        ("1, 8", 4, None),
        ("0.1 to 0.5", 0.9, None),
        ("since 2019", 3, None),
    ],
)
def test_bounds_in_a_comment_contain_the_own_value(
    comment: str, own: float, bounds: Bounds | None
) -> None:
    assert bounds_in(comment, own) == bounds
