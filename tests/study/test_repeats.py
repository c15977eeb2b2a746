"""With `repeat`, each proposal runs on several seeds or folds, and the best mean score wins."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from opened_studies import RANGE, Opened, completed, failed
from studies import mlflow_client, sweep_of

from sweeper.control.lookup import find_study
from sweeper.control.steering import retry
from sweeper.display.screen import summary
from sweeper.settings import Settings
from sweeper.testing import write_notebook
from sweeper.trials import (
    Confirmation,
    Reason,
    RunningTrial,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
    TrialState,
)


@pytest.fixture
def repeat(begin: Any) -> Any:
    """Return a function that opens a study with `repeat`."""

    def repeat(
        trials: int, space: Any = RANGE, sampler: Any = "random", start: Any = (), **how: int
    ) -> Opened:
        plain = begin(space, trials=trials, sampler=sampler, start=start)
        data = {**plain.settings.as_mapping, "repeat": how}
        study = {**data["study"], "name": plain.settings.name + "-repeats"}
        opened = Opened(plain.storage, Settings.from_mapping({**data, "study": study}))
        opened.study.queue_first(opened.settings)
        return opened

    return repeat


def scores_of(opened: Opened, score: Any) -> list[TrialRecord]:
    """Run all trials that are left, with scores from the function `score`. Return their records."""
    ended = []
    while (record := opened.next()) is not None:
        ended.append(opened.study.tell(record.number, completed(score(record))))
    return ended


def confirmation_of(opened: Opened) -> Confirmation:
    assert opened.study.confirmation is not None
    return opened.study.confirmation


def test_each_proposal_runs_on_the_same_seeds_until_it_can_no_longer_win(repeat: Any) -> None:
    opened = repeat(30, seeds=3)
    noise = random.Random(1)
    ended = scores_of(opened, lambda it: float(it.params["x"]) + noise.gauss(0, 0.01))
    runs = Counter(record.proposal for record in ended)
    seeds = [[it.seed for it in ended if it.proposal == number] for number in runs]
    assert max(map(len, seeds)) == 3
    assert all(own == max(seeds, key=len)[: len(own)] for own in seeds)


def test_the_best_proposal_has_the_best_mean_and_samplers_see_one_trial_per_proposal(
    repeat: Any,
) -> None:
    opened = repeat(4, seeds=2)
    lucky, steady = 0.9, 0.7
    scores = iter([lucky, 0.1, steady, steady])
    ended = scores_of(opened, lambda _: next(scores))
    assert [record.repeat_of for record in ended] == [None, 0, None, 2]
    assert [record.number for record in opened.study.best()] == [2]
    seen = opened.samplers.seen(opened.study._mirror)
    values = [trial.value for trial in seen.get_all_trials(opened.study._mirror.study_id)]
    assert values == [pytest.approx(0.5), pytest.approx(0.7)]


def test_a_trial_queued_by_hand_runs_on_all_seeds_also_if_the_study_has_all_its_trials(
    repeat: Any,
) -> None:
    opened = repeat(4, seeds=2)
    scores_of(opened, lambda _: 0.5)
    number = opened.study.enqueue({"x": 0.25})
    (first,) = opened.run(0.9)
    opened = opened.again()  # the sweep was stopped between the two runs
    (second,) = scores_of(opened, lambda _: 0.9)
    assert (first.number, second.repeat_of) == (number, number)
    assert first.by_hand and second.by_hand
    assert opened.study.claimed() == (4, 2)
    assert [record.number for record in opened.study.best()] == [number]


@pytest.mark.slow  # SciPy
@pytest.mark.parametrize("runs", [2, 4])
def test_the_first_proposals_cover_the_space_evenly_however_often_each_is_repeated(
    repeat: Any, runs: int
) -> None:
    space = {name: {"low": 0.0, "high": 1.0} for name in ("x", "y", "z")}
    ended = scores_of(repeat(8 * runs, space=space, sampler="gp", seeds=runs), lambda _: 0.5)
    firsts = [record for record in ended if record.repeat_of is None]
    for name in space:
        assert sum(float(str(record.params[name])) < 0.5 for record in firsts) == 4


def test_repeats_of_a_proposal_continue_after_a_restart_but_not_after_a_failure(
    repeat: Any,
) -> None:
    opened = repeat(6, seeds=3)
    opened.run(0.5)
    again = opened.again()
    second = again.ask()
    assert (second.repeat_of, second.params) == (0, again.study.records()[0].params)
    again.study.tell(second.number, failed())
    assert again.ask().repeat_of is None


@pytest.mark.parametrize(
    "now",
    [
        {"space": {**RANGE, "y": RANGE["x"]}},
        {"space": {"y": RANGE["x"]}, "fixed": {"x": 0.5}},
        {"space": {"x": {"low": 2.0, "high": 3.0}}},
    ],
)
def test_a_proposal_is_not_repeated_if_the_changed_space_no_longer_fits_its_params(
    repeat: Any, now: dict[str, Any]
) -> None:
    opened = repeat(6, space=RANGE, seeds=2)
    opened.run(0.5)
    settings = Settings.from_mapping({**opened.settings.as_mapping, **now})
    opened = Opened(opened.storage, settings)
    third = opened.ask()
    assert third.repeat_of is None
    opened.study.tell(third.number, completed(0.5))
    fourth = opened.ask()
    assert (fourth.repeat_of, fourth.params) == (third.number, third.params)


def test_no_new_proposal_begins_if_the_remaining_trials_may_be_needed_to_repeat_a_running_one(
    repeat: Any,
) -> None:
    opened = repeat(3, seeds=2)
    first = opened.ask()
    waited = []

    def wait() -> bool:
        waited.append(opened.study.tell(first.number, completed(0.5)))
        return True

    second = opened.study.ask(opened.samplers, lambda n: Path(f"{n}.ipynb"), wait)
    assert (second.repeat_of, len(waited)) == (0, 1)
    opened.study.tell(second.number, completed(0.5))
    assert opened.next() is None  # one trial is left, and a proposal needs two


def test_the_fold_of_a_repeat_is_a_param_that_no_sampler_chooses(repeat: Any) -> None:
    space = {"x": {"low": 0, "high": 2}}
    opened = repeat(100, space=space, sampler="grid", fold=2)
    ended = scores_of(opened, lambda it: float(it.params["x"]) + 10.0 * float(it.params["fold"]))
    assert sorted((it.params["x"], it.params["fold"]) for it in ended)[-2:] == [(2, 0), (2, 1)]
    assert len({it.params["x"] for it in ended}) == 3
    (best,) = opened.study.best()
    assert best.params == {"x": 2, "fold": 0}
    assert confirmation_of(opened).ranking[0].mean == 7.0


@pytest.mark.slow  # scikit-learn or torch is imported
def test_a_start_trial_that_states_only_a_conditional_param_is_queued_only_once(
    repeat: Any,
) -> None:
    space = {"opt": ["adam", "sgd"], "m": {**RANGE["x"], "when": {"opt": "sgd"}}}
    opened = repeat(100, space=space, start=[{"m": 0.5}], fold=2)
    opened.study.note_facts(settings=opened.settings.as_mapping)
    assert opened.ask().params == {"opt": "sgd", "m": 0.5, "fold": 0}
    before = len(opened.optunas())
    opened.again().study.queue_first(opened.settings)
    assert len(opened.optunas()) == before


def test_the_fold_has_no_importance_and_the_importances_of_the_params_add_up_to_1(
    repeat: Any,
) -> None:
    opened = repeat(40, space={"x": RANGE["x"], "y": RANGE["x"]}, fold=2)
    scores_of(opened, lambda it: float(it.params["x"]) / 10 + float(it.params["fold"]))
    found = opened.study.importances(opened.settings.search_space)["acc"]
    assert [*found] == ["x", "y"]
    assert sum(one.share for one in found.values()) == pytest.approx(1.0)


@pytest.mark.kernel
@pytest.mark.slow
def test_each_repeat_gets_another_fold_and_the_summary_of_a_sweep_has_the_mean(
    tmp_path: Path,
) -> None:
    notebook = write_notebook(
        tmp_path / "nb.ipynb", "val = x + fold", parameters="x = 0.5\nfold = 7"
    )
    sweep = sweep_of(notebook, "folds", study={"trials": 4}, repeat={"fold": 2}, kernels="cold")
    result = sweep.run()
    assert [record.scores["val"] % 1 for record in result.records[:2]] == [
        pytest.approx(result.records[0].params["x"])
    ] * 2
    assert result.confirmation is not None
    text = summary(result)
    assert "val=1.4 ± 6.4, mean of 2 folds" in text
    assert re.search(r", by a mean of 1\.4\d* over 2 folds$", result.headline)
    run = mlflow_client(result.tracking_uri).get_run(result.mlflow_run_ids["0001"])
    assert run.data.tags["sweeper.proposal"] == "0000"


@pytest.mark.slow  # it writes to MLflow
def test_the_proposal_with_the_best_mean_is_confirmed_on_seeds_that_the_search_has_not_used(
    tmp_path: Path,
) -> None:
    notebook = write_notebook(tmp_path / "nb.ipynb", "val = x", parameters="x = 0.5")
    sweep = sweep_of(
        notebook, "both", _scored_by_seed, study={"trials": 6}, repeat={"seeds": 2},
        confirm={"best": 1, "seeds": 2},
    )  # fmt: skip
    result = sweep.run()
    found = result.confirmation
    assert found is not None and found.winner is not None
    assert found.study == "both-confirm"
    assert not {record.seed for record in result.records} & {*found.winner.runs}
    assert found.winner.search_score is not None
    assert found.winner.search_score % 1 != found.winner.params["x"]  # a mean over seeds


@pytest.mark.slow  # it writes to MLflow
def test_after_an_increase_of_seeds_the_winner_has_a_score_on_each_seed(
    tmp_path: Path,
) -> None:
    notebook = write_notebook(tmp_path / "nb.ipynb", "val = x", parameters="x = 0.5")
    for seeds in (2, 3):
        sweep = sweep_of(
            notebook, "changed", _scored_by_seed, study={"trials": 6 * seeds},
            repeat={"seeds": seeds}, options={"allow_changes": True},
        )  # fmt: skip
        found = sweep.run().confirmation
        assert found is not None and found.winner is not None
        assert len(found.winner.scores) == seeds


@pytest.mark.slow  # it writes to MLflow
def test_a_proposal_whose_first_run_failed_and_was_retried_is_confirmed(tmp_path: Path) -> None:
    notebook = write_notebook(tmp_path / "nb.ipynb", "val = x", parameters="x = 0.5")

    def run(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        if (spec.study, spec.number) == ("retried", 0):
            return TrialOutcome(state=TrialState.FAILED, reason=Reason.CELL_ERROR)
        return _scored_by_seed(spec, running)

    changes: dict[str, Any] = {"study": {"trials": 2}, "repeat": {"seeds": 2}}
    first = sweep_of(notebook, "retried", run, **changes).run()
    assert first.counts["failed"] == 1
    retry(find_study(str(tmp_path / "out"), storage=None), ["0000"])
    changes["study"] = {"trials": 4}
    found = sweep_of(notebook, "retried", run, confirm={"best": 1, "seeds": 2}, **changes).run()
    assert found.confirmation is not None and found.confirmation.winner is not None


def _scored_by_seed(spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
    score = float(str(spec.params["x"])) + spec.seed % 97 / 100
    return TrialOutcome(state=TrialState.COMPLETED, scores={"val": score})
