"""A study with a real storage stores ends of trials, its best trials and importances of params."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import optuna
import pytest
from opened_studies import COMPLETED, FAILED, completed, failed
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState as OptunaState
from studies import small_settings

from sweeper.errors import StudyError
from sweeper.search.samplers import ScoreModels
from sweeper.study.facts import StudyFacts
from sweeper.study.insights import figure_of, forest_importances, param_importances
from sweeper.study.study import Study
from sweeper.trials import Importance, Reason, TrialOutcome


def test_every_trial_has_its_own_seed_derived_from_the_studys_seed(begin: Any) -> None:
    first, same, other = (begin(seed=seed) for seed in (1, 1, 2))
    seeds = [[opened.ask().seed for _ in range(2)] for opened in (first, same, other)]
    assert seeds[0] == seeds[1]
    assert len({*seeds[0], *seeds[2]}) == 4
    assert all(0 <= seed < 2**31 for seed in seeds[0])


def test_the_end_of_a_trial_is_stored_with_all_fields(begin: Any) -> None:
    opened = begin()
    asked = opened.ask()
    record = opened.study.tell(asked.number, completed(0.25, loss=1e-300))
    assert record.scores == {"acc": 0.25, "loss": 1e-300}
    assert (record.state, record.reason, record.duration_s) == (COMPLETED, None, 1.5)
    assert (record.params, record.seed) == (asked.params, asked.seed)
    assert Study.open(opened.storage.url, opened.settings).records() == [record]
    (frozen,) = opened.optunas()
    assert (frozen.state, frozen.values) == (OptunaState.COMPLETE, [0.25])
    assert frozen.params == asked.params


def test_a_failed_trial_has_no_value_in_optuna_and_is_not_run_again(begin: Any) -> None:
    opened = begin(trials=1)
    record = opened.study.tell(opened.ask().number, failed(acc=0.5))
    assert (record.reason, record.message) == (Reason.CELL_ERROR, "1/0")
    assert record.scores == {"acc": 0.5}
    (frozen,) = opened.optunas()
    assert (frozen.state, frozen.values) == (OptunaState.FAIL, None)
    assert opened.again().next() is None


def test_a_score_that_is_not_finite_is_stored_in_the_record_but_not_in_optuna(
    begin: Any,
) -> None:
    opened = begin()
    for score in (math.nan, -math.inf):
        outcome = TrialOutcome(state=FAILED, reason=Reason.NOT_FINITE, scores={"acc": score})
        opened.study.tell(opened.ask().number, outcome)
    records = opened.again().study.records()
    assert [str(record.scores["acc"]) for record in records] == ["nan", "-inf"]
    assert [frozen.values for frozen in opened.optunas()] == [None, None]
    assert opened.study.best() == []


def test_the_best_trial_depends_on_the_direction(begin: Any) -> None:
    for direction, number, unreached in (("maximize", 1, 9.0), ("minimize", 2, -9.0)):
        opened = begin(objective={"acc": direction})
        opened.study.tell(opened.ask().number, failed(acc=unreached))
        opened.run(0.9, 0.1)
        assert [record.number for record in opened.study.best()] == [number]


def test_all_pareto_optimal_trials_are_best_with_several_objectives(begin: Any) -> None:
    opened = begin(objective={"acc": "maximize", "loss": "minimize"})
    for acc, loss in ((0.9, 0.5), (0.5, 0.1), (0.9, 0.4)):
        opened.study.tell(opened.ask().number, completed(acc, loss=loss))
    assert [record.number for record in opened.study.best()] == [1, 2]
    assert opened.optunas()[0].values == [0.9, 0.5]


@pytest.mark.parametrize("url", ["nowhere", "sqlite:////no/such/folder/study.db", "nosuch://x/y"])
def test_a_storage_that_cannot_be_opened_is_refused_and_its_url_is_named(url: str) -> None:
    with pytest.raises(StudyError) as raised:
        Study.all_in(url)
    assert f"--storage {url}: cannot be opened" in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_only_studies_that_a_sweep_has_begun_are_listed(begin: Any) -> None:
    opened = begin()
    optuna.create_study(study_name=opened.settings.name + " foreign", storage=opened.storage)
    names = [study.name for study in Study.all_in(opened.storage.url)]
    assert opened.settings.name in names
    assert opened.settings.name + " foreign" not in names


def test_storing_facts_of_a_study_replaces_only_the_stated_fields_and_survives_a_restart(
    begin: Any,
) -> None:
    opened = begin()
    study_id = opened.study.study_id
    opened.study.note_facts(template="a", tracking_uri="b")
    opened.study.note_facts(template="c")
    facts = opened.again().study.facts
    assert (facts.template, facts.tracking_uri, facts.id) == ("c", "b", study_id)
    assert begin().study.study_id != study_id


def test_the_file_study_json_of_another_study_in_the_folder_is_not_used(tmp_path: Path) -> None:
    file = tmp_path / "study.json"
    left = StudyFacts(id="1", objectives=["val"], template="t", settings={"space": {}}, spent_s=9.0)
    left.write(file, study="my")
    assert StudyFacts.kept_in(file, study="my") == left
    assert StudyFacts.kept_in(file, study="my2") is None


UNIT = {"low": 0.0, "high": 1.0}


def study_of(n_trials: int, *, wider_from: int = 0) -> optuna.Study:
    """Return a study of trials whose score depends much more on x than on y.

    Args:
        n_trials: Number of trials.
        wider_from: Number of the first trial that had the whole range of x.
    """
    made = optuna.create_study(direction="maximize")
    made.sampler = optuna.samplers.RandomSampler(seed=1)
    for number in range(n_trials):
        unit = FloatDistribution(0.0, 1.0)
        x = FloatDistribution(0.0, 0.5) if number < wider_from else unit
        trial = made.ask({"x": x, "y": unit})
        made.tell(trial, -((trial.params["x"] - 0.3) ** 2) - 0.001 * trial.params["y"])
    return made


@pytest.mark.slow  # scikit-learn is imported
def test_importances_list_first_the_param_on_which_scores_depend_most() -> None:
    found = forest_importances(study_of(30), ["val"])["val"]
    assert [*found] == ["x", "y"]
    assert found["x"].low > found["y"].high
    assert sum(one.share for one in found.values()) == pytest.approx(1.0)


@pytest.mark.slow  # scikit-learn is imported
def test_importance_intervals_contain_the_fanova_shares_even_for_clustered_trials() -> None:
    made = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=2))

    def planted(trial: optuna.Trial) -> float:
        lr, width = trial.suggest_float("lr", -4, 0), trial.suggest_int("width", 8, 64)
        return (lr + 2) ** 2 + 0.01 * width + trial.suggest_float("dropout", 0, 0.6)

    made.optimize(planted, 60)
    expected = optuna.importance.get_param_importances(
        made, evaluator=optuna.importance.FanovaImportanceEvaluator(seed=0)
    )
    found = forest_importances(made, ["loss"])["loss"]
    for name, share in expected.items():
        assert found[name].low - 0.05 <= share <= found[name].high + 0.05, (name, found, expected)


@pytest.mark.slow  # scikit-learn is imported
def test_a_param_with_a_logarithmic_range_matters_as_much_as_its_logarithm_would() -> None:
    made = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))

    def planted(trial: optuna.Trial) -> float:
        lr, rate = trial.suggest_float("lr", 1e-4, 1, log=True), trial.suggest_float("rate", -4, 0)
        return math.log10(lr) + rate + 0 * trial.suggest_int("width", 1, 8, log=True)

    made.optimize(planted, 100)
    found = forest_importances(made, ["loss"])["loss"]
    assert 0.3 < found["lr"].share < 0.7, found
    assert 0.3 < found["rate"].share < 0.7, found


@pytest.mark.slow  # scikit-learn or torch is imported
@pytest.mark.parametrize("by_process", [False, True])
def test_a_param_whose_range_was_changed_has_an_importance(by_process: bool) -> None:
    if by_process:
        pytest.importorskip("torch")
    made = study_of(30, wider_from=15)
    space = small_settings("s", space={"x": UNIT, "y": UNIT}).search_space
    models = ScoreModels(made, space, ["val"]) if by_process else None
    found = param_importances(made, ["val"], models)["val"]
    assert [*found] == ["x", "y"]
    assert found["x"].share > 0.9


@pytest.mark.slow  # torch is imported
@pytest.mark.parametrize("n_with_both", [0, 9, 10])
def test_trials_that_ran_before_a_param_was_swept_do_not_count_for_importances(
    n_with_both: int,
) -> None:
    pytest.importorskip("torch")
    made = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    made.optimize(lambda it: it.suggest_float("x", 0, 1), 20)
    made.optimize(lambda it: it.suggest_float("x", 0, 1) + it.suggest_float("y", 0, 1), n_with_both)
    space = small_settings("s", space={"x": UNIT, "y": UNIT}).search_space
    models = ScoreModels(made, space, ["val"])
    found = param_importances(made, ["val"], models)
    assert [{*by_param} for by_param in found.values()] == [{"x", "y"}] * (n_with_both == 10)
    assert (models.of("val") is None) == (n_with_both == 0)


@pytest.mark.slow  # scikit-learn is imported
def test_importances_are_computed_even_if_a_retry_has_a_value_outside_of_the_present_range() -> (
    None
):
    made = study_of(30, wider_from=30)
    made.get_trials(deepcopy=False)[-1].params["x"] = 0.9
    assert [*forest_importances(made, ["val"])["val"]] == ["x", "y"]


@pytest.mark.slow  # torch is imported
def test_importances_that_leave_out_a_param_state_no_joint_effects_of_the_others() -> None:
    pytest.importorskip("torch")
    made = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    made.optimize(lambda it: (it.suggest_float("x", 0, 1) - it.suggest_float("y", 0, 1)) ** 2, 30)
    space = small_settings("s", space={"x": UNIT, "y": UNIT}).search_space
    models = ScoreModels(made, space, ["val"])
    assert all(found.joint for found in param_importances(made, ["val"], models)["val"].values())
    left = param_importances(made, ["val"], models, without=["y"])["val"]
    assert {name: found.joint for name, found in left.items()} == {"x": 0.0}


@pytest.mark.slow  # matplotlib is imported
def test_the_figure_of_importances_shows_the_importances_that_it_is_given() -> None:
    pytest.importorskip("matplotlib")
    found = {"val": {"x": Importance(0.7, 0.6, 0.8), "y": Importance(0.2, 0.1, 0.4)}}
    figure = figure_of(study_of(30), ["val"], kind="importances", importances=found)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["y", "x"]
    assert [bar.get_width() for bar in axes.patches] == [0.2, 0.7]


@pytest.mark.slow  # matplotlib is imported
def test_the_refusal_of_a_figure_of_importances_says_which_trials_it_needs() -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(StudyError, match=r"--figure importances: .*10 .*different scores.*search"):
        figure_of(study_of(30), ["val"], kind="importances", importances={})


def test_importances_are_empty_for_too_few_trials() -> None:
    assert forest_importances(study_of(9), ["val"]) == {}
