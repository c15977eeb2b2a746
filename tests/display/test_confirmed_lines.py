"""What people read about the best trials that were run again on fresh seeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sweeper.display import screen
from sweeper.display.confirmed import confirmation_lines, progress_line, trial_name, won_by
from sweeper.trials import Confirmation, ConfirmPlan, Snapshot, TrialRecord, TrialState

COMPLETED, FAILED = TrialState.COMPLETED, TrialState.FAILED


def trial(number: int, score: float | None, **fields: Any) -> TrialRecord:
    scores = {} if score is None else {"acc": score}
    values: dict[str, Any] = {"params": {"x": number}, "state": COMPLETED, "scores": scores}
    path = Path(f"out/{number:04d}.ipynb")
    return TrialRecord(number=number, seed=number, attempt=1, notebook=path, **(values | fields))


def confirmation(*scores: Sequence[float | None], seeds: int = 2) -> Confirmation:
    """Of trials 0, 1, …: the scores on the seeds; None for a run that has failed."""
    records = [trial(number, 0.9 - number / 10) for number in range(len(scores))]
    for of, its in enumerate(scores):
        for i, score in enumerate(its):
            about = {"params": {"x": of}, "confirms": of, "repetition": i + 1}
            state = FAILED if score is None else COMPLETED
            run = trial(10 * (of + 1) + i, score, state=state, **about)
            records.append(TrialRecord(**{**_fields(run), "seed": 100 + i}))
    plan = ConfirmPlan(objective="acc", direction="maximize", best=len(scores), seeds=seeds)
    found = plan.confirmation(records)
    assert found is not None
    return found


def _fields(record: TrialRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}


def test_each_trial_has_its_mean_with_an_interval_beside_its_score_in_the_search() -> None:
    lines = confirmation_lines(confirmation((0.6, 0.61), (0.7, 0.712)))
    assert lines == [
        "run again on 2 fresh seeds: mean of acc, with its 95 % interval",
        "  1. 0001  0.706, 0.629763 to 0.782237 (std 0.0085, 2 seeds); 0.8 in the search",
        "  2. 0000  0.605, 0.541469 to 0.668531 (std 0.0071, 2 seeds); 0.9 in the search",
    ]


def test_the_best_says_by_what_it_has_won() -> None:
    found = confirmation((0.6, 0.61), (0.7, 0.712))
    assert won_by(trial(1, 0.8), found) == "  by its mean over 2 fresh seeds, 0.706"
    assert won_by(trial(1, 0.8), None) == ""
    running = confirmation((0.6,), (0.7,))
    assert "by its score in the search" in won_by(trial(0, 0.9), running)
    first = screen.best_lines([trial(1, 0.8)], ["acc"], found)[0]
    assert first == "best: 0001  acc=0.8  (x=1)  by its mean over 2 fresh seeds, 0.706"


def test_two_that_luck_may_have_ordered_cannot_be_told_apart() -> None:
    lines = confirmation_lines(confirmation((0.6, 0.7), (0.68, 0.61)))
    assert lines[-1].startswith("  0000 cannot be told apart from 0001 (paired t-test over the ")
    assert lines[-1].endswith("p = 0.96); more --seeds may")


def test_missing_and_failed_runs_are_counted() -> None:
    lines = confirmation_lines(confirmation((0.6, None, 0.7), (0.7,), seeds=3))
    assert "1 of its runs gave no score, so its mean leaves these seeds out" in lines[1]
    assert lines[2].startswith("  – 0001  0.7 (1 seed, so no spread is known)")
    assert lines[2].endswith("2 of 3 runs are missing")
    assert lines[-1] == (
        "  2 of 6 runs on fresh seeds are missing; the same command goes on with them"
    )


def test_a_spread_of_nothing_is_no_certainty() -> None:
    lines = confirmation_lines(confirmation((0.6, 0.6), (0.7, 0.7)))
    assert "0.7 (the same on 2 seeds)" in lines[1]
    assert "the notebook does not use its seed" in lines[-1]


def test_the_table_counts_them_beside_the_search_and_marks_those_that_run() -> None:
    found = confirmation((0.6,), (0.7,))
    assert progress_line(found) == "confirming: 2 of 4 runs"
    snapshot = Snapshot(
        study="s",
        trials=2,
        counts={"completed": 2},
        objectives=["acc"],
        running=[],
        best=[],
        confirmation=found,
    )
    assert screen._head(snapshot) == "s · 2 of 2 trials · 2 completed · confirming: 2 of 4 runs"


def test_a_run_is_named_with_what_it_confirms() -> None:
    assert trial_name(trial(7, 0.5)) == "0007"
    assert trial_name(trial(7, 0.5, confirms=3, repetition=2)) == "0007 (confirms 0003, seed 2)"
