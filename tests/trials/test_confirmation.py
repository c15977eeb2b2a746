"""Which trials are run again on fresh seeds, and who wins by these runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sweeper.trials import (
    Confirmation,
    ConfirmPlan,
    Reason,
    SweepResult,
    TrialRecord,
    TrialState,
    count_by_state,
    left_to_begin,
)

PLAN = ConfirmPlan(objective="acc", direction="maximize", best=2, seeds=3)
COMPLETED, FAILED, RUNNING = TrialState.COMPLETED, TrialState.FAILED, TrialState.RUNNING


def trial(number: int, score: float | None = None, **fields: Any) -> TrialRecord:
    values: dict[str, Any] = {
        "state": RUNNING if score is None else COMPLETED,
        "params": {"x": number},
        "seed": 1000 + number,
        "scores": {} if score is None else {"acc": score},
    }
    return TrialRecord(
        number=number, attempt=1, notebook=Path(f"out/{number:04d}.ipynb"), **(values | fields)
    )


def runs(of: int, *scores: float | None, first: int, **fields: Any) -> list[TrialRecord]:
    """A run for each score, on the seeds 1, 2, … of all; None for one that has not ended."""
    about = {"params": {"x": of}, "confirms": of}
    return [
        trial(first + i, score, **(about | {"repetition": i + 1, "seed": i + 1} | fields))
        for i, score in enumerate(scores)
    ]


def confirmed(records: Sequence[TrialRecord], plan: ConfirmPlan = PLAN) -> Confirmation:
    found = plan.confirmation(records)
    assert found is not None
    return found


SEARCH = [trial(0, 0.7), trial(1, 0.9), trial(2, 0.8)]


def test_each_seed_is_run_for_all_of_the_best_before_the_next_one() -> None:
    records, order = list(SEARCH), []
    while (run := PLAN.next_run(records)) is not None:
        order.append((run.confirmed.number, run.repetition, run.seed))
        about = {"confirms": run.confirmed.number, "repetition": run.repetition}
        seed = run.seed or 10 * run.repetition
        number = len(records)
        records.append(trial(number, 0.5, params=run.confirmed.params, seed=seed, **about))
    assert order == [(1, 1, None), (2, 1, 10), (1, 2, None), (2, 2, 20), (1, 3, None), (2, 3, 30)]
    assert left_to_begin(records, PLAN.confirmation(records), trials=3) == 0


def test_where_small_is_better_the_smallest_are_run_again() -> None:
    plan = ConfirmPlan(objective="acc", direction="minimize", best=1, seeds=2)
    run = plan.next_run(SEARCH)
    assert run is not None
    assert run.confirmed.number == 0


def test_trials_with_the_same_params_are_confirmed_once() -> None:
    twin = trial(3, 0.95, params={"x": 1})
    records = [*SEARCH, *runs(1, 0.6, 0.7, 0.8, first=4), twin]
    found = confirmed(records)
    assert [one.trial.number for one in found.candidates] == [3, 2]
    assert found.candidates[0].mean == pytest.approx(0.7)
    run = PLAN.next_run(records)
    assert run is not None
    assert (run.confirmed.number, run.repetition, run.seed) == (2, 1, 1)


def test_the_mean_of_the_fresh_seeds_decides_and_the_score_of_the_search_does_not() -> None:
    found = confirmed(
        [*SEARCH, *runs(1, 0.70, 0.72, 0.71, first=3), *runs(2, 0.80, 0.82, 0.81, first=6)]
    )
    assert found.winner is not None
    assert (found.winner.trial.number, found.winner.search_score) == (2, 0.8)
    assert found.winner.mean == pytest.approx(0.81)
    assert found.winner.std == pytest.approx(0.01)
    # 0.81 +- 4.302653 * 0.01 / sqrt(3), by the table of Student's t with 2 degrees.
    assert found.winner.interval == pytest.approx((0.785159, 0.834841), abs=1e-6)
    assert found.winners([SEARCH[1]]) == [SEARCH[2]]
    assert found.alike == []


def test_differences_that_luck_can_make_leave_the_two_best_alike() -> None:
    found = confirmed(
        [*SEARCH, *runs(1, 0.70, 0.90, 0.80, first=3), *runs(2, 0.81, 0.79, 0.83, first=6)]
    )
    assert found.winner is not None
    assert [one.trial.number for one in found.alike] == [1]
    data = found.to_json()
    assert data["indistinguishable"] == ["0001"]
    assert data["ranking"][1]["p_value"] > 0.05


def test_seeds_are_compared_in_pairs() -> None:
    # Each seed moves both scores by far more than their difference.
    found = confirmed(
        [*SEARCH, *runs(1, 0.10, 0.50, 0.901, first=3), *runs(2, 0.2, 0.601, 1.0, first=6)]
    )
    assert found.winner is not None
    assert found.winner.trial.number == 2
    assert found.alike == []


def test_nobody_has_won_while_one_of_the_best_has_no_spread() -> None:
    half = [*SEARCH, *runs(1, 0.9, 0.9, None, first=3), *runs(2, 0.8, first=6)]
    found = confirmed(half)
    assert found.winner is None
    assert found.winners([SEARCH[1]]) == [SEARCH[1]]
    assert (found.n_missing, found.n_wanted) == (3, 6)
    # One runs and two are to begin.
    assert left_to_begin(half, found, trials=3) == 2


def test_a_better_trial_of_a_search_that_goes_on_takes_the_win_until_it_is_confirmed() -> None:
    before = [*SEARCH, *runs(1, 0.7, 0.72, 0.71, first=3), *runs(2, 0.5, 0.52, 0.51, first=6)]
    assert confirmed(before).winner is not None
    after = [*before, trial(9, 0.95)]
    assert confirmed(after).winner is None
    run = PLAN.next_run(after)
    assert run is not None
    assert (run.confirmed.number, run.repetition, run.seed) == (9, 1, 1)
    done = confirmed([*after, *runs(9, 0.6, 0.62, 0.61, first=10)])
    assert done.winner is not None
    assert done.winner.trial.number == 1
    assert [one.trial.number for one in done.ranking] == [1, 9, 2], "2 was confirmed before"


def test_more_seeds_are_added_to_those_that_there_are() -> None:
    records = [*SEARCH, *runs(1, 0.7, 0.8, 0.9, first=3), *runs(2, 0.6, 0.7, 0.8, first=6)]
    more = ConfirmPlan(objective="acc", direction="maximize", best=2, seeds=4)
    run = more.next_run(records)
    assert run is not None
    assert (run.confirmed.number, run.repetition, run.seed) == (1, 4, None)


def test_failed_runs_are_not_repeated_and_leave_fewer_seeds() -> None:
    broken = runs(1, 0.6, first=3)
    broken += [
        trial(4 + i, state=FAILED, params={"x": 1}, confirms=1, repetition=2 + i, seed=2 + i)
        for i in range(2)
    ]
    records = [*SEARCH, *broken, *runs(2, 0.5, 0.52, 0.51, first=6)]
    assert PLAN.next_run(records) is None
    found = confirmed(records)
    assert found.winner is not None
    assert found.winner.trial.number == 2, "the other one has no spread, and never will"
    one = found.of(SEARCH[1])
    assert one is not None
    assert (one.n_failed, one.mean, one.std, one.interval) == (2, 0.6, None, None)


def test_a_run_that_is_tried_again_counts_once() -> None:
    failed = trial(3, state=FAILED, params={"x": 1}, confirms=1, repetition=1, seed=1)
    again = trial(4, 0.8, params={"x": 1}, confirms=1, repetition=1, seed=1, retry_of=3)
    one = confirmed([*SEARCH, failed, again]).of(SEARCH[1])
    assert one is not None
    assert (one.scores, one.n_failed) == ({1: 0.8}, 0)


def test_a_run_that_was_stopped_with_its_sweep_is_missing_and_will_begin_again() -> None:
    stopped = trial(
        3,
        state=TrialState.STOPPED,
        reason=Reason.INTERRUPTED,
        params={"x": 1},
        confirms=1,
        repetition=1,
        seed=1,
    )
    found = confirmed([*SEARCH, stopped])
    assert (found.n_missing, found.left_to_begin(search=0)) == (6, 6)


def test_the_same_score_on_all_seeds_has_no_interval() -> None:
    found = confirmed([*SEARCH, *runs(1, 0.9, 0.9, 0.9, first=3), *runs(2, 0.8, 0.8, 0.8, first=6)])
    assert found.has_no_effect
    assert found.winner is not None
    assert (found.winner.std, found.winner.interval) == (0.0, None)


def test_a_search_that_has_not_ended_is_expected_to_be_confirmed() -> None:
    records = [trial(0, 0.5), trial(1)]
    found = confirmed(records)
    # 5 trials, of which one has ended and one runs, and 2 times 3 runs.
    assert left_to_begin(records, found, trials=5) == 3 + 6
    assert left_to_begin(records, None, trials=5) == 3


def test_what_was_confirmed_counts_in_a_study_that_does_not_ask_for_it_any_more() -> None:
    plan = ConfirmPlan.of({"objective": {"acc": {"direction": "maximize"}}})
    assert plan is not None
    assert plan.confirmation(SEARCH) is None
    found = confirmed([*SEARCH, *runs(1, 0.6, 0.62, 0.61, first=3)], plan)
    assert found.winner is not None
    assert (found.best, found.seeds, found.is_asked) == (1, 3, False)
    assert plan.next_run([*SEARCH, *runs(1, 0.6, first=3)]) is None


def test_a_plan_is_read_from_what_a_study_stores() -> None:
    goal = {"acc": {"direction": "minimize", "take": "best"}}
    plan = ConfirmPlan.of({"objective": goal, "confirm": {"best": 7}})
    assert plan == ConfirmPlan(objective="acc", direction="minimize", best=7, seeds=5)
    assert ConfirmPlan.of({"objective": {**goal, "b": {"direction": "minimize"}}}) is None


def test_a_result_says_by_what_its_best_trial_has_won() -> None:
    records = [*SEARCH, *runs(1, 0.70, 0.72, 0.71, first=3), *runs(2, 0.80, 0.82, 0.81, first=6)]
    found = confirmed(records)
    result = SweepResult(
        study="s",
        storage="",
        tracking_uri="",
        experiment_id="1",
        objectives=["acc"],
        records=records,
        best=found.winners([SEARCH[1]]),
        mlflow_run_ids={},
        compare_url=None,
        confirmation=found,
    )
    data = json.loads(json.dumps(result.to_json(), allow_nan=False))
    best = data["best"]
    assert (best["run_id"], best["won_by"]) == ("0002", "confirmed_mean")
    assert (best["confirmed"]["seeds"], best["confirmed"]["search_score"]) == (3, 0.8)
    assert best["scores"] == {"acc": 0.8}
    assert data["counts"]["completed"] == 3, "confirming trials come on top"
    assert [it["confirms"] for it in data["trials"]] == [None] * 3 + ["0001"] * 3 + ["0002"] * 3
    assert count_by_state(records)["completed"] == 3
    assert "over fresh seeds" in repr(result)
    html = result._repr_html_()
    assert html.index("0002.ipynb") < html.index("0001.ipynb") < html.index("0000.ipynb")
    assert "0003.ipynb" not in html
