"""Files next to the notebook that its code names, and that a trial has overwritten."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweeper.execution.notebook_files import NotebookFiles


def touched(folder: Path, *paths: str, at: int) -> None:
    for path in paths:
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).touch()
        os.utime(folder / path, (at, at))


@pytest.mark.parametrize(
    "code",
    ["torch.save(net, 'best.pt')", 'net.save("models/best.pt")', r"write(f'{root}\best.pt')"],
)
def test_a_file_is_named_by_a_text_that_ends_with_its_name(tmp_path: Path, code: str) -> None:
    touched(tmp_path, "best.pt", "models/best.pt", "a/b.pt", at=1)
    assert NotebookFiles(tmp_path, code).versions().keys() == {"best.pt", "models/best.pt"}


@pytest.mark.parametrize("code", ["f'{number}best.pt'", "best.pt", "'best.pt.part'", ""])
def test_a_name_that_is_only_a_part_of_a_text_names_no_file(tmp_path: Path, code: str) -> None:
    touched(tmp_path, "best.pt", at=1)
    assert NotebookFiles(tmp_path, code).versions() == {}


def test_a_file_that_was_there_before_and_has_changed_is_overwritten(tmp_path: Path) -> None:
    files = NotebookFiles(tmp_path, "'kept.csv' 'gone.csv' 'best.pt' 'new.csv'")
    touched(tmp_path, "kept.csv", "gone.csv", "best.pt", at=1)
    before = files.versions()
    (tmp_path / "gone.csv").unlink()
    touched(tmp_path, "best.pt", "new.csv", at=2)
    assert files.overwritten_since(before) == ("best.pt",)


def test_a_folder_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    assert NotebookFiles(tmp_path / "none", "'a'").versions() == {}
