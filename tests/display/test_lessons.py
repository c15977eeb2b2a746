"""What the summary says of pruning and of params."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.display.lessons import lesson_lines
from sweeper.trials import (
    ImportanceRange,
    SweepResult,
    TrialRecord,
    TrialState,
    seconds_not_run,
)


def trial(number: int, duration_s: float, *, pruned: bool = False, epochs: int = 4) -> TrialRecord:
    return TrialRecord(
        number=number,
        state=TrialState.PRUNED if pruned else TrialState.COMPLETED,
        params={"epochs": epochs},
        seed=0,
        attempt=1,
        notebook=Path(f"{number:04d}.ipynb"),
        duration_s=duration_s,
    )


def result(records: Sequence[TrialRecord]) -> SweepResult:
    return SweepResult(
        study="study",
        storage="sqlite:///s.db",
        tracking_uri="sqlite:///m.db",
        experiment_id="1",
        objectives=["val"],
        records=records,
        best=[],
        mlflow_run_ids={},
        compare_url=None,
        page=Path("index.html"),
        not_run_s=seconds_not_run(records),
    )


def test_pruned_trials_would_have_taken_as_long_as_the_others() -> None:
    records = [trial(0, 60.0), trial(1, 100.0), trial(2, 20.0, pruned=True)]
    assert seconds_not_run(records) == pytest.approx(60.0)
    assert lesson_lines(result(records)) == [
        "pruned: 1 of 3 trials after 25% of their time; about 1m00s of running was saved"
    ]


@pytest.mark.parametrize("records", [[], [trial(0, 9.0)], [trial(0, 9.0, pruned=True)]])
def test_without_pruned_trials_or_others_nothing_is_claimed(records: list[TrialRecord]) -> None:
    assert lesson_lines(result(records)) == []


def test_the_params_that_mattered_most_come_with_their_ranges() -> None:
    shares = {"lr": 0.62, "width": 0.2, "seed": 0.1, "other": 0.08}
    found = {n: ImportanceRange(share=s, low=s / 2, high=s * 1.5) for n, s in shares.items()}
    one = replace(result([]), importances={"val": found})
    assert lesson_lines(one) == [
        "what mattered for val: lr 62% (31 to 93%), width 20% (10 to 30%), seed 10% (5 to 15%)"
    ]
    assert one.to_json()["importances"]["val"]["lr"] == {"share": 0.62, "low": 0.31, "high": 0.93}


def test_a_single_param_explains_all_there_is_and_has_no_line() -> None:
    found = {"lr": ImportanceRange(share=1.0, low=1.0, high=1.0)}
    assert lesson_lines(replace(result([]), importances={"val": found})) == []
