"""A notebook reports values, saves artifacts, and knows its trial."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sweeper
from sweeper.kernels.cells.report_socket import ReportSocket
from sweeper.notebook_api import calls
from sweeper.notebook_api.messages import (
    REPORTS_VARIABLE,
    STOP_VARIABLE,
    TRIAL_VARIABLE,
    Point,
    StopReason,
    encode_float,
)


class Scalar:
    """An object like a numpy scalar or a tensor with one element."""

    def __float__(self) -> float:
        return 0.5


class Tensor:
    """An object like a tensor with several elements: `float()` raises torch's RuntimeError."""

    def __float__(self) -> float:
        raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")


def test_every_call_of_the_notebook_api_works_without_effect_in_plain_python(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = (
        "import sweeper; sweeper.report(0, acc=0.5); sweeper.score(acc=0.5);"
        "assert sweeper.trial().params == {}"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_the_trial_has_default_values_in_a_notebook_run_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trial = sweeper.trial()
    assert (trial.number, trial.run_id, trial.params) == (0, "by-hand", {})
    assert (trial.seed, trial.attempt) == (0, 1)
    assert list(tmp_path.iterdir()) == []  # folders are created only when their paths are used
    assert trial.checkpoint_dir.is_dir()
    assert trial.checkpoint_dir.absolute() == tmp_path / "checkpoints" / "by-hand"


def test_in_a_sweep_the_call_trial_returns_what_an_environment_variable_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out" / "checkpoints" / "0007"
    environment = {"number": 7, "run_id": "0007", "params": {"lr": 0.1}, "seed": 42, "attempt": 2}
    monkeypatch.setenv(TRIAL_VARIABLE, json.dumps({**environment, "folder": str(folder)}))
    trial = sweeper.trial()
    assert (trial.number, trial.run_id, trial.params) == (7, "0007", {"lr": 0.1})
    assert (trial.seed, trial.attempt) == (42, 2)
    assert trial.checkpoint_dir == trial.checkpoint_dir == folder
    assert folder.is_dir()


def test_after_should_stop_returned_true_a_report_does_not_raise_so_that_the_trial_can_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # A socket's path must be short.
    monkeypatch.setattr(calls, "_announced", set())
    monkeypatch.setenv(REPORTS_VARIABLE, "reports")
    monkeypatch.setenv(STOP_VARIABLE, "stop")
    reports = ReportSocket()
    reports.bind(Path("reports"))

    def ask(kind: StopReason) -> None:
        Path("stop").write_text(json.dumps({"kind": kind, "message": "why"}))

    ask(StopReason.INTERRUPTED)
    with pytest.raises(sweeper.TrialStopped):
        sweeper.report(0, acc=0.5)
    assert sweeper.should_stop()
    sweeper.report(1, acc=0.5)
    ask(StopReason.PRUNED)
    with pytest.raises(sweeper.TrialPruned):
        sweeper.report(2, acc=0.5)
    reports.close()


@pytest.mark.parametrize("value", [1, 0.5, True, Scalar(), Decimal("0.5"), math.nan, math.inf])
def test_anything_that_is_one_number_can_be_reported(value: Any) -> None:
    sweeper.report(0, acc=value)
    sweeper.score(acc=value)


@pytest.mark.parametrize("value", [None, "high", [0.5], {}, 1j, Tensor(), 10**400])
def test_the_message_about_a_value_that_is_not_one_number_names_the_metric(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^report\(acc=…\): expected one number, got "):
        sweeper.report(0, loss=0.5, acc=value)
    with pytest.raises(TypeError, match=r"^score\(acc=…\): expected one number, got "):
        sweeper.score(acc=value)


def test_the_message_about_a_large_value_names_its_type() -> None:
    with pytest.raises(TypeError, match=r"got a list$"):
        sweeper.score(acc=list(range(1000)))


@pytest.mark.parametrize("step", [0.5, "3", None, math.nan, math.inf, [1]])
def test_a_step_that_is_not_a_whole_number_is_refused(step: Any) -> None:
    with pytest.raises(TypeError, match=r"^report\(step=…\): expected "):
        sweeper.report(step, acc=0.5)


def test_a_report_needs_a_step_which_may_be_given_by_name() -> None:
    report: Any = sweeper.report
    with pytest.raises(TypeError, match=r"report\(step=…, acc=…\).*score\(acc=…\)"):
        report(acc=0.9)
    sweeper.report(step=3, acc=0.9)


@pytest.mark.parametrize("step", [0, 3.0, True, Decimal(4)])
def test_a_whole_number_of_any_type_can_be_a_step(step: Any) -> None:
    sweeper.report(step, acc=0.5)


@given(st.floats())
def test_every_float_is_read_from_json_as_it_was_written(value: float) -> None:
    text = json.dumps(encode_float(value), allow_nan=False)
    assert repr(float(json.loads(text))) == repr(value)


@pytest.mark.parametrize("step", [None, 0, 3])
def test_a_reported_point_is_equal_after_it_was_written_to_json_and_read(step: int | None) -> None:
    point = Point(step=step, metrics={"a": 0.1, "b": -math.inf})
    assert Point.decode(json.loads(json.dumps(point.encode(), allow_nan=False))) == point


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a notebook that runs as a trial. Its artifacts are in `saved`."""
    trial = {"number": 7, "run_id": "0007", "params": {}, "seed": 1, "attempt": 1, "folder": "c"}
    trial["artifact_folder"] = str(tmp_path / "saved")
    monkeypatch.setenv(TRIAL_VARIABLE, json.dumps(trial))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_artifact_is_copied_under_its_own_or_a_given_name_and_replaces_an_earlier_one(
    folder: Path,
) -> None:
    Path("model.pt").write_bytes(b"first")
    assert sweeper.save_artifact("model.pt") == folder / "saved" / "model.pt"
    assert sweeper.save_artifact(Path("model.pt"), "encoder.pt").read_bytes() == b"first"
    Path("model.pt").write_bytes(b"second")  # changing the original must not change the saved copy
    assert (folder / "saved" / "model.pt").read_bytes() == b"first"
    assert sweeper.save_artifact("model.pt").read_bytes() == b"second"
    assert sorted(os.listdir(folder / "saved")) == ["encoder.pt", "model.pt"]


def test_a_folder_saved_as_an_artifact_is_copied_whole_and_replaced_whole(folder: Path) -> None:
    model = folder / "model"
    (model / "deep").mkdir(parents=True)
    (model / "deep" / "weights").write_text("w")
    (model / "old").write_text("o")
    sweeper.save_artifact(model)
    (model / "old").unlink()
    place = sweeper.save_artifact("model/")
    assert sorted(path.name for path in place.rglob("*")) == ["deep", "weights"]
    assert os.listdir(folder / "saved") == ["model"]


def test_an_artifact_file_replaces_an_artifact_folder_and_the_other_way_round(folder: Path) -> None:
    (folder / "model").mkdir()
    (folder / "file").write_text("f")
    for source, is_folder in (("model", True), ("file", False), ("model", True)):
        assert sweeper.save_artifact(source, "it").is_dir() == is_folder


def test_a_file_that_a_library_wrote_into_the_artifact_folder_is_not_changed(folder: Path) -> None:
    written = sweeper.trial().artifact_dir / "model.pt"
    written.write_text("w")
    assert sweeper.save_artifact(written) == written
    assert written.read_text() == "w"


@pytest.mark.parametrize("name", ["../model", "/model", "a/b", "", ".", "..", ".m", "m.part"])
def test_an_artifact_name_that_leads_out_of_its_folder_is_refused(folder: Path, name: str) -> None:
    Path("model.pt").write_text("m")
    with pytest.raises(ValueError, match=r"expected a plain file name such as 'model\.pt'"):
        sweeper.save_artifact("model.pt", name)
    assert not (folder / "saved").exists()


def test_saving_a_missing_file_as_an_artifact_names_the_searched_folder(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"save_artifact\('modl\.pt'\).*no such file") as it:
        sweeper.save_artifact("modl.pt")
    assert str(folder) in str(it.value)


def test_a_folder_that_contains_the_artifacts_cannot_be_saved_as_an_artifact(folder: Path) -> None:
    with pytest.raises(ValueError, match="this folder contains the trial's artifacts"):
        sweeper.save_artifact(folder)


def test_an_artifact_copy_that_fails_leaves_the_earlier_artifact(folder: Path) -> None:
    Path("model.pt").write_text("first")
    sweeper.save_artifact("model.pt")
    (folder / "model").mkdir()
    (folder / "model" / "lost").symlink_to("nowhere")
    with pytest.raises(OSError, match=r"'model\.pt' that was saved before is unchanged"):
        sweeper.save_artifact("model", "model.pt")
    assert (folder / "saved" / "model.pt").read_text() == "first"
    assert os.listdir(folder / "saved") == ["model.pt"]


def test_a_notebook_run_by_hand_saves_artifacts_next_to_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.pt").write_text("m")
    assert sweeper.save_artifact("model.pt") == tmp_path / "artifacts" / "by-hand" / "model.pt"
