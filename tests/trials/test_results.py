"""The result of a sweep as `--json` prints it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from sweeper.trials import Reason, SweepResult, TrialRecord, TrialState, count_by_state


def record(number: int, state: TrialState, **fields: Any) -> TrialRecord:
    return TrialRecord(
        number=number,
        state=state,
        params={"lr": 0.1},
        seed=number,
        attempt=1,
        notebook=Path(f"out/{number:04d}.ipynb"),
        **fields,
    )


BEST = record(0, TrialState.COMPLETED, scores={"acc": 0.9})
FAILED = record(
    1,
    TrialState.FAILED,
    scores={"acc": math.nan},
    reason=Reason.NOT_FINITE,
    message="acc is nan",
    duration_s=1.23456,
    retry_of=0,
)


def result(**fields: Any) -> SweepResult:
    values: dict[str, Any] = {
        "study": "s",
        "storage": "sqlite:///s.db",
        "tracking_uri": "sqlite:///mlflow.db",
        "experiment_id": "1",
        "objectives": ["acc"],
        "records": [BEST, FAILED],
        "best": [BEST],
        "mlflow_run_ids": {"0000": "abc"},
        "compare_url": None,
    }
    return SweepResult(**(values | fields))


def test_every_final_state_is_counted_and_running_only_where_there_is_one() -> None:
    counts = {"completed": 1, "pruned": 0, "failed": 1, "stopped": 0}
    assert count_by_state([BEST, FAILED]) == counts
    running = record(2, TrialState.RUNNING)
    assert count_by_state([BEST, FAILED, running]) == {**counts, "running": 1}


def test_the_json_is_valid_also_with_a_score_that_is_not_finite() -> None:
    data = json.loads(json.dumps(result().to_json(), allow_nan=False))
    best, failed = data["trials"]
    assert (best["scores"], best["mlflow_run_id"]) == ({"acc": 0.9}, "abc")
    assert (failed["scores"], failed["reason"]) == ({"acc": "nan"}, "not_finite")
    assert (failed["duration_s"], failed["retry_of"]) == (1.235, "0000")
    assert failed["mlflow_run_id"] is None


@pytest.mark.parametrize(
    ("objectives", "best", "expected"),
    [
        (["acc"], [BEST], "0000"),
        (["acc"], [], None),
        (["acc", "size"], [BEST], ["0000"]),
        (["acc", "size"], [], []),
    ],
)
def test_best_is_one_trial_or_a_list_where_there_are_several_objectives(
    objectives: list[str], best: list[TrialRecord], expected: Any
) -> None:
    found = result(objectives=objectives, best=best).to_json()["best"]
    if isinstance(found, list):
        assert [trial["run_id"] for trial in found] == expected
    else:
        assert (found and found["run_id"]) == expected
