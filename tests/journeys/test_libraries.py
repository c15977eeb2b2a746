"""Test what libraries report by themselves. No notebook here imports sweeper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from studies import mlflow_client, mlflow_runs, sweep_of

from sweeper.notebooks.metadata import BLANK, read_metadata
from sweeper.notebooks.scores import series_of
from sweeper.testing import write_notebook

pytestmark = pytest.mark.kernel

LOGS = """
import mlflow
mlflow.set_tracking_uri("sqlite:///mine.db")
mlflow.set_experiment(experiment_id=mlflow.create_experiment("mine"))
with mlflow.start_run(run_name="mine"):
    mlflow.log_params({"x": "something else", "kind": "toy"})
    mlflow.log_text("hello", "note.txt")
    for step in range(4):
        mlflow.log_metric("val", x * step)
    with mlflow.start_run(nested=True, run_name="inner"):
        mlflow.log_metric("other", 1.0)
mlflow.log_metrics({"late": 2.0}, step=7)
"""


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    return write_notebook(tmp_path / "nb.ipynb", LOGS, parameters="x = 0.5")


def test_mlflow_calls_of_a_notebook_write_to_the_trials_run_and_report_scores(
    notebook: Path,
) -> None:
    result = sweep_of(notebook, "joined", study={"trials": 3}, kernels="fork").run()
    record = result.records[[kernel.is_forked for kernel in result.kernels].index(True)]
    x = float(str(record.params["x"]))
    assert (record.state, record.scores) == ("completed", {"val": 3 * x, "late": 2})
    assert any("reports come from MLflow" in finding for finding in result.findings)
    assert not (notebook.parent / "mine.db").exists()
    client = mlflow_client(result.tracking_uri)
    assert {it.name for it in client.search_experiments()} == {"Default", "joined"}
    runs = client.search_runs([result.experiment_id])
    by_name = {run.info.run_name: run for run in runs}
    own = by_name[record.run_id]
    assert len(runs) == 6 and {run.info.status for run in runs} == {"FINISHED"}
    parents = {
        run.data.tags.get("mlflow.parentRunId") for run in runs if run.info.run_name == "inner"
    }
    assert parents == {by_name[it.run_id].info.run_id for it in result.records}
    assert own.data.params == {"x": str(x), "kind": "toy"}
    assert own.data.tags["notebook.x"] == "something else"
    assert [it.step for it in client.get_metric_history(own.info.run_id, "val")] == [0, 1, 2, 3]
    assert "note.txt" in {it.path for it in client.list_artifacts(own.info.run_id)}


def test_mlflow_calls_of_a_notebook_report_scores_even_on_a_cluster_that_cannot_reach_the_store(
    notebook: Path,
) -> None:
    result = sweep_of(notebook, "far", study={"trials": 1}, cluster="local:1").run()
    (record,) = result.records
    assert record.scores == {"val": 3 * float(str(record.params["x"])), "late": 2}
    assert not [*notebook.parent.rglob("*.mlruns")] and not (notebook.parent / "mine.db").exists()


def test_the_setting_reports_explicit_ignores_metrics_that_mlflow_logs(notebook: Path) -> None:
    result = sweep_of(notebook, "explicit", study={"trials": 1}, reports="explicit").run()
    assert [record.reason for record in result.records] == ["no_score"]


def test_mlflow_runs_that_a_failed_notebook_leaves_open_get_the_status_failed(
    tmp_path: Path,
) -> None:
    opens = """
import atexit, mlflow, os, signal, time
mlflow.start_run()
mlflow.log_metric("val", x)
atexit.register(time.sleep, 3)  # MLflow's own handler comes after it
if x:
    raise ValueError("no")
mlflow.start_run(nested=True)
mlflow.start_run(nested=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    notebook = write_notebook(tmp_path / "nb.ipynb", opens, parameters="x = 1.0")
    starts = [{"x": 1.0}, {"x": 0.0}]
    result = sweep_of(notebook, "left-open", start=starts, study={"trials": 2}).run()
    runs = mlflow_runs(result.tracking_uri, "left-open")
    assert [run.info.status for run in runs] == ["FAILED"] * 4


@pytest.mark.parametrize("variable", ["test_acc", "acc"])
def test_a_variable_with_the_objectives_name_has_priority_over_a_series_that_mlflow_logged(
    tmp_path: Path, variable: str
) -> None:
    """Study and MLflow have the variable's value. A remark for the user names the other source."""
    logs = f"""
import mlflow
for step in range(1, 4):
    mlflow.log_metric("acc", 1 - x / step, step=step)
{variable} = x / 2
"""
    path = write_notebook(tmp_path / "nb.ipynb", logs, parameters="x = 0.5")
    scores: dict[str, Any] = {} if variable == "acc" else {"acc": {"variable": variable}}
    goal: dict[str, Any] = {"acc": {"direction": "maximize", "take": "best"}}
    sweep = sweep_of(path, variable, study={"trials": 1}, scores=scores, objective=goal)
    result = sweep.run()
    for record in result.records:
        x = float(str(record.params["x"]))
        assert record.scores == {"acc": x / 2}
        metadata = read_metadata(record.notebook) or BLANK
        assert series_of(metadata).keys() == {"MLflow/acc"}
        assert [found.other for found in metadata.disagreements] == ["MLflow"]
        run = mlflow_client(result.tracking_uri).get_run(result.mlflow_run_ids[record.run_id])
        assert run.data.metrics["acc"] == x / 2
    assert any("1 trial," in it and "MLflow" in it for it in result.findings)
