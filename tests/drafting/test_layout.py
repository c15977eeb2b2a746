"""Values and lines of a draft as YAML."""

from __future__ import annotations

from typing import Any

import pytest

from sweeper.drafting import layout
from sweeper.settings.yaml_reader import read_yaml


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (0.0001, "1e-4"),
        (0.003, "0.003"),
        (0.01, "0.01"),
        (0.00025, "2.5e-4"),
        (1e20, "1e20"),
        (-3.0, "-3.0"),
        ("sgd", "sgd"),
        ("on", '"on"'),
        ("a: b", '"a: b"'),
        ("", '""'),
        ("\n\u2028", '"\\x0a\\u2028"'),
        ([1, [0.5, "a b"]], '[1, [0.5, "a b"]]'),
    ],
)
def test_a_value_is_short_yaml_that_is_read_as_the_same(value: Any, text: str) -> None:
    assert layout.value(value) == text
    assert read_yaml(text) == value


def test_comments_are_aligned_except_behind_long_lines() -> None:
    lines = [("a: 1", "first"), ("bbb: 2", ""), ("cccc: 3", "second"), ("d" * 60, "third")]
    assert layout.block(lines) == [
        "  a: 1       # first",
        "  bbb: 2",
        "  cccc: 3    # second",
        f"  {'d' * 60}    # third",
    ]


def test_a_comment_stays_on_its_line() -> None:
    assert layout.comment("a\nb\x85c") == "a b c"
