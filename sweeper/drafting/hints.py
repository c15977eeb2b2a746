"""Read choices and ranges from the comment behind a parameter.

Only this module knows how authors write them, as in `# sgd | adam` or `# 0.1 to 0.5`.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any

from .cells import NotPlain, plain_value

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_LEAD = re.compile(
    r"^(?:@param\s*)?(?:.{0,40}:\s*)?(?:(?:one|any) of|choices|options|either|from|in|try)?[\s:]*",
    re.IGNORECASE,
)
_OR = re.compile(r"^(?:@param\s*)?(?:or|alternatively|try)\b[\s:]*", re.IGNORECASE)
_BETWEEN = re.compile(r"\s*(?:\||,|;|/|\bor\b)\s*(?:or\s+)?", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d][\w.+-]*")
_RANGES = [
    re.compile(rf"(?<![\w.])({_NUMBER})\s*{between}\s*({_NUMBER})(?![\w.]*\w)")
    for between in ("(?:to|-|–|—|…|\\.{2,3})", "and", ",", r"<=?\s*\w+\s*<=?")
]
_SLIDER = re.compile(rf"min\s*:\s*({_NUMBER}).*?max\s*:\s*({_NUMBER})")


@dataclass(frozen=True, slots=True)
class Bounds:
    """A range in a comment.

    Attributes:
        low: the least value.
        high: the greatest value.
        log: whether the range is wide enough for a logarithmic scale.
    """

    low: float
    high: float
    log: bool


def choices_in(comment: str, own: Any) -> list[Any]:
    """Read the choices that a comment lists; empty where it lists none with the own value.

    Args:
        comment: the text of the comment.
        own: the value that the notebook assigns.
    """
    text = re.sub(r"\s*\([^()]*\)\s*$", "", comment)  # without a remark: sgd | adam (default)
    alternative = _OR.match(text)
    lead = alternative or _LEAD.match(text)
    rest = text[lead.end() :] if lead else text
    rest = rest.strip().rstrip(".").strip("[](){} ")
    values = [_value(part, own) for part in _BETWEEN.split(rest) if part]
    if any(value is _NO_CHOICE for value in values):
        return []
    if alternative and not _holds(values, own):
        values = [own, *values]
    distinct = [v for i, v in enumerate(values) if not _holds(values[:i], v)]
    return distinct if len(distinct) > 1 and _holds(distinct, own) else []


_NO_CHOICE = object()


def _value(part: str, own: Any) -> Any:
    """Read one choice: a constant, or a bare word where the own value is text."""
    try:
        value = plain_value(ast.parse(part, mode="eval").body)
    except (NotPlain, SyntaxError, ValueError, ArithmeticError, TypeError):
        value = part if _WORD.fullmatch(part) else _NO_CHOICE
    bare = value is part
    if bare and not isinstance(own, str):
        return _NO_CHOICE
    if isinstance(value, list | dict | bool):
        return _NO_CHOICE
    alike = value is None or own is None or isinstance(value, str) == isinstance(own, str)
    return value if alike else _NO_CHOICE


def _holds(values: list[Any], value: Any) -> bool:
    return any(v == value and isinstance(v, bool) == isinstance(value, bool) for v in values)


def bounds_in(comment: str, own: int | float) -> Bounds | None:
    """Read the range in a comment; None where there is none that contains the own value.

    Args:
        comment: the text of the comment.
        own: the value that the notebook assigns.
    """
    for pattern in (_SLIDER, *_RANGES):
        if pattern is _RANGES[2] and not re.search(r"[\[(]", comment):
            continue  # two numbers with a comma are a range only in brackets
        for match in pattern.finditer(comment):
            low, high = float(match[1]), float(match[2])
            if low < high and low <= own <= high and max(abs(low), abs(high)) < 1e15:
                wide = low > 0 and high / low >= (100 if isinstance(own, float) else 32)
                return Bounds(low, high, "linear" not in comment and wide)
    return None
