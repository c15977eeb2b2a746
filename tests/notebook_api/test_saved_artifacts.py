"""`save_artifact` copies a file or folder into the trial's folder, complete or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import sweeper
from sweeper.notebook_api.messages import TRIAL_VARIABLE


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a notebook that runs as a trial, whose artifacts are in `saved`."""
    trial = {"number": 7, "run_id": "0007", "params": {}, "seed": 1, "attempt": 1, "folder": "c"}
    trial["artifact_folder"] = str(tmp_path / "saved")
    monkeypatch.setenv(TRIAL_VARIABLE, json.dumps(trial))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_is_copied_under_its_name_or_another_and_replaces_the_one_before(
    folder: Path,
) -> None:
    Path("model.pt").write_bytes(b"first")
    assert sweeper.save_artifact("model.pt") == folder / "saved" / "model.pt"
    assert sweeper.save_artifact(Path("model.pt"), "encoder.pt").read_bytes() == b"first"
    Path("model.pt").write_bytes(b"second")  # the copy is one of its own
    assert (folder / "saved" / "model.pt").read_bytes() == b"first"
    assert sweeper.save_artifact("model.pt").read_bytes() == b"second"
    assert sorted(os.listdir(folder / "saved")) == ["encoder.pt", "model.pt"]


def test_a_folder_is_copied_whole_and_replaced_whole(folder: Path) -> None:
    model = folder / "model"
    (model / "deep").mkdir(parents=True)
    (model / "deep" / "weights").write_text("w")
    (model / "old").write_text("o")
    sweeper.save_artifact(model)
    (model / "old").unlink()
    place = sweeper.save_artifact("model/")
    assert sorted(path.name for path in place.rglob("*")) == ["deep", "weights"]
    assert os.listdir(folder / "saved") == ["model"]


def test_a_file_takes_the_place_of_a_folder_and_the_other_way_round(folder: Path) -> None:
    (folder / "model").mkdir()
    (folder / "file").write_text("f")
    for source, is_folder in (("model", True), ("file", False), ("model", True)):
        assert sweeper.save_artifact(source, "it").is_dir() == is_folder


def test_what_a_library_writes_into_the_folder_itself_stays_as_it_is(folder: Path) -> None:
    written = sweeper.trial().artifact_dir / "model.pt"
    written.write_text("w")
    assert sweeper.save_artifact(written) == written
    assert written.read_text() == "w"


@pytest.mark.parametrize("name", ["../model", "/model", "a/b", "", ".", "..", ".m", "m.part"])
def test_a_name_that_leads_elsewhere_is_refused(folder: Path, name: str) -> None:
    Path("model.pt").write_text("m")
    with pytest.raises(ValueError, match=r"expected a plain file name such as 'model\.pt'"):
        sweeper.save_artifact("model.pt", name)
    assert not (folder / "saved").exists()


def test_a_missing_file_is_named_with_the_folder_in_which_it_was_looked_for(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"save_artifact\('modl\.pt'\).*no such file") as it:
        sweeper.save_artifact("modl.pt")
    assert str(folder) in str(it.value)


def test_a_folder_that_holds_the_artifacts_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="the trial's artifacts are in this folder"):
        sweeper.save_artifact(folder)


def test_a_copy_that_fails_leaves_what_was_saved_before(folder: Path) -> None:
    Path("model.pt").write_text("first")
    sweeper.save_artifact("model.pt")
    (folder / "model").mkdir()
    (folder / "model" / "lost").symlink_to("nowhere")
    with pytest.raises(OSError, match=r"what was saved as 'model\.pt' before is as it was"):
        sweeper.save_artifact("model", "model.pt")
    assert (folder / "saved" / "model.pt").read_text() == "first"
    assert os.listdir(folder / "saved") == ["model.pt"]


def test_run_by_hand_it_saves_beside_the_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.pt").write_text("m")
    assert sweeper.save_artifact("model.pt") == tmp_path / "artifacts" / "by-hand" / "model.pt"
