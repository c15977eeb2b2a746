"""Sources of a score, such as a report and a variable, disagree if they differ beyond rounding."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from sweeper.execution.disagreements import disagreements, disagreements_in_words
from sweeper.notebooks.scores import Given
from sweeper.trials import ScoreRank

REPORTED, NAMED, LOGGED = ScoreRank.REPORTED, ScoreRank.NAMED, ScoreRank.LOGGED


def given(rank: ScoreRank, value: float, points: Sequence[float] = ()) -> Given:
    return Given(rank=rank, source=rank.name, value=value, points=tuple(enumerate(points)))


@pytest.mark.parametrize(
    ("first", "other", "agree"),
    [
        (given(NAMED, 0.47), given(LOGGED, 1.0, [0.2, 1.0]), False),
        (given(NAMED, 0.8), given(LOGGED, 0.8004, [0.8004]), True),
        (given(NAMED, 0.8), given(LOGGED, 0.81, [0.81]), False),
        # The named score is the best value of the logged series.
        (given(NAMED, 0.9), given(LOGGED, 0.8, [0.7, 0.9, 0.8]), True),
        # The named score is that of an earlier step, as after best weights were restored.
        (given(NAMED, 0.75), given(LOGGED, 0.8, [0.75, 0.9, 0.5, 0.8]), True),
        # The named score is equal, up to rounding, only to a value in the middle of the series.
        (given(NAMED, 0.7), given(LOGGED, 0.9, [0.2, 0.7003, 0.9]), False),
        # The variable has the last value of the reported series, and the report its best.
        (given(REPORTED, 0.9, [0.9, 0.8]), given(ScoreRank.VARIABLE, 0.8), True),
        # Equal in the few digits of the named score.
        (given(NAMED, 0.31, [0.31]), given(ScoreRank.VARIABLE, 0.3127), True),
        # Equal if the named score is in percent.
        (given(NAMED, 93.4, [93.4]), given(ScoreRank.VARIABLE, 0.934), True),
        (given(NAMED, 0.47), given(ScoreRank.VARIABLE, 47.0), False),
        (given(NAMED, math.nan), given(ScoreRank.VARIABLE, math.nan), True),
        (given(NAMED, math.nan), given(LOGGED, 0.5, [0.5]), False),
        (given(NAMED, math.inf), given(LOGGED, math.inf, [1.0, math.inf]), True),
        (given(NAMED, 0.0), given(LOGGED, 0.0, [0.5, 0.0]), True),
    ],
)
def test_sources_of_a_score_disagree_unless_rounding_percent_or_the_step_explains_the_difference(
    first: Given, other: Given, agree: bool
) -> None:
    assert bool(disagreements("acc", [first, other])) is not agree


def test_sources_that_disagree_on_a_score_in_two_trials_are_reported_in_one_sentence() -> None:
    pair = [given(NAMED, 0.47), given(LOGGED, 1.0, [1.0])]
    found = {run_id: disagreements("acc", pair) for run_id in ("0003", "0001")}
    (sentence,) = disagreements_in_words(found)
    for fact in ("acc", "2 trials", "0001", "0.47 (NAMED)", "1 (LOGGED)"):
        assert fact in sentence
    assert disagreements_in_words({}) == []
