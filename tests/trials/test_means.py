"""Repeats are runs of the same params on several seeds or folds. They end early for bad params."""

from __future__ import annotations

import random

import pytest
from studies import trial_record

from sweeper.trials import RepeatPlan, Repeats, TrialRecord, TrialState

RUNS, PROPOSALS, STUDIES = 5, 12, 100


def plan_on(*values: int, by: str = "seeds") -> RepeatPlan:
    return RepeatPlan(by=by, values=values, objective="val", direction="maximize")


def test_ending_repeats_early_finds_the_best_params_as_often_with_60_percent_of_the_runs() -> None:
    rng, n_runs, found, found_by_all = random.Random(0), 0, 0, 0
    for _ in range(STUDIES):
        truth = [rng.gauss(0, 1) for _ in range(PROPOSALS)]
        by_seed = [rng.gauss(0, 0.5) for _ in range(RUNS)]
        table = [[it + by + rng.gauss(0, 0.5) for by in by_seed] for it in truth]
        best, total = _best_of(table)
        winner = max(range(PROPOSALS), key=truth.__getitem__)
        n_runs += total
        found += best == winner
        found_by_all += max(range(PROPOSALS), key=lambda it: sum(table[it])) == winner
    assert n_runs <= 0.6 * STUDIES * PROPOSALS * RUNS
    assert abs(found - found_by_all) <= 0.02 * STUDIES


def test_after_a_change_of_the_number_of_seeds_means_use_exactly_the_present_seeds() -> None:
    records = [
        trial_record(number, seed=seed, scores={"val": score}, repeat_of=first)
        for number, (seed, score, first) in enumerate(
            [(7, 1.0, None), (8, 2.0, 0), (9, 9.0, 0), (7, 2.0, None), (8, 2.5, 3)]
        )
    ]
    fewer = Repeats(plan_on(7, 8), records).confirmation("s")
    assert (fewer.n_missing, fewer.winner and fewer.winner.mean) == (0, 2.25)
    assert [trial.run_id for trial in fewer.alike] == ["0000"]
    more = Repeats(plan_on(7, 8, 9), records).confirmation("s")
    assert [trial.run_id for trial in more.ranking] == ["0000"]


def test_a_trial_that_began_before_the_study_had_folds_has_no_mean() -> None:
    folds = [{"x": 1}, {"x": 2, "fold": 0}, {"x": 2, "fold": 1}]
    records = [
        trial_record(number, params=params, repeat_of=1 if number == 2 else None)
        for number, params in enumerate(folds)
    ]
    repeats = Repeats(plan_on(0, 1, by="folds"), records)
    assert [trial.run_id for trial in repeats.ranking] == ["0001"]


@pytest.mark.parametrize(("is_retried", "open_"), [(False, ["0000"]), (True, ["0000", "0002"])])
def test_a_proposal_with_a_run_that_has_failed_may_still_win_only_if_that_run_is_retried(
    is_retried: bool, open_: list[str]
) -> None:
    runs = [
        trial_record(0, seed=7),
        trial_record(1, seed=8, repeat_of=0),
        trial_record(2, seed=7),
        trial_record(3, seed=8, repeat_of=2, state=TrialState.FAILED),
        trial_record(4, seed=8, repeat_of=2, retry_of=3, state=TrialState.RUNNING),
    ]
    repeats = Repeats(plan_on(7, 8), runs if is_retried else runs[:-1])
    assert [proposal.run_id for proposal in repeats.contenders(1)] == open_


def _best_of(table: list[list[float]]) -> tuple[int, int]:
    """Return the number of the proposal that wins, and how many runs were made."""
    plan, records, firsts = plan_on(*range(RUNS)), list[TrialRecord](), list[int]()
    for row in table:
        firsts.append(len(records))
        for seed, score in enumerate(row):
            first = firsts[-1] if seed else None
            scores = {"val": score}
            records.append(trial_record(len(records), seed=seed, scores=scores, repeat_of=first))
            repeats = Repeats(plan, records)
            if repeats.has_lost(repeats.proposals[firsts[-1]]):
                break
    (best, *_) = Repeats(plan, records).ranking
    return firsts.index(int(best.run_id)), len(records)


def test_a_mean_without_some_folds_is_the_best_mean_minus_the_mean_gap_on_the_other_folds() -> None:
    plan = plan_on(0, 1, by="folds")
    scores = [(0, 0, 0.9), (0, 1, 0.5), (2, 0, 0.8)]
    records = [
        trial_record(
            number,
            params={"x": first, "fold": fold},
            scores={"val": score},
            repeat_of=None if number == first else first,
        )
        for number, (first, fold, score) in enumerate(scores)
    ]
    repeats = Repeats(plan, records)
    assert [round(repeats.value(it) or 0, 6) for it in repeats.proposals.values()] == [0.7, 0.6]
