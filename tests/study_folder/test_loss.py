"""Files that are removed or replaced while a sweep uses them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sweeper.errors import StorageAwayError, StudyError
from sweeper.study_folder.loss import LostFileError, Presence, loss_message


@pytest.mark.parametrize("how", ["removed", "replaced", "folder", "made later"])
def test_a_file_that_was_removed_or_replaced_stays_lost(tmp_path: Path, how: str) -> None:
    file, other, late = tmp_path / "folder" / "file", tmp_path / "other", tmp_path / "late"
    file.parent.mkdir()
    file.touch()
    other.touch()
    presence = Presence(late, None, other, file)
    assert presence.lost() is None
    late.touch()  # it counts from now on
    assert presence.lost() is None
    match how:
        case "removed":
            file.unlink()
        case "replaced":
            other.rename(tmp_path / "kept open")
            file.replace(other)
        case "folder":
            shutil.rmtree(file.parent)
        case "made later":
            late.unlink()
    lost = {"replaced": other, "made later": late}.get(how, file)
    assert presence.lost() == lost
    if how == "folder":
        assert "folder was removed" in str(LostFileError(file))
    file.parent.mkdir(exist_ok=True)
    lost.touch()
    assert presence.lost() == lost


def test_the_message_about_a_loss_says_how_to_go_on(tmp_path: Path) -> None:
    storage, tracking = "out/study.db", tmp_path / "mlflow.db"

    def message(error: Exception) -> str:
        return loss_message(error, storage=storage, tracking=tracking)

    assert "the same command goes on" in message(StorageAwayError("db: locked"))
    assert "the same command goes on" in message(LostFileError(tracking))
    assert "their executed notebooks were kept" in message(LostFileError(tmp_path / "study.db"))
    assert message(StudyError("it is swept elsewhere")) == "it is swept elsewhere"
    assert message(ValueError("defect")) == "out/study.db: defect"
