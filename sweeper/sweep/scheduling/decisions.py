"""Define the decisions about running trials, which the scheduler carries out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Freeze:
    """Pause a trial, so that another trial can use its slot.

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
class TakeOff:
    """Move a frozen trial's GPU memory to host memory, so that another trial can use the GPU.

    Attributes:
        number: Trial number in the study.
    """

    number: int


@dataclass(frozen=True)
class Prune:
    """End a trial early, for good.

    Attributes:
        number: Trial number in the study.
        message: Reason in words, for people.
    """

    number: int
    message: str


#: A decision about one trial. A function that decides to change nothing returns None.
Decision = Freeze | Thaw | TakeOff | Prune
