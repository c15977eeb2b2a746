"""What a check has found, and how it displays itself."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: How many names a finding lists.
_MOST_NAMES = 5


@dataclass(frozen=True)
class CheckResult:
    """What a check has found; true where it passed.

    Attributes:
        check: the name of the check.
        passed: whether what it looks for holds.
        finding: what it found, with figures, as one line.
        remedy: what to do about it; empty where it passed.
        figures: the numbers of the finding by name.
    """

    check: str
    passed: bool
    finding: str
    remedy: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        return f"{'✓' if self.passed else '✗'} {self._text()}"

    def _repr_html_(self) -> str:
        colour, mark = ("green", "✓") if self.passed else ("crimson", "✗")
        name, text = html.escape(self.check), html.escape(self._text()[len(self.check) :])
        return f'<div><b style="color: {colour}">{mark}</b> <b>{name}</b>{text}</div>'

    def _text(self) -> str:
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.check}: {self.finding}{remedy}"


class CheckFailed(Exception):
    """Raised by a check with `raises=True` that did not pass.

    Attributes:
        result: what the check has found.
    """

    def __init__(self, result: CheckResult) -> None:
        super().__init__(repr(result))
        self.result = result


def settled(result: CheckResult, *, raises: bool) -> CheckResult:
    """The result of a check.

    Raises:
        CheckFailed: with `raises`, the check did not pass.
    """
    if raises and not result.passed:
        raise CheckFailed(result)
    return result


def listed(names: Sequence[str]) -> str:
    """Names in one line, the first five of them."""
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
