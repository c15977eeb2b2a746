"""What is decided about running trials, as data: the scheduler carries it out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Freeze:
    """Let a trial stand still, so that its slot is free.

    Attributes:
        number: Trial number in the study.
    """

    number: int


@dataclass(frozen=True)
class Thaw:
    """Let a frozen trial continue in a free slot.

    Attributes:
        number: Trial number in the study.
    """

    number: int


@dataclass(frozen=True)
class Prune:
    """End a trial early, for good.

    Attributes:
        number: Trial number in the study.
        message: Why, for people.
    """

    number: int
    message: str


#: Where nothing is to change, a function returns None.
Decision = Freeze | Thaw | Prune
