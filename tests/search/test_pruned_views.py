"""The Gaussian process sees pruned trials with their predicted scores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import optuna
import pytest
from opened_studies import completed
from optuna.trial import FrozenTrial, TrialState

from sweeper.search.samplers.views import StorageView, with_expected_scores, with_learned
from sweeper.search.trial_codec import RECORD
from sweeper.trials import Reason, TrialOutcome
from sweeper.trials import TrialState as State

pytestmark = pytest.mark.slow  # Gaussian processes

Direction = Literal["maximize", "minimize"]
UNIT = optuna.distributions.FloatDistribution(0.0, 1.0)


def trial(state: TrialState, *curve: float, x: float = 0.5) -> FrozenTrial:
    return optuna.trial.create_trial(
        state=state,
        params={"x": x},
        distributions={"x": UNIT},
        intermediate_values=dict(enumerate(curve)),
        value=curve[-1] if state is TrialState.COMPLETE else None,
    )


def seen(
    *trials: FrozenTrial,
    direction: Direction = "maximize",
    learned: Sequence[FrozenTrial] = (),
    is_clipped: bool = False,
) -> list[float | None]:
    """Return the scores of the trials that the sampler sees as completed."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction=direction)
    study.add_trials(trials)
    if learned:
        storage = StorageView(study._storage, partial(with_learned, studies=[learned]))
        study = storage.study(study)
    view = with_expected_scores(study, is_clipped=is_clipped)
    return [one.value for one in view.get_trials(states=(TrialState.COMPLETE,))]


#: Completed trials. Each ends at twice its first value.
CURVES = [trial(TrialState.COMPLETE, n / 10, n / 5) for n in range(6)]


def pruned(*curve: float) -> FrozenTrial:
    return trial(TrialState.PRUNED, *curve)


def test_a_pruned_trial_counts_with_its_predicted_score() -> None:
    low, middle, high = seen(*CURVES, pruned(0.05), pruned(0.25), pruned(0.45))[-3:]
    assert low is not None
    assert middle is not None
    assert high is not None
    assert 0 < low < middle < high < 1


def test_frozen_and_pruned_trials_have_predicted_scores_and_running_ones_have_none() -> None:
    frozen, running = trial(TrialState.RUNNING, 0.25), trial(TrialState.RUNNING, 0.25)
    frozen.user_attrs = {RECORD: {"state": "frozen"}}
    assert seen(*CURVES, frozen) == seen(*CURVES, pruned(0.25))
    assert seen(*CURVES, running) == [one.value for one in CURVES]


def test_a_frozen_trial_that_fails_while_a_proposal_is_made_still_counts_as_frozen() -> None:
    study = optuna.create_study(direction="maximize")
    frozen = trial(TrialState.RUNNING, 0.25)
    frozen.user_attrs = {RECORD: {"state": "frozen"}}
    study.add_trials([*CURVES, frozen])
    reads: list[int] = []

    def fails(trials: list[FrozenTrial]) -> list[FrozenTrial]:
        reads.append(1)
        return trials if len(reads) == 1 else trials[:-1]

    view = with_expected_scores(StorageView(study._storage, fails).study(study))
    assert len(view.get_trials(states=(TrialState.COMPLETE,))) == len(CURVES) + 1


def test_bad_pruned_trials_have_worse_predicted_scores_than_good_completed_ones() -> None:
    *good, bad, middle = seen(*CURVES[-2:], pruned(0.0), pruned(0.2))
    assert bad is not None
    assert middle is not None
    assert bad < middle < 0.9 * min(value for value in good if value is not None)


def test_the_predicted_score_of_a_pruned_trial_may_be_the_best_and_an_outlier_is_clipped() -> None:
    assert seen(*CURVES, pruned(0.6))[-1] == pytest.approx(1.2)
    assert seen(*CURVES[:3], pruned(-9.0))[-1] == pytest.approx(0.1 - 4 * (0.4 - 0.1))


@pytest.mark.parametrize(("direction", "worst"), [("maximize", 0.0), ("minimize", 1.0)])
def test_a_diverged_trial_counts_as_the_worst_trial(direction: Direction, worst: float) -> None:
    assert seen(*CURVES, pruned(0.3, float("nan")), direction=direction)[-1] == worst


def test_the_sampler_sees_no_pruned_trial_if_it_has_no_reports_or_no_trial_has_completed() -> None:
    assert seen(*CURVES, pruned()) == [one.value for one in CURVES]
    assert seen(pruned(0.3)) == []


def test_the_gaussian_process_proposes_trials_even_if_most_trials_are_pruned(begin: Any) -> None:
    pytest.importorskip("torch")
    space = {"x": {"low": 0.0, "high": 1.0}}
    chosen = {"name": "gp", "n_startup_trials": 6}
    opened = begin(space, sampler=chosen, trials=9)
    design = begin(space, sampler={"name": "gp", "n_startup_trials": 99}, trials=9)
    proposals = []
    for number in range(9):
        record = opened.ask()
        proposals.append((record.params["x"], design.ask().params["x"]))
        value = 1 - abs(float(record.params["x"]) - 0.3)
        opened.study.note_report(record.number, 0, value)
        outcome = completed(value) if number < 3 else TrialOutcome(state=State.PRUNED)
        opened.study.tell(record.number, outcome)
    assert all(ours == points for ours, points in proposals[:6])
    assert not any(ours == points for ours, points in proposals[6:])


def test_a_trial_that_has_reached_the_last_step_of_completed_trials_is_not_pruned(
    begin: Any,
) -> None:
    opened = begin({"x": {"low": 0.0, "high": 1.0}}, sampler="random", trials=3)
    pruner = optuna.pruners.ThresholdPruner(lower=0.5)
    first, second = opened.ask(), opened.ask()
    for step in range(3):
        opened.study.note_report(first.number, step, 0.9)
    opened.study.tell(first.number, completed(0.9))
    opened.study.note_report(second.number, 1, 0.1)
    assert opened.study.why_to_prune(second.number, pruner) is not None
    opened.study.note_report(second.number, 2, 0.1)
    assert opened.study.why_to_prune(second.number, pruner) is None


def test_the_gaussian_process_still_proposes_new_params_after_pruned_and_infeasible_trials(
    begin: Any,
) -> None:
    pytest.importorskip("torch")
    opened = begin(
        {"x": {"low": 0.0, "high": 1.0}}, sampler={"name": "gp", "n_startup_trials": 4}, trials=9
    )
    infeasible = TrialOutcome(
        state=State.FAILED, reason=Reason.OUT_OF_MEMORY, message="?", is_infeasible=True
    )
    pruned = TrialOutcome(state=State.PRUNED)
    asked = []
    for number in range(9):
        record = opened.ask()
        x = float(str(record.params["x"]))
        score = x * (0.8 - x)
        opened.study.note_report(record.number, 0, score)
        ended = (completed(score), completed(score), pruned, infeasible)[number % 4]
        opened.study.tell(record.number, ended)
        asked.append(x)
    assert len({*asked}) == 9


def failed(reason: Reason, x: float = 0.25) -> FrozenTrial:
    one = trial(TrialState.FAIL, x=x)
    one.user_attrs = {RECORD: {"reason": str(reason)}}
    return one


@pytest.mark.parametrize(("direction", "worst"), [("maximize", 0.0), ("minimize", 1.0)])
@pytest.mark.parametrize("reason", [Reason.CELL_ERROR, Reason.NOT_FINITE, Reason.TIME_LIMIT])
def test_a_trial_that_failed_because_of_its_params_counts_as_the_worst_trial(
    reason: Reason, direction: Direction, worst: float
) -> None:
    assert seen(*CURVES, failed(reason), direction=direction)[-1] == worst


@pytest.mark.parametrize("reason", [Reason.WORKER_LOST, Reason.GPU_FAULT, Reason.INTERNAL])
def test_the_sampler_does_not_see_a_trial_that_failed_because_of_the_machine(
    reason: Reason,
) -> None:
    assert len(seen(*CURVES, failed(reason))) == len(CURVES)


def test_a_failure_does_not_count_after_a_trial_with_the_same_params_has_completed() -> None:
    retried = failed(Reason.CELL_ERROR, x=CURVES[0].params["x"])
    assert len(seen(*CURVES, failed(Reason.CELL_ERROR), retried)) == len(CURVES) + 1


def losses(*values: float) -> list[FrozenTrial]:
    return [trial(TrialState.COMPLETE, value) for value in values]


def test_an_extremely_bad_score_of_a_completed_trial_is_clipped_to_an_ordinary_bad_score() -> None:
    """Next to a score of 1e6, a Gaussian process could not tell the other trials apart."""
    clipped = seen(*losses(0.25, 0.3, 0.35, 1e6), direction="minimize", is_clipped=True)
    assert clipped == pytest.approx([0.25, 0.3, 0.35, 0.625])


def test_clipping_an_outlier_of_an_earlier_study_leaves_its_other_scores_unchanged() -> None:
    own, *learned = losses(0.25, 0.25, 0.3, 1e6, 0.35)
    clipped = seen(own, learned=learned, direction="minimize", is_clipped=True)
    assert clipped == pytest.approx([0.25, 0.25, 0.3, 0.5, 0.35])


def test_importances_and_score_surfaces_use_the_unclipped_scores_of_completed_trials() -> None:
    assert seen(*losses(0.25, 0.3, 0.35, 1e6), direction="minimize") == [0.25, 0.3, 0.35, 1e6]


def test_failures_count_as_the_worst_trial_even_if_most_trials_are_equally_good() -> None:
    good, bad = trial(TrialState.COMPLETE, 0.9), trial(TrialState.COMPLETE, 0.2, x=0.1)
    assert seen(good, good, good, bad, failed(Reason.CELL_ERROR)) == [0.9, 0.9, 0.9, 0.2, 0.2]
