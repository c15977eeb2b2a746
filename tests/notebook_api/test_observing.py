"""Metrics that a notebook's libraries log are reported. `tests/journeys` has the real libraries."""

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
    """A stand-in for torch's class, which would need TensorBoard."""

    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: int | None = None, walltime: Any = None
    ) -> None:
        pass


def test_scalars_for_tensorboard_are_reported_whether_passed_by_position_or_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(observing, "_report", lambda *point: seen.append(point))
    observing._tensorboard(SimpleNamespace(SummaryWriter=SummaryWriter))
    writer = SummaryWriter()
    writer.add_scalar("loss", 0.5, 0)
    writer.add_scalar("loss", 0.5, 0)
    writer.add_scalar(tag="loss", scalar_value=0.25, global_step=3)
    writer.add_scalar("acc", scalar_value=0.75, global_step=3, walltime=1.0)
    writer.add_scalar("uncounted", 0.75)
    writer.add_scalar("uncounted", 0.75)
    assert seen == [
        ("TensorBoard", 0, {"loss": 0.5}),
        ("TensorBoard", 0, {"loss": 0.5}),
        ("TensorBoard", 3, {"loss": 0.25}),
        ("TensorBoard", 3, {"acc": 0.75}),
        ("TensorBoard", 0, {"uncounted": 0.75}),
        ("TensorBoard", 1, {"uncounted": 0.75}),
    ]


class Trainer:
    """A stand-in for Lightning's class. Each call changes its metrics, as in Lightning."""

    def __init__(self) -> None:
        self.callback_metrics: dict[str, float] = {}
        self.current_epoch = 0

    def fit(self) -> None:
        for _ in range(3):
            # Validates every second epoch, as with `check_val_every_n_epoch=2`.
            if self.current_epoch % 2:
                self.callback_metrics["val_acc"] = self.current_epoch / 8
            FitLoop(self).on_advance_end()

    def validate(self) -> list[str]:
        self.callback_metrics = {"val_acc": 0.75}
        return ["validated"]

    def test(self) -> None:
        self.callback_metrics = {"test_acc": 0.5}


class FitLoop:
    """A stand-in for Lightning's class, which calls the module's hooks at the end of an epoch."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def on_advance_end(self) -> None:
        epoch = self.trainer.current_epoch
        # A metric that a module logs in `on_train_epoch_end`.
        self.trainer.callback_metrics["train_f1"] = epoch / 4
        self.trainer.current_epoch += 1


def test_lightnings_metrics_are_reported_at_their_epoch_and_after_validate_and_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(observing, "_report", lambda _, *point: seen.append(point))
    observing._lightning(SimpleNamespace(Trainer=Trainer, FitLoop=FitLoop))
    trainer = Trainer()
    trainer.fit()
    assert trainer.validate() == ["validated"]
    trainer.test()
    assert seen == [
        (0, {"train_f1": 0.0}),
        (1, {"train_f1": 0.25, "val_acc": 0.125}),
        (2, {"train_f1": 0.5}),
        (3, {"val_acc": 0.75}),
        (3, {"test_acc": 0.5}),
    ]


#: Where versions of Keras define their callbacks: 2.12, 2.15, 3.9, and `tf_keras` (Keras 2)
#: installed next to Keras 3.
LAYOUTS = {
    "2.12": {"keras/__init__.py": "", "keras/callbacks.py": "CLASS"},
    "2.15": {
        "keras/__init__.py": "from keras import callbacks",
        "keras/src/__init__.py": "",
        "keras/src/callbacks.py": "CLASS",
        "keras/callbacks/__init__.py": "from keras.src.callbacks import CallbackList",
    },
    "3.9": {
        "keras/__init__.py": "from keras.api import callbacks",
        "keras/src/__init__.py": "",
        "keras/src/callbacks/__init__.py": "from .callback_list import CallbackList",
        "keras/src/callbacks/callback_list.py": "CLASS",
        "keras/api/__init__.py": "",
        "keras/api/callbacks/__init__.py": "from keras.src.callbacks import CallbackList",
    },
    "tf_keras": {
        "tf_keras/__init__.py": "from tf_keras.src import callbacks",
        "tf_keras/src/__init__.py": "",
        "tf_keras/src/callbacks.py": "CLASS",
    },
}
CALLBACK_LIST = """
class CallbackList:
    def on_epoch_end(self, epoch, logs=None):
        pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_epoch_of_keras_is_one_report_whichever_keras_module_defines_its_callbacks(
    layout: str, tmp_path: Path
) -> None:
    for path, source in LAYOUTS[layout].items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(source.replace("CLASS", CALLBACK_LIST))
    package = "tf_keras" if layout == "tf_keras" else "keras"
    place = {"2.12": "keras.callbacks", "3.9": "keras.api.callbacks"}.get(layout)
    script = f"""if True:
        import sys
        from sweeper.kernels.forking.zygote import finders
        from sweeper.notebook_api import observing
        seen = []
        observing.observed = seen.append
        finders.observe_libraries()
        import {package}
        from {place or package + ".src.callbacks"} import CallbackList
        CallbackList().on_epoch_end(3, {{"val_accuracy": 0.5}})
        assert [(point.step, point.metrics) for point in seen] == [(3, {{"val_accuracy": 0.5}})]
    """
    known = {"reports": True, "mlflow": None}
    environment = {**os.environ, OBSERVED_VARIABLE: json.dumps(known)}
    command = [sys.executable, "-c", script]
    subprocess.run(command, env=environment, cwd=tmp_path, check=True)


#: The beginning of a script whose MLflow calls are observed. `seen` lists names and steps of
#: metrics.
OBSERVES = """if True:
    import warnings, mlflow
    from sweeper.notebook_api import observing
    warnings.simplefilter("ignore")
    seen = []
    def note(library, step, values, source):
        seen.extend((name, step) for name in values)
    observing._report = note
    observing._RUN_LIMIT_S = observing._AWAY_LIMIT_S = 0.0
    observing.observe(mlflow)
"""


def run_observed(script: str, folder: Path, *, run_id: str | None, **begun: int) -> None:
    """Run a script in a process whose MLflow calls are observed, with a store in a folder.

    Args:
        script: The script.
        folder: Folder of the MLflow store, and of a temporary store that may replace it.
        run_id: Run id of the trial. None to log all calls to the temporary store.
        **begun: For each series, the number of steps that earlier attempts have logged.
    """
    temporary = (folder / "temporary").as_uri()
    mlflow = {
        "uri": temporary if run_id is None else f"sqlite:///{folder}/mlflow.db",
        "temporary": temporary,
        "version": version("mlflow"),
        "study": "digits",
        "study_id": "one",
        "run_id": run_id,
    }
    known = {"reports": True, "begun": begun, "mlflow": mlflow}
    environment = {**os.environ, OBSERVED_VARIABLE: json.dumps(known)}
    command = [sys.executable, "-c", OBSERVES + script]
    subprocess.run(command, env=environment, cwd=folder, check=True)


@pytest.mark.slow
def test_a_notebook_whose_trial_gets_no_mlflow_run_in_time_logs_to_a_temporary_folder(
    tmp_path: Path,
) -> None:
    script = """if True:
        mlflow.set_experiment("mine")
        with mlflow.start_run():
            mlflow.log_param("kind", "toy")
            mlflow.log_metric("val", 0.5, step=3)
            mlflow.log_text("hello", "note.txt")
        assert seen == [("val", 3)]
    """
    run_observed(script, tmp_path, run_id="0000")
    assert len([*(tmp_path / "temporary").rglob("note.txt")]) == 1


class MlflowException(Exception):
    error_code = "INTERNAL_ERROR"


def run_in(looks: list[list[str] | None], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the MLflow run of a trial, and a list of the URIs to which it has switched.

    Args:
        looks: For each search for the run, the ids that it finds. None if MLflow does not answer.
        monkeypatch: Shortens the time between two checks.
    """
    monkeypatch.setattr(observing, "_LOOK_S", 0.0)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "")
    uris: list[str] = []

    def search_runs(*_: Any) -> list[Any]:
        found = looks.pop(0)
        if found is None:
            raise MlflowException
        return [SimpleNamespace(info=SimpleNamespace(run_id=run_id)) for run_id in found]

    made = SimpleNamespace(info=SimpleNamespace(run_id="temporary"))
    client = SimpleNamespace(search_runs=search_runs, create_run=lambda _: made)
    module = SimpleNamespace(
        exceptions=SimpleNamespace(MlflowException=MlflowException),
        set_experiment=lambda _: SimpleNamespace(experiment_id="1"),
        set_tracking_uri=uris.append,
        MlflowClient=lambda: client,
    )
    trial = {"run_id": "0000", "study": "my", "study_id": "one", "temporary": "file:folder"}
    return observing._RunOfTrial(module, trial), uris


def test_the_wait_for_a_silent_mlflow_server_is_longer_than_the_wait_for_a_missing_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, uris = run_in([None, None, ["abc"]], monkeypatch)
    monkeypatch.setattr(observing, "_RUN_LIMIT_S", -1.0)
    assert (run.id, uris) == ("abc", [])
    run, uris = run_in([None, []], monkeypatch)
    with pytest.warns(UserWarning, match="no run of trial 0000"):
        assert (run.id, uris) == ("temporary", ["file:folder"])
    run, uris = run_in([None], monkeypatch)
    monkeypatch.setattr(observing, "_AWAY_LIMIT_S", -1.0)
    with pytest.warns(UserWarning, match="MLflow is unavailable"):
        assert (run.id, uris) == ("temporary", ["file:folder"])


@pytest.mark.parametrize("error", [MlflowException("bad path"), OSError("502 Bad Gateway")])
def test_a_failed_mlflow_call_is_repeated_in_a_local_folder_only_if_the_server_does_not_answer(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, uris = run_in([["abc"], ["abc"], None], monkeypatch)

    def call() -> str:
        if run.id == "abc":
            raise error
        return "made"

    with pytest.raises(type(error)):
        run.calling(call)
    assert uris == []
    with pytest.warns(UserWarning, match="MLflow is unavailable"):
        assert (run.calling(call), uris) == ("made", ["file:folder"])


def test_a_wrong_call_of_a_replaced_function_raises_the_error_of_the_library() -> None:
    class Writer:
        def add_scalar(self, tag: str, scalar_value: float) -> None: ...

    observing._tensorboard(SimpleNamespace(SummaryWriter=Writer))
    writer: Any = Writer()
    with pytest.raises(TypeError, match=r"add_scalar\(\) missing"):
        writer.add_scalar("loss")


def test_metrics_of_one_mlflow_call_at_one_step_become_one_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(observing, "_report", lambda _, *point: seen.append(point[:2]))

    class Client:
        def log_metric(self, run_id: str, key: str, value: Any, step: Any) -> None: ...
        def log_batch(self, run_id: str, metrics: Any) -> None: ...

    run: Any = SimpleNamespace(has=lambda _: True)
    observing._observe_metrics(Client, run, reports=True)
    values = {"loss": 0.5, "val": 0.25, "system/cpu": 9.0}
    metrics = [SimpleNamespace(key=key, value=values[key], step=3) for key in values]
    Client().log_batch("abc", metrics)
    assert seen == [(3, {"loss": 0.5, "val": 0.25})]


#: The beginning of a script: it makes the trial's run, as the sweep does. After `go_away()`,
#: MLflow's store fails.
GOES_AWAY = """if True:
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    client = mlflow.MlflowClient()
    tags = {"sweeper.run_id": "0000", "sweeper.study_id": "one"}
    made = client.create_run(client.create_experiment("digits"), tags=tags)
    def go_away():
        def fail(*_, **__):
            raise mlflow.exceptions.MlflowException("API request to http://x failed")
        for name in vars(SqlAlchemyStore):
            if not name.startswith("_"):
                setattr(SqlAlchemyStore, name, fail)
"""


@pytest.mark.slow
def test_a_notebook_continues_in_a_local_store_if_mlflow_becomes_unavailable(
    tmp_path: Path,
) -> None:
    script = """if True:
        mlflow.log_metric("val", 0.5, step=0)
        assert mlflow.active_run().info.run_id == made.info.run_id
        own = mlflow.MlflowClient()
        go_away()
        mlflow.log_metric("val", 0.6, step=1)
        mlflow.log_metrics({"val": 0.7, "loss": 0.1}, step=2)
        own.log_metric(made.info.run_id, "own", 0.8)
        mlflow.log_param("kind", "toy")
        mlflow.log_text("hello", "note.txt")
        mlflow.end_run()
        with mlflow.start_run():
            mlflow.set_tag("done", "yes")
            data = mlflow.get_run(mlflow.active_run().info.run_id).data
        assert data.metrics == {"val": 0.7, "loss": 0.1, "own": 0.8}, data
        assert (data.params, data.tags["done"]) == ({"kind": "toy"}, "yes")
        assert seen == [("val", 0), ("val", 1), ("val", 2), ("loss", 2), ("own", 0)]
    """
    run_observed(GOES_AWAY + script, tmp_path, run_id="0000")
    assert len([*(tmp_path / "temporary").rglob("note.txt")]) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "call", ["log_metric('val', 0.5, step=0)", "start_run()", "set_experiment('mine')"]
)
def test_a_notebook_may_begin_while_mlflow_is_unavailable(call: str, tmp_path: Path) -> None:
    script = f"""if True:
        go_away()
        mlflow.{call}
        mlflow.log_metric("val", 0.6, step=1)
        assert seen[-1] == ("val", 1)
    """
    run_observed(GOES_AWAY + script, tmp_path, run_id="0000")
    assert (tmp_path / "temporary").exists()


@pytest.mark.slow
def test_a_call_that_mlflow_refuses_fails_in_the_notebook(tmp_path: Path) -> None:
    script = """if True:
        try:
            mlflow.set_tag("x" * 1000, "too long a name")
        except mlflow.exceptions.MlflowException:
            raise SystemExit
        raise AssertionError
    """
    run_observed(GOES_AWAY + script, tmp_path, run_id="0000")
    assert not (tmp_path / "temporary").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "call",
    ["get_experiment_by_name('mine')", "search_runs()", "MlflowClient().search_experiments()"],
)
def test_a_notebook_may_read_from_mlflow_before_it_has_a_run(call: str, tmp_path: Path) -> None:
    run_observed(f"mlflow.{call}", tmp_path, run_id=None)


@pytest.mark.slow
def test_a_metric_logged_to_mlflow_without_a_step_gets_the_next_step_of_its_series(
    tmp_path: Path,
) -> None:
    script = """if True:
        from mlflow.utils.autologging_utils import MlflowAutologgingQueueingClient
        for epoch in range(3):
            mlflow.log_metric("val", 0.5, step=epoch)
            mlflow.log_metrics({"loss": 0.5})
        for _ in range(2):
            mlflow.log_metrics({"first": 0.5}, step=0)
            run_id = mlflow.active_run().info.run_id
            mlflow.MlflowClient().log_metric(run_id, "own", 0.5)
            queue = MlflowAutologgingQueueingClient()
            queue.log_metrics(run_id, {"auto": 0.5})
            queue.flush()
        steps = {}
        for name, step in seen:
            steps.setdefault(name, []).append(step)
        counted = {"loss": [3, 4, 5], "own": [0, 1], "auto": [0, 1]}
        assert steps == {"val": [0, 1, 2], "first": [0, 0], **counted}
    """
    run_observed(script, tmp_path, run_id=None, val=5, loss=3)
