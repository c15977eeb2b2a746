"""Test what users see of a sweep in MLflow's UI. Skip without Chromium or Playwright."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import MARKS, opened_page
from mlflow_servers import MlflowServer
from studies import sweep_of, until

from sweeper.testing import write_notebook
from sweeper.trials import RunningTrial, TrialOutcome, TrialSpec, TrialState

pytestmark = MARKS
TRIALS = 12


def score(spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
    write_notebook(spec.notebook, "val = x")
    x = spec.params["x"]
    assert isinstance(x, float)
    return TrialOutcome(state=TrialState.COMPLETED, scores={"val": x, "train": 1 - x})


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("a sweep")
    names = "x, lr, kind, momentum = 0, 1, 'a', 0"
    notebook = write_notebook(folder / "nb.ipynb", "val = x", parameters=names)
    space = {
        "x": {"low": 0.0, "high": 1.0},
        "lr": {"low": 1e-4, "high": 1.0, "log": True},
        "kind": ["a", "b"],
        # MLflow must also draw runs that lack this param.
        "momentum": {"low": 0.0, "high": 1.0, "when": {"kind": "a"}},
    }
    sweep = sweep_of(notebook, "seen", score, study={"trials": TRIALS}, space=space)
    return sweep.run().to_json()


@pytest.fixture(scope="module")
def server(result: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start MLflow's UI for the sweep's store. Yield its URL."""
    server = MlflowServer(result["tracking_uri"], artifacts=str(tmp_path_factory.mktemp("files")))
    server.start()
    yield server.url
    server.kill()


@pytest.fixture
def page(browser: Any, server: str) -> Iterator[Any]:
    with opened_page(browser, width=1600, height=1000) as page:
        yield page


def link(result: dict[str, Any], server: str, *, without: str = "") -> str:
    """Return the printed link with the address of the test's server."""
    url = re.sub(r"^http://[^/]+", server, result["compare_url"])
    return url.replace(without, "")


def test_the_printed_link_to_mlflow_draws_parallel_coordinates_of_the_swept_params(
    result: dict[str, Any], server: str, page: Any
) -> None:
    page.goto(link(result, server))
    page.get_by_role("heading", name="Parallel Coordinates").wait_for()
    drawn = page.locator("svg .dimension .label, svg text.label")
    until(lambda: {"log10_lr", "x", "kind", "val"} <= {*drawn.all_text_contents()})
    assert page.get_by_text(f"{TRIALS} matching runs").is_visible()
    assert "momentum" not in drawn.all_text_contents()
    page.get_by_text("Sweep over").first.wait_for()
    page.get_by_text("maximize val").first.wait_for()


def test_mlflows_table_has_the_objective_the_swept_params_and_the_best_run_first(
    result: dict[str, Any], server: str, page: Any
) -> None:
    page.goto(link(result, server, without="&compareRunsMode=CHART"))
    page.get_by_text(f"{TRIALS} matching runs").wait_for()
    header = page.locator(".ag-header")
    until(lambda: {"val", "x"} <= {*header.inner_text().split()})
    assert "train" not in header.inner_text().split()
    first = page.locator(".ag-row[row-index='0']").first
    assert result["best"]["run_id"] in first.inner_text()


def test_the_executed_notebook_of_a_run_can_be_read_in_mlflow(
    result: dict[str, Any], server: str, page: Any
) -> None:
    best = result["trials"][int(result["best"]["run_id"])]
    run = f"#/experiments/{result['experiment_id']}/runs/{best['mlflow_run_id']}"
    page.goto(f"{server}/{run}/artifacts/{Path(best['notebook']).stem}.html")
    page.frame_locator("iframe").first.get_by_text("val = x").first.wait_for()
