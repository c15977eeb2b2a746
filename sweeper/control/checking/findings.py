"""One line for each thing that holds or does not, with figures and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_MARKS = {True: "✓", False: "✗", None: "–"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check has found.

    Attributes:
        name: of the check, for scripts; the same in all versions.
        holds: None where it could not be tried, or does not apply.
        text: what was found, with figures.
        remedy: what to do about it; empty where nothing is to be done.
        details: further lines for people, such as suspicious lines of the notebook.
    """

    name: str
    holds: bool | None
    text: str
    remedy: str = ""
    details: Sequence[str] = ()

    def lines(self) -> list[str]:
        """The finding for people; the first line has all that matters."""
        first = f"{_MARKS[self.holds]} {self.text}"
        first += f": {self.remedy}" if self.remedy else ""
        return [first, *(f"    {detail}" for detail in self.details)]

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        return {
            "name": self.name,
            "holds": self.holds,
            "text": self.text,
            "remedy": self.remedy,
            "details": list(self.details),
        }
