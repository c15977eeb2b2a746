"""Artifacts are known by their content, and a study keeps those of another one without copies."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from sweeper.study_folder.saved import content_of, is_intact, keep, saved_in


def test_files_and_folders_are_listed_by_name_with_size_and_hash(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"abc")
    (tmp_path / "tokenizer" / "deep").mkdir(parents=True)
    (tmp_path / "tokenizer" / "deep" / "vocab").write_bytes(b"12345")
    (tmp_path / ".model.pt.1.part").write_bytes(b"half")
    found = saved_in(tmp_path)
    assert {name: it["size_bytes"] for name, it in found.items()} == {"model.pt": 3, "tokenizer": 5}
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert found["model.pt"]["sha256"] == abc
    assert saved_in(tmp_path / "nothing") == {}


def test_the_hash_of_a_folder_follows_its_names_and_contents(tmp_path: Path) -> None:
    def made(name: str, **files: str) -> str:
        (tmp_path / name).mkdir()
        for file, text in files.items():
            (tmp_path / name / file).write_text(text)
        return str(content_of(tmp_path / name)["sha256"])

    assert made("one", a="1", b="2") == made("two", b="2", a="1")
    assert len({made("three", a="1"), made("four", b="1"), made("five", a="2")}) == 3


def test_what_is_kept_takes_no_space_where_that_can_be_and_survives_its_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_text("w")
    keep(tmp_path / "model", tmp_path / "kept" / "model")
    kept = tmp_path / "kept" / "model" / "weights"
    assert kept.stat().st_ino == (tmp_path / "model" / "weights").stat().st_ino
    (tmp_path / "model" / "weights").unlink()
    assert kept.read_text() == "w"
    assert os.listdir(tmp_path / "kept") == ["model"]

    def refuse(*_: Any) -> None:
        raise OSError(errno.EXDEV, "another disk")

    monkeypatch.setattr(os, "link", refuse)
    keep(kept, tmp_path / "copied")
    assert (tmp_path / "copied").read_text() == "w"


def test_a_changed_or_missing_file_is_not_intact(tmp_path: Path) -> None:
    file = tmp_path / "model"
    file.write_text("w")
    recorded = content_of(file)
    assert is_intact(file, recorded)
    file.write_text("v")
    assert not is_intact(file, recorded)
    file.unlink()
    assert not is_intact(file, recorded)


def test_what_is_no_file_is_left_out_and_never_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "model").write_text("weights")
    (tmp_path / "last").symlink_to("gone")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "epoch").write_text("1")
    alone = saved_in(tmp_path)
    (tmp_path / "run" / "newest").symlink_to("removed")
    os.mkfifo(tmp_path / "run" / "pipe")
    assert saved_in(tmp_path) == alone
    assert set(alone) == {"model", "run"}
    assert f"{tmp_path}/last is no artifact: No such file or directory" in caplog.text
    assert f"{tmp_path}/pipe is no artifact" in caplog.text
