"""A study in optuna-dashboard; skips without it, Chromium or Playwright."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from studies import small_settings, until

from sweeper import Sweep
from sweeper.testing import InlineExecutor, write_notebook
from sweeper.trials import Reason, RunningTrial, TrialOutcome, TrialSpec, TrialState

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
pytest.importorskip("optuna_dashboard", reason="needs optuna-dashboard")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]
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
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            urllib.request.urlopen(f"{address}/api/studies", timeout=5).close()
        except OSError:
            return False
        return True

    command = Path(sys.executable).with_name("optuna-dashboard")
    process = subprocess.Popen(
        [command, "--port", str(port), "sqlite:///out/seen/study.db"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(answers)
        yield address
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1600, "height": 1600})
        page.set_default_timeout(60_000)
        yield page
        browser.close()


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
