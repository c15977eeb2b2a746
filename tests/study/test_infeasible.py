"""A study and its sampler handle params with which a trial ran out of memory."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest
from opened_studies import Opened, counts_of
from optuna.trial import TrialState as OptunaState

from sweeper.notebooks.executed import ExecutedNotebook
from sweeper.search.samplers.views import with_constraints
from sweeper.testing import trial_spec
from sweeper.trials import Params, Reason, TrialOutcome, TrialState

#: A wider model is better, and the widest third of the models does not fit into memory.
SPACE = {"width": {"low": 1, "high": 12}, "lr": {"low": 1e-4, "high": 1e-1, "log": True}}
WIDEST = 8


def too_large() -> TrialOutcome:
    return TrialOutcome(
        state=TrialState.FAILED,
        reason=Reason.OUT_OF_MEMORY,
        message="does not fit on this GPU",
        is_infeasible=True,
    )


def score(params: Params) -> TrialOutcome:
    width, lr = float(params["width"]), float(params["lr"])  # type: ignore[arg-type]
    value = width / 12 - 0.1 * (math.log10(lr) + 2.5) ** 2
    return TrialOutcome(state=TrialState.COMPLETED, scores={"acc": value})


def sweep(opened: Opened, n_trials: int, *, knows: bool = True) -> list[Params]:
    """Run trials, of which those with a width above `WIDEST` fail. Return the params of all.

    Args:
        knows: Whether these trials fail as infeasible (out of memory). If not, by a cell error.
    """
    tried = []
    for _ in range(n_trials):
        record = opened.ask()
        tried.append(record.params)
        fits = int(record.params["width"]) <= WIDEST  # type: ignore[arg-type]
        other = TrialOutcome(state=TrialState.FAILED, reason=Reason.CELL_ERROR, message="?")
        outcome = score(record.params) if fits else (too_large() if knows else other)
        opened.study.tell(record.number, outcome)
    return tried


@pytest.mark.slow
def test_a_sampler_that_supports_constraints_avoids_params_that_ran_out_of_memory(
    begin: Any,
) -> None:
    """The best params that fit into memory are near params that do not, which attract samplers."""
    lost = {}
    for knows in (False, True):
        opened = begin(SPACE, sampler={"name": "tpe", "n_startup_trials": 6}, seed=0)
        tried = sweep(opened, 40, knows=knows)
        lost[knows] = sum(int(params["width"]) > WIDEST for params in tried)  # type: ignore[arg-type]
    assert lost[True] + 8 <= lost[False]


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["tpe", "gp"])
@pytest.mark.parametrize("objectives", [1, 2])
def test_a_study_continues_even_if_trials_run_out_of_memory(
    begin: Any, sampler: str, objectives: int
) -> None:
    if sampler == "gp":
        pytest.importorskip("torch")
    names = ["acc", "speed"][:objectives]
    options = {"name": sampler, "n_startup_trials": 2}
    space = {**SPACE, "kind": ["a", "b"]}
    opened = begin(
        space, objective=dict.fromkeys(names, "maximize"), sampler=options, seed=0, trials=6
    )
    for number in range(6):
        record = opened.ask()
        scores = dict.fromkeys(names, 0.1 * number)
        fits = number in (2, 4)  # the first trials and most others do not fit
        done = TrialOutcome(state=TrialState.COMPLETED, scores=scores)
        opened.study.tell(record.number, done if fits else too_large())
    assert [record.number for record in opened.study.best()] == [4]
    assert counts_of(opened.study) == {TrialState.COMPLETED: 2, TrialState.FAILED: 4}
    assert [trial.state for trial in opened.optunas()].count(OptunaState.FAIL) == 4


def test_a_trial_that_ran_out_of_memory_is_failed_and_the_sampler_sees_a_violated_constraint(
    begin: Any,
) -> None:
    opened = begin(trials=9)
    opened.study.tell(opened.ask().number, too_large())
    opened.run(0.5)
    opened.study.tell(opened.ask().number, TrialOutcome(state=TrialState.FAILED))
    large, fitting, other = opened.optunas()
    assert [trial.state.name for trial in (large, fitting, other)] == ["FAIL", "COMPLETE", "FAIL"]
    seen = with_constraints([large, fitting, other])
    assert [trial.state.name for trial in seen] == ["COMPLETE", "COMPLETE", "FAIL"]
    assert [trial.constraints["memory"] for trial in seen] == [1.0, -1.0, -1.0]
    assert with_constraints([fitting, other]) == [fitting, other]
    record, _, failed = opened.again().study.records()
    assert (record.state, record.is_infeasible) == (TrialState.FAILED, True)
    assert not failed.is_infeasible
    assert [best.number for best in opened.study.best()] == [1]


@pytest.mark.parametrize(
    ("reason", "is_infeasible"),
    [(Reason.OUT_OF_MEMORY, True), (Reason.OUT_OF_MEMORY, False), (Reason.GPU_FAULT, False)],
)
def test_a_trial_whose_notebook_says_out_of_memory_runs_again_unless_it_also_says_infeasible(
    begin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: Reason, is_infeasible: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    opened = begin(trials=9)
    record = opened.ask()
    study_id, notebook = opened.study.study_id, record.notebook
    spec = trial_spec(record.number, study_id=study_id, notebook=notebook)
    file = ExecutedNotebook(nbformat.v4.new_notebook(), spec)
    file.finish(replace(too_large(), reason=reason, is_infeasible=is_infeasible))
    record.notebook.parent.mkdir()
    file.write()
    again = opened.again().ask()
    if is_infeasible:  # the notebook's end is used, so the next trial follows
        assert (again.number, opened.again().study.records()[0].is_infeasible) == (1, True)
    else:
        assert (again.number, again.attempt) == (0, 2)
