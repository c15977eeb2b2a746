"""Rank the sources of scores: what a user has written has priority over what a library logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from ..notebook_api.messages import PointSource


class ScoreRank(IntEnum):
    """Sources of a score, in order of priority.

    If several sources give a score, the source that is listed first counts.
    """

    REPORTED = 0
    """`sweeper.report` and `sweeper.score`."""
    NAMED = 1
    """The variable, expression or pattern that the parameters file names under `scores`."""
    GLUED = 2
    """scrapbook's `glue`."""
    RECORDED = 3
    """papermill's old `record`."""
    VARIABLE = 4
    """A top-level variable that has the name of the objective."""
    LOGGED = 5
    """A series with the name of the score that a library has logged."""


RANKS: Mapping[PointSource, ScoreRank] = {
    PointSource.REPORTED: ScoreRank.REPORTED,
    PointSource.PRINTED: ScoreRank.NAMED,
    PointSource.DISPLAYED: ScoreRank.GLUED,
    PointSource.OBSERVED: ScoreRank.LOGGED,
    PointSource.LOGGED: ScoreRank.LOGGED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """Two sources that give different values of one score.

    Attributes:
        name: Name of the score.
        source: Source that counts.
        value: Value from that source.
        other: Source that does not count.
        other_value: Value from the other source.
    """

    name: str
    source: str
    value: float
    other: str
    other_value: float

    def __str__(self) -> str:
        return f"{self.value:.6g} ({self.source}) and {self.other_value:.6g} ({self.other})"


def lesser_name(name: str, library: str) -> str:
    """Return the name of a library's series if its own name is taken, such as `keras/loss`.

    A name is taken if a source with a higher priority (`ScoreRank`) gives a score of this name.

    Args:
        name: Name of the series.
        library: Name of the library, such as `keras`.
    """
    return f"{library}/{name}"
