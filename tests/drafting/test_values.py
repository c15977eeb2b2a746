"""The kinds of a notebook's variables, guessed from its code."""

from __future__ import annotations

import ast

import pytest

from sweeper.drafting.values import Kind, Variables


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("x = 0.5", Kind.NUMBER),
        ("x = float(f())", Kind.NUMBER),
        ("x = accuracy_score(a, b)", Kind.NUMBER),
        ("x = losses.mean()", Kind.NUMBER),
        ("x = losses.mean(axis=0)", Kind.SEVERAL),
        ("x = [1, 2]", Kind.SEVERAL),
        ("x = f()\nfor y in x: ...", Kind.SEVERAL),
        ("x = time.time() - began", Kind.CLOCK),
        ("x = 0\nfor y in z:\n    x += 1", Kind.COUNTER),
        ("x = Model()", Kind.OTHER),
        ("x = f()\nx()", Kind.OTHER),
        ("def x(): ...", Kind.OTHER),
        ("x = f()", Kind.UNKNOWN),
        ("", Kind.UNKNOWN),
    ],
)
def test_a_kind_follows_from_the_value_or_the_use(source: str, kind: Kind) -> None:
    assert Variables([ast.parse(source)]).of("x") is kind
