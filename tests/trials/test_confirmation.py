"""The best trials are confirmed, which means run again on fresh seeds. The best mean wins."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from studies import small_settings, sweep_result, trial_record

from sweeper.answer import StudySoFar, answer_of
from sweeper.display.screen import confirmation_lines
from sweeper.trials import (
    Confirmation,
    PlannedTrial,
    RerunPlan,
    TrialRecord,
    TrialState,
    best_trials,
)

COMPLETED, FAILED, RUNNING = TrialState.COMPLETED, TrialState.FAILED, TrialState.RUNNING
SEEDS = [100, 101]
STORAGE = "sqlite:////work/out/digits/study.db"


def trial(number: int, score: float | None, **fields: Any) -> TrialRecord:
    state, scores = (FAILED, {}) if score is None else (COMPLETED, {"acc": score})
    usual = {"state": state, "params": {"x": number}, "seed": number, "scores": scores}
    return trial_record(number, **{**usual, **fields})


def confirmation(*scores: Sequence[float | None], **changes: Any) -> Confirmation:
    """Return the ranking of trials 0, 1, … with these scores on the seeds. None is a failed run."""
    found = [trial(number, (0.9, 0.8, 0.7)[number]) for number in range(len(scores))]
    plan = RerunPlan.of_trials(
        found, SEEDS, objective="acc", direction=changes.pop("direction", "maximize")
    )
    runs = [
        trial(0, score, params={"x": number}, seed=seed, **changes)
        for number, its in enumerate(scores)
        for seed, score in zip(SEEDS, its, strict=False)
    ]
    return Confirmation.of("digits-confirm", plan, runs)


def winner_of(found: Confirmation) -> str | None:
    return None if found.winner is None else found.winner.run_id


def best_of(found: Confirmation, best: TrialRecord | None = None) -> str:
    """Return the sentence about the best trial in the summary of the search."""
    best = best or trial(int(str(winner_of(found))), 0.9)
    result = sweep_result(objectives=["acc"], records=[best], best=[best], confirmation=found)
    assert result.insights is not None
    return dict(result.insights.sentences)["best"]


def test_best_trials_lists_completed_trials_the_best_first_and_equal_params_only_once() -> None:
    records = [
        trial(0, 0.5),
        trial(1, 0.9),
        trial(2, 0.7, params={"x": 1}),
        trial(3, None),
        trial(4, float("inf")),
        trial(5, 0.6),
    ]
    best = best_trials(records, objective="acc", direction="maximize", count=2)
    assert [record.number for record in best] == [1, 5]
    least = best_trials(records, objective="acc", direction="minimize", count=9)
    assert [record.number for record in least] == [0, 5, 2]


@pytest.mark.parametrize(("direction", "first"), [("maximize", "0001"), ("minimize", "0000")])
def test_the_trial_with_the_best_mean_on_fresh_seeds_wins_whatever_its_search_score(
    direction: str, first: str
) -> None:
    found = confirmation((0.6, 0.61), (0.7, 0.712), direction=direction)
    assert winner_of(found) == first
    assert found.ranking[0].run_id == first
    assert not found.alike


def test_the_interval_of_a_confirmed_mean_is_that_of_students_t_distribution() -> None:
    (one,) = confirmation((0.7, 0.712)).ranking
    assert one.mean == pytest.approx(0.706)
    assert one.interval == pytest.approx((0.706 - 12.7062 * 0.006, 0.706 + 12.7062 * 0.006), 1e-5)


def test_trials_without_a_significant_difference_are_reported_as_equally_good() -> None:
    found = confirmation((0.6, 0.8), (0.5, 0.85), (0.1, 0.3))
    assert winner_of(found) == "0000"
    assert [one.run_id for one in found.alike] == ["0001"]
    assert "0000  acc=0.7 ± 1.3, mean of 2 fresh seeds (0.9 in the search)" in best_of(found)
    assert "cannot be told apart from 0001" in best_of(found)


def test_only_a_trial_with_a_score_for_each_seed_can_win() -> None:
    found = confirmation((0.6, 0.61), (0.99, None))
    assert found.n_missing == 0
    assert winner_of(found) == "0000"
    lines = confirmation_lines(found, STORAGE)
    assert "– 0001  0.99; 0.8 in the search; it has 1 of 2 scores and cannot win" in lines[2]
    assert "`notebook_hpo.py retry /work/out/digits-confirm --failed`" in lines[-1]
    assert winner_of(confirmation((None, 0.6), (0.99, None))) is None


def test_there_is_no_winner_while_a_run_is_missing_or_has_not_ended() -> None:
    for found in (
        confirmation((0.6, 0.61), (0.7,)),
        confirmation((0.6, 0.61), state=RUNNING),
    ):
        assert found.winner is None
        assert found.best_of([], [trial(0, 0.9)]) == [trial(0, 0.9)]
        assert best_of(found, trial(0, 0.9)) == "0000  acc=0.9, not confirmed"
    assert "1 of 4 runs on fresh seeds are missing; the same" in "\n".join(
        confirmation_lines(confirmation((0.6, 0.61), (0.7,)), STORAGE)
    )


def test_a_retry_that_completes_replaces_the_failed_run() -> None:
    plan = RerunPlan.of_trials([trial(0, 0.9)], SEEDS, objective="acc", direction="maximize")
    runs = [
        trial(0, None, params={"x": 0}, seed=100),
        trial(1, 0.5, params={"x": 0}, seed=101),
        trial(2, 0.7, params={"x": 0}, seed=100, retry_of=0),
        trial(3, 0.1, params={"x": 0}, seed=7),
    ]
    found = Confirmation.of("c", plan, runs)
    assert found.ranking[0].scores == {100: 0.7, 101: 0.5}
    assert [run.number for run in found.own_best] == [2]


@pytest.mark.parametrize(
    ("planned", "ran"),
    [(0, 0.0), (1e300, 1e300), ({"depth": 2, "width": 8}, {"width": 8, "depth": 2})],
)
def test_a_rerun_belongs_to_its_trial_even_if_its_params_differ_in_number_type_or_key_order(
    planned: Any, ran: Any
) -> None:
    found = [trial(0, 0.9, params={"x": planned}), trial(1, 0.8, params={"x": True})]
    plan = RerunPlan.of_trials(found, SEEDS, objective="acc", direction="maximize")
    scores = ((ran, 0.5), (True, 0.4))
    runs = [trial(0, s, params={"x": x}, seed=seed) for x, s in scores for seed in SEEDS]
    assert winner_of(Confirmation.of("c", plan, runs)) == "0000"


def test_a_confirmation_shows_each_mean_with_an_interval_next_to_the_search_score() -> None:
    found = confirmation((0.6, 0.61), (0.7, 0.712))
    assert confirmation_lines(found, STORAGE) == [
        "run again on 2 fresh seeds (digits-confirm): mean of acc, with its 95 % interval",
        "  1. 0001  0.706, 0.629763 to 0.782237 (std 0.0085); 0.8 in the search",
        "  2. 0000  0.605, 0.541469 to 0.668531 (std 0.0071); 0.9 in the search",
    ]
    assert best_of(found).startswith("0001  acc=0.706 ± 0.076, mean of 2 fresh seeds")
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["winner"] == "0001"


def test_an_ablation_is_suggested_until_it_has_been_made() -> None:
    runs = confirmation((0.7, 0.712), (0.6, 0.61))
    best = trial(0, 0.9)
    result = sweep_result(objectives=["acc"], records=[best], best=[best], confirmation=runs)
    assert result.insights is not None
    assert "`notebook_hpo.py ablate out/digits`" in dict(result.insights.sentences)["next"]
    for ablated, is_suggested in (("0000", False), ("0001", True)):
        settings = small_settings("digits", objective={"acc": "maximize"}, study={"trials": 1})
        study = StudySoFar(
            settings=settings,
            records=[best],
            best=[best],
            words=["out/digits"],
            confirmation=runs,
            ablated=ablated,
        )
        assert ("next" in dict(answer_of(study).sentences)) is is_suggested


def test_equal_scores_on_all_seeds_are_reported_as_a_seed_without_effect() -> None:
    found = confirmation((0.6, 0.6))
    assert found.has_no_effect
    assert found.ranking[0].interval is None
    assert "every seed gives the same score" in confirmation_lines(found, STORAGE)[-1]


@pytest.mark.parametrize(("direction", "first"), [("maximize", "x=2"), ("minimize", "x=1")])
def test_an_ablation_gives_the_gain_over_each_changed_value_on_the_same_seeds(
    direction: str, first: str
) -> None:
    plan = RerunPlan.of_trials([trial(0, 0.9)], SEEDS, objective="acc", direction=direction)
    changes = [PlannedTrial(run_id=f"x={x}", params={"x": x}, score=None) for x in (1, 2, 3)]
    plan = replace(plan, ablated="0000", trials=[*plan.trials, *changes])
    scores = {0: (0.5, 0.7), 1: (0.6, 0.8), 2: (0.3, 0.4), 3: (0.1, None)}
    runs = [
        trial(0, score, params={"x": x}, seed=seed)
        for x, its in scores.items()
        for seed, score in zip(SEEDS, its, strict=True)
    ]
    found = Confirmation.of("digits-ablate", plan, runs)
    assert next(iter(found.worths)) == first
    assert found.worths.keys() == {"x=1", "x=2"}, (
        "x=3 has no gain, because it has no score on one seed"
    )
    low, high = found.worths["x=2"]
    assert (low + high) / 2 == pytest.approx(0.25 if direction == "maximize" else -0.25)
    assert (high - low) / 2 == pytest.approx(12.706 * 0.05, rel=1e-3)
    assert not Confirmation.of("digits-ablate", plan, runs[1:]).worths
    (line,) = (it for it in confirmation_lines(found, STORAGE) if "x=0 instead of 2" in it)
    assert line.endswith("; cannot be told apart from 0")


def test_the_gain_over_another_study_is_none_without_two_winners_or_if_no_score_varies() -> None:
    old = confirmation((0.70, 0.72))
    gain = confirmation((0.80, 0.83)).gain_over(old)
    assert gain is not None
    assert sum(gain) / 2 == pytest.approx(0.105)
    assert confirmation((0.80, None)).gain_over(old) is None
    assert confirmation((0.8, 0.8)).gain_over(confirmation((0.7, 0.7))) is None
    less = [confirmation(its, direction="minimize") for its in ((0.6, 0.61), (0.7, 0.712))]
    gain = less[0].gain_over(less[1])
    assert gain is not None
    assert sum(gain) > 0
    assert less[0].gain_over(old) is None
