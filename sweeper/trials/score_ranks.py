"""Rank the sources of scores: what a person wrote comes before what a library logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from ..notebook_api.messages import PointSource


class ScoreRank(IntEnum):
    """The sources of a score, the first of which counts."""

    REPORTED = 0
    """`sweeper.report` and `sweeper.score`."""
    NAMED = 1
    """The variable, expression or pattern that the parameters file names under `scores`."""
    GLUED = 2
    """scrapbook's `glue`."""
    RECORDED = 3
    """papermill's old `record`."""
    VARIABLE = 4
    """A top-level variable of the objective's own name."""
    LOGGED = 5
    """A series of that name that a library has logged."""


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
        name: the score.
        source: the source that counts, and `value` what it gives.
        other: the source that does not count, and `other_value` what it gives.
    """

    name: str
    source: str
    value: float
    other: str
    other_value: float

    def __str__(self) -> str:
        return f"{self.value:.6g} ({self.source}) and {self.other_value:.6g} ({self.other})"


def lesser_name(name: str, library: str) -> str:
    """Name a library's series where another source gives the score of its name.

    MLflow's and the page's tables take the name as it is.
    """
    return f"{library}/{name}"
