"""A study in optuna-dashboard; skips without it, Chromium or Playwright."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import MARKS, opened_page, serving
from studies import small_settings, until

from sweeper import Sweep
from sweeper.testing import InlineExecutor, write_notebook
from sweeper.trials import Reason, RunningTrial, TrialOutcome, TrialSpec, TrialState

pytest.importorskip("optuna_dashboard", reason="needs optuna-dashboard")

pytestmark = MARKS
TRIALS, FAILED, PRUNED = 12, 3, 5
SPACE = {
    "lr": {"low": 1e-4, "high": 1.0, "log": True},
    "layers": [[32], [64, 64]],
    "kind": ["a", "b"],
    "momentum": {"low": 0.0, "high": 1.0, "when": {"kind": "a"}},
}


def score(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
    write_notebook(spec.notebook, "val = lr")
    lr = spec.params["lr"]
    assert isinstance(lr, float)
    if spec.number == FAILED:
        return TrialOutcome(state=TrialState.FAILED, reason=Reason.CELL_ERROR, message="ValueError")
    if spec.number == PRUNED:
        return TrialOutcome(state=TrialState.PRUNED, reason=Reason.PRUNED, scores={"val": lr})
    return TrialOutcome(state=TrialState.COMPLETED, scores={"val": lr})


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the dashboard, opened as the guide says."""
    folder = tmp_path_factory.mktemp("dashboard")
    parameters = "lr, layers, kind, momentum = 0, [32], 'a', 0"
    notebook = write_notebook(folder / "nb.ipynb", "val = lr", parameters=parameters)
    Sweep.from_settings(
        small_settings("seen", study={"trials": TRIALS}, space=SPACE),
        notebook=notebook,
        output=f"{folder}/out/{{run_id}}.ipynb",
        executor=lambda _: InlineExecutor(score, jobs=1),
    ).run()
    program = Path(sys.executable).with_name("optuna-dashboard")
    with serving(
        lambda port: [program, "--port", str(port), "sqlite:///out/seen/study.db"],
        folder=folder,
        path="/api/studies",
    ) as address:
        yield address


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    with opened_page(browser, width=1600, height=1600) as page:
        yield page


def test_its_page_of_a_study_has_the_history_and_the_importance_of_params(
    address: str, page: Any
) -> None:
    page.goto(f"{address}/dashboard/studies/1")
    drawn = page.locator(".js-plotly-plot")
    until(lambda: any("Importance" in text for text in drawn.all_inner_texts()))
    texts = [{*text.splitlines()} for text in drawn.all_inner_texts()]
    assert any({"Trial", "val"} <= text for text in texts)  # the history, by the objective's name
    assert any({"Hyperparameter Importance", *SPACE} <= text for text in texts)
    page.get_by_text("Best Trial (number=").wait_for()


def test_it_lists_all_trials_with_their_states_and_lists_as_choices(
    address: str, page: Any
) -> None:
    page.goto(f"{address}/dashboard/studies/1/trials")
    page.get_by_text(f"{TRIALS} Trials").wait_for()
    assert page.get_by_text("Fail", exact=True).count() == 1
    assert page.get_by_text("Pruned", exact=True).count() == 1
    page.get_by_text(re.compile(r"layers json:\[")).first.wait_for()
