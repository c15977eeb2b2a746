"""The answer of a study says which effects its params have, and is the same wherever it is shown.

The effects are known (planted): in place of notebooks, six functions compute the scores, from the
params and some noise, or from noise only. Study, page, `status` and Jupyter are real.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from studies import assert_says, mlflow_client, sweep_of

import sweeper
from sweeper.cli import main
from sweeper.display.screen import summary
from sweeper.testing import write_notebook
from sweeper.trials import Reason, RunningTrial, SweepResult, TrialOutcome, TrialSpec, TrialState

pytestmark = pytest.mark.slow  # because each sweep writes to MLflow

SPACE = {
    "lr": {"low": 1e-4, "high": 0.1, "log": True},
    "temperature": {"low": 0.0, "high": 1.0},
    "dropout": {"low": 0.0, "high": 0.6},
    "depth": {"low": 1, "high": 9},
}


def on_log_scale(params: Mapping[str, Any]) -> float:
    """Return the position of lr on its log scale, from 0 (low) to 1 (high)."""
    return (math.log10(params["lr"]) + 4) / 3


def alike(params: Mapping[str, Any], luck: float) -> TrialOutcome:
    return scored(on_log_scale(params) + params["temperature"] + 0.05 * luck)


def interaction(params: Mapping[str, Any], luck: float) -> TrialOutcome:
    return scored(-((on_log_scale(params) - params["temperature"]) ** 2) + 0.01 * luck)


def useless(params: Mapping[str, Any], luck: float) -> TrialOutcome:
    return scored(-((on_log_scale(params) - 0.6) ** 2) + 0.005 * luck)


def lucky(_: Mapping[str, Any], luck: float) -> TrialOutcome:
    return scored(0.9 + 0.01 * luck)


def broken(params: Mapping[str, Any], luck: float) -> TrialOutcome:
    if params["depth"] >= 7:
        why: dict[str, Any] = {"reason": Reason.CELL_ERROR, "message": "ValueError: too deep"}
        return TrialOutcome(state=TrialState.FAILED, duration_s=1.0, **why)
    return useless(params, luck)


def costly(params: Mapping[str, Any], luck: float) -> TrialOutcome:
    score = -((on_log_scale(params) - 0.6) ** 2) + 0.0005 * params["depth"] + 0.0001 * luck
    return scored(score, duration_s=4.0 * params["depth"] ** 2)


def scored(score: float, duration_s: float = 10.0) -> TrialOutcome:
    return TrialOutcome(state=TrialState.COMPLETED, scores={"val": score}, duration_s=duration_s)


def swept(
    folder: Path, planted: Callable[[Mapping[str, Any], float], TrialOutcome], **changes: Any
) -> SweepResult:
    """Sweep a study of 60 random trials, whose scores `planted` computes. Return the result."""
    notebook = write_notebook(
        folder / "nb.ipynb", "val = lr", parameters="lr = temperature = dropout = 0.1\ndepth = 2"
    )

    def run_trial(spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
        return planted(spec.params, random.Random(f"{spec.seed} {spec.params}").gauss())

    name = planted.__name__
    study = {"trials": 60, "seed": 1}
    return sweep_of(notebook, name, run_trial, **{"space": SPACE, "study": study, **changes}).run()


def said(result: SweepResult) -> dict[str, str]:
    assert result.insights is not None
    return dict(result.insights.sentences)


def assert_says_the_same_everywhere(result: SweepResult, capsys: Any) -> None:
    """Check that terminal, `status`, `--json`, the page and Jupyter have the same sentences."""
    expected = [{"topic": topic, "text": text} for topic, text in said(result).items()]
    assert result.page is not None
    assert result.to_json()["insights"]["sentences"] == expected
    page = (result.page.parent / "page" / "study.js").read_text().strip()
    known = json.loads(page.removeprefix("sweeper.study(").removesuffix(");"))
    assert known["insights"] == json.loads(json.dumps(result.to_json()["insights"]))
    capsys.readouterr()
    assert main(["status", str(result.page.parent), "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["insights"] == known["insights"]
    in_jupyter = sweeper.load(result.page.parent)._repr_html_()
    for topic, text in said(result).items():
        line = f"  {text}" if topic == "params" else f"{topic}: {text}"
        assert line in summary(result).splitlines()
        assert line in printed.err.splitlines()
        in_html = re.sub("`(.*?)`", r"<code>\1</code>", text)
        assert f"<dd>{in_html}</dd>" in in_jupyter


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_answer_of_a_study_gives_no_order_to_two_params_that_matter_equally(
    tmp_path: Path, capsys: Any
) -> None:
    result = swept(tmp_path, alike)
    mattered = said(result)["mattered"]
    assert "lr" in mattered
    assert "temperature" in mattered
    assert_says(mattered, "in this order or the other", "all others below 5 %")
    assert_says(
        said(result)["next"], "`--confirm 3`", "try lr above 0.1", "--allow-changes --trials"
    )
    assert_says_the_same_everywhere(result, capsys)


def test_the_answer_of_a_study_says_which_two_params_interact(tmp_path: Path, capsys: Any) -> None:
    result = swept(tmp_path, interaction)
    mattered = said(result)["mattered"]
    assert "act together" in mattered
    assert {"lr", "temperature"} == set(mattered.split(" act together")[0].split()[-3::2])
    assert "dropout" not in mattered
    assert_says_the_same_everywhere(result, capsys)


def test_the_answer_of_a_study_does_not_say_that_a_param_without_an_effect_mattered(
    tmp_path: Path, capsys: Any
) -> None:
    result = swept(tmp_path, useless)
    assert_says(said(result)["mattered"], "lr ", "all others below")
    assert not {"temperature", "dropout", "depth"} & {*said(result)["mattered"].split()}
    where = said(result)["where"]
    assert_says(where, "the best 6 of 60 trials", "lr=0.00", " to 0.0", "tried: 1.2e-4")
    assert "dropout" not in where
    assert_says_the_same_everywhere(result, capsys)


def test_if_scores_are_only_noise_the_answer_says_so_and_the_winner_is_worse_on_fresh_seeds(
    tmp_path: Path, capsys: Any
) -> None:
    result = swept(tmp_path, lucky)
    assert result.insights is not None
    n_within = getattr(result.insights.best, "n_within", 0)
    assert n_within > 5
    assert_says(said(result)["best"], "not confirmed", "±0.02", f"{n_within} other trials")
    assert said(result)["mattered"] == "no param stands out from the noise in 60 trials"
    assert "where" not in said(result)
    assert_says_the_same_everywhere(result, capsys)
    # The answer advises to run the best three trials again, which the sweep below does.
    assert "`--confirm 3`" in said(result)["next"]
    confirmed = swept(tmp_path, lucky, confirm={"best": 3, "seeds": 5})
    assert_says(said(confirmed)["best"], "mean of 5 fresh seeds", "in the search")
    assert confirmed.confirmation is not None
    winner = confirmed.confirmation.winner
    assert winner is not None
    assert said(confirmed)["best"].startswith(f"{winner.run_id}  val=0.")
    assert winner.mean is not None
    assert winner.search_score is not None
    assert winner.mean < winner.search_score
    assert_says(said(confirmed)["next"], "`--confirm 3 --seeds 10`")
    assert re.search(r"val=0\.\d+ ± 0\.\d+, mean", said(confirmed)["best"])
    assert_says_the_same_everywhere(confirmed, capsys)
    (experiment,) = mlflow_client(confirmed.tracking_uri).search_experiments(
        filter_string="name = 'lucky'"
    )
    assert f"**best** {said(confirmed)['best']}" in experiment.tags["mlflow.note.content"]
    shown = sweeper.load(Path("out/lucky")).confirmation
    assert shown is not None
    assert all(trial.run_id in shown._repr_html_() for trial in confirmed.confirmation.ranking)
    assert_says(repr(shown), "val", "5 fresh seeds", winner.run_id)


def test_the_answer_of_a_study_names_the_region_in_which_trials_fail(
    tmp_path: Path, capsys: Any
) -> None:
    result = swept(tmp_path, broken)
    failed = result.counts["failed"]
    assert_says(said(result)["failed"], f"{failed} of 60 trials: {failed} cell_error", "too deep")
    assert_says(said(result)["failed"], f"depth=7 to 9, where {failed} of {failed} trials failed")
    assert_says_the_same_everywhere(result, capsys)


def test_the_answer_of_a_study_names_a_cheap_trial_that_is_nearly_as_good_as_the_best(
    tmp_path: Path, capsys: Any
) -> None:
    result = swept(tmp_path, costly, cost={"price_per_hour": 3.6e6})
    time = said(result)["time"]
    assert_says(
        time,
        "depending mostly on depth",
        "per completed trial",
        f"% of the time of {result.best[0].run_id}",
    )
    assert result.insights is not None
    cheaper = getattr(result.insights.best, "cheaper", None)
    assert cheaper is not None
    durations = {record.run_id: record.duration_s for record in result.records}
    assert durations[cheaper.run_id] <= durations[result.best[0].run_id] / 2
    assert_says_the_same_everywhere(result, capsys)
