"""Metrics that libraries log become points. The libraries themselves are in the journeys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweeper.notebook_api import observing
from sweeper.notebook_api.messages import OBSERVED_VARIABLE


class SummaryWriter:
    """The call of torch's class, which needs TensorBoard."""

    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: int | None = None, walltime: Any = None
    ) -> None:
        pass


def test_scalars_for_tensorboard_are_points_however_they_are_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(observing, "_report", lambda *point: seen.append(point))
    observing._tensorboard(SimpleNamespace(SummaryWriter=SummaryWriter))
    writer = SummaryWriter()
    writer.add_scalar("loss", 0.5, 2)
    writer.add_scalar(tag="loss", scalar_value=0.25, global_step=3)
    writer.add_scalar("acc", scalar_value=0.75, global_step=3, walltime=1.0)
    assert seen == [
        ("TensorBoard", 2, {"loss": 0.5}),
        ("TensorBoard", 3, {"loss": 0.25}),
        ("TensorBoard", 3, {"acc": 0.75}),
    ]


@pytest.mark.slow
def test_a_notebook_whose_trial_gets_no_run_in_time_logs_to_a_temporary_folder(
    tmp_path: Path,
) -> None:
    script = """if True:
        import warnings, mlflow
        from sweeper.notebook_api import observing
        warnings.simplefilter("ignore")
        seen = []
        observing._report = lambda *point: seen.append(point[:3])
        observing._RUN_LIMIT_S = 0.0
        observing.observe(mlflow)
        mlflow.set_experiment("mine")
        with mlflow.start_run():
            mlflow.log_param("kind", "toy")
            mlflow.log_metric("val", 0.5, step=3)
            mlflow.log_text("hello", "note.txt")
        assert seen == [("MLflow", 3, {"val": 0.5})]
    """
    temporary = (tmp_path / "temporary").as_uri()
    store = f"sqlite:///{tmp_path}/mlflow.db"
    trial = {"study": "digits", "study_id": "one", "run_id": "0000", "temporary": temporary}
    mlflow = {"uri": store, "version": version("mlflow"), **trial}
    known = {"reports": True, "begun": {}, "mlflow": mlflow}
    subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, OBSERVED_VARIABLE: json.dumps(known)},
        cwd=tmp_path,
        check=True,
    )
    assert len([*(tmp_path / "temporary").rglob("note.txt")]) == 1
