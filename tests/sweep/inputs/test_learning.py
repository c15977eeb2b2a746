"""A study begins with the best trials of earlier studies. Functions replace kernels."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from studies import sweep_of

from sweeper.control.lookup import find_study
from sweeper.errors import SettingsError, TrackingError
from sweeper.testing import write_notebook
from sweeper.trials import RunningTrial, TrialOutcome, TrialSpec, TrialState

pytestmark = pytest.mark.slow  # MLflow is imported


def sweep(folder: Path, name: str, *, best: float, trials: int, **changes: Any) -> Any:
    """Run a sweep whose score is highest at `best`."""

    def run_trial(spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
        value = 10.0 - (float(str(spec.params.get("x", 0.5))) - best) ** 2
        return TrialOutcome(state=TrialState.COMPLETED, scores={"val": value})

    changes["study"] = {"trials": trials, **changes.get("study", {})}
    notebook = write_notebook(folder / "nb.ipynb", "val = x", parameters="x = 0.5\nfold = 0")
    output = "out/{study}.{run_id}.ipynb"
    return sweep_of(notebook, name, run_trial, output=output, **changes).run().to_json()


@pytest.mark.parametrize("sampler", ["gp", "tpe"])
def test_the_best_params_of_an_earlier_study_run_first_and_the_sampler_uses_its_scores(
    tmp_path: Path, sampler: str
) -> None:
    earlier = sweep(tmp_path, "earlier", best=0.8, trials=15, study={"sampler": "gp"})
    learned = {"learn_from": ["earlier"], "study": {"sampler": {"name": sampler}}}
    later = sweep(tmp_path, f"later-{sampler}", best=0.8, trials=4, **learned)
    xs = [trial["params"]["x"] for trial in later["trials"]]
    assert xs[0] == earlier["best"]["params"]["x"]
    assert sum(abs(x - 0.8) < 0.2 for x in xs[1:]) >= 2, (
        "the sampler has not used the earlier scores"
    )
    again = sweep(tmp_path, f"later-{sampler}", best=0.8, trials=5, **learned)
    assert [t["params"]["x"] for t in again["trials"]][:4] == xs, (
        "the earlier best params were queued again"
    )


@pytest.mark.parametrize("earlier", [{}, {"repeat": {"fold": 3}}])
def test_a_study_with_folds_learns_from_one_with_no_folds_or_another_number_of_folds(
    tmp_path: Path, earlier: dict[str, Any]
) -> None:
    found = sweep(tmp_path, "earlier", best=0.8, trials=9, **earlier)
    folds = {"learn_from": ["earlier"], "repeat": {"fold": 2}}
    later = sweep(tmp_path, "later", best=0.8, trials=2, **folds)
    assert [trial["params"] for trial in later["trials"]] == [
        {"x": found["best"]["params"]["x"], "fold": fold} for fold in range(2)
    ]


def test_a_resumed_study_learns_from_other_studies_after_learn_from_was_changed(
    tmp_path: Path,
) -> None:
    bests = {}
    for name, best in (("wrong", 0.2), ("right", 0.9)):
        found = sweep(tmp_path, name, best=best, trials=9)
        bests[name] = found["best"]["params"]["x"]
    sweep(tmp_path, "later", best=0.8, trials=1, learn_from=["wrong"])

    def learned() -> list[float]:
        facts = find_study(str(tmp_path / "out" / "later"), storage=None).study.facts
        return [float(str(trials[0].params["x"])) for trials in facts.learned or ()]

    assert learned() == [bests["wrong"]]
    both = sweep(tmp_path, "later", best=0.8, trials=2, learn_from=["wrong", "right"])
    assert [trial["params"]["x"] for trial in both["trials"]] == [bests["wrong"], bests["right"]]
    assert learned() == [bests["wrong"], bests["right"]]
    sweep(tmp_path, "later", best=0.8, trials=2)
    assert learned() == []


def test_a_refused_sweep_keeps_a_studys_queue_and_the_trials_it_has_from_earlier_studies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, best in (("first", 0.2), ("second", 0.9)):
        sweep(tmp_path, name, best=best, trials=4)
    sweep(tmp_path, "later", best=0.8, trials=1, learn_from=["first"])

    def stored() -> tuple[object, int]:
        study = find_study(str(tmp_path / "out" / "later"), storage=None).study
        return study.facts, sum(study.claimed())

    before = stored()
    away = Mock(side_effect=TrackingError("the server does not answer", "start it first"))
    monkeypatch.setattr("sweeper.sweep.opening.check_reachable", away)
    with pytest.raises(TrackingError):
        other = {"learn_from": ["second"], "start": [{"x": 0.625}]}
        sweep(tmp_path, "later", best=0.8, trials=3, **other)
    assert stored() == before


def test_a_study_finds_its_optimum_although_it_learns_from_a_study_with_another_optimum(
    tmp_path: Path,
) -> None:
    sweep(tmp_path, "misled", best=0.9, trials=12)
    found = sweep(tmp_path, "here", best=0.1, trials=22, learn_from=["misled"])
    assert abs(found["best"]["params"]["x"] - 0.1) < 0.02


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"learn_from": ["earlierr"]}, ["'earlierr'", "there is no study", "'earlier'"]),
        ({"objective": {"vol": "maximize"}}, ["the score vol", "did you mean 'val'?"]),
        ({"space": {"x": {"low": 2.0, "high": 3.0}}}, ["none of its 2 completed", "(x)"]),
    ],
)
def test_learning_from_a_study_without_a_usable_trial_is_refused(
    tmp_path: Path, changes: dict[str, Any], parts: list[str]
) -> None:
    sweep(tmp_path, "earlier", best=0.5, trials=2)
    with pytest.raises(SettingsError) as caught:
        sweep(tmp_path, "later", best=0.5, trials=2, **{"learn_from": ["earlier"], **changes})
    assert all(part in str(caught.value) for part in ["learn_from", *parts]), str(caught.value)
    assert not (tmp_path / "out" / "later").exists()


def test_learning_leaves_out_a_trial_of_the_earlier_study_whose_score_is_not_a_number(
    tmp_path: Path,
) -> None:
    def run_trial(spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
        loss = math.nan if spec.number == 0 else 1.0
        return TrialOutcome(state=TrialState.COMPLETED, scores={"val": 1.0, "loss": loss})

    notebook = write_notebook(tmp_path / "nb.ipynb", "val = x")
    how: dict[str, Any] = {"output": "out/{study}.{run_id}.ipynb", "study": {"trials": 3}}
    sweep_of(notebook, "earlier", run_trial, **how).run()
    goal: dict[str, Any] = {"objective": {"loss": "minimize"}, "learn_from": ["earlier"]}
    later = sweep_of(notebook, "later", run_trial, **how, **goal)
    later.run()
    facts = find_study(str(tmp_path / "out" / "later"), storage=None).study.facts
    assert [trial.score for trial in (facts.learned or [[]])[0]] == [1.0, 1.0]


@pytest.mark.parametrize("content", [None, b"", b"a text"])
def test_a_file_in_learn_from_without_a_study_is_refused_and_not_changed(
    tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "wrong.db"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingsError, match="learn_from"):
        sweep(tmp_path, "later", best=0.5, trials=2, learn_from=[f"sqlite:///{file}"])
    assert (file.read_bytes() if file.exists() else None) == content
