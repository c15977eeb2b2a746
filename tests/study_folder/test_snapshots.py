"""A study's folder keeps code, environments and artifacts, with hashes of their content."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeper.errors import StudyError
from sweeper.study_folder.saved import content_of, is_intact, keep, saved_in
from sweeper.study_folder.snapshots import (
    CodeSnapshot,
    keep_environment,
    keep_snapshot,
    read_environment,
    read_snapshot,
)
from sweeper.trials import StudyPaths

NOTEBOOK = json.dumps({"cells": [{"id": "a", "source": "x = 1"}], "nbformat": 4})
BYTES = b"# \xe9t\xe9\r\nX = 1\n"
SNAPSHOT = CodeSnapshot(
    folder="/project/notebooks",
    notebook_name="nb.ipynb",
    notebook=NOTEBOOK,
    files={"model.py": BYTES.decode("utf-8", "surrogateescape"), "../lib/deep.py": "Y = 2\n"},
)


@pytest.fixture
def paths(tmp_path: Path) -> StudyPaths:
    return StudyPaths.parse(f"{tmp_path}/{{run_id}}.ipynb", study="s")


def test_a_snapshot_of_code_and_an_environment_are_read_as_they_were_written(
    paths: StudyPaths,
) -> None:
    found = read_snapshot(paths, keep_snapshot(paths, SNAPSHOT))
    assert found == SNAPSHOT
    frozen = found.frozen_in("/elsewhere/notebooks")
    assert set(frozen) == {"/elsewhere/notebooks/model.py", "/elsewhere/lib/deep.py"}
    assert frozen["/elsewhere/notebooks/model.py"].encode("utf-8", "surrogateescape") == BYTES
    facts = {"cores": 2, "python": {"packages": {"numpy": "2.0"}}}
    environment = keep_environment(paths, facts)
    assert read_environment(paths, environment) == facts


def test_snapshots_with_equal_code_share_one_file_and_different_code_gets_another_one(
    paths: StudyPaths,
) -> None:
    other_ids = replace(SNAPSHOT, notebook=NOTEBOOK.replace('"a"', '"b"'))
    edited = replace(SNAPSHOT, files={**SNAPSHOT.files, "model.py": "X = 2\n"})
    names = [keep_snapshot(paths, one) for one in (SNAPSHOT, other_ids, edited, SNAPSHOT)]
    assert names[0] == names[1] == names[3] != names[2]
    assert {file.name for file in paths.code.iterdir()} == {f"{name}.json" for name in names}


def test_changing_one_file_of_a_snapshot_changes_only_the_version_of_that_file() -> None:
    versions = SNAPSHOT.versions
    assert [*versions] == ["code cells", "model.py", "../lib/deep.py"]
    words = {"cell_type": "markdown", "source": "words"}
    code = {"cell_type": "code", "source": ["x = 1\n", "y = 2"]}
    others = {
        "code cells": replace(SNAPSHOT, notebook=json.dumps({"cells": [words, code]})),
        "model.py": replace(SNAPSHOT, files={**SNAPSHOT.files, "model.py": "X = 2\n"}),
    }
    for name, other in others.items():
        assert [key for key in versions if other.versions[key] != versions[key]] == [name]
    assert replace(SNAPSHOT, parameters="space: {}", folder="/moved").versions == versions


def test_a_missing_or_changed_file_of_a_snapshot_is_reported_in_one_message(
    paths: StudyPaths,
) -> None:
    with pytest.raises(StudyError, match=r"code/0123\.json: there is no such file"):
        read_snapshot(paths, "0123")
    name = keep_snapshot(paths, SNAPSHOT)
    file = paths.snapshot(name)
    text = file.read_text()
    for damaged in (text.replace("Y = 2", "Y = 3"), "[]", "{}"):
        file.write_text(damaged)
        with pytest.raises(StudyError, match="was changed after the sweep had written it"):
            read_snapshot(paths, name)
    file.write_text("{")
    with pytest.raises(StudyError, match="cannot be read"):
        read_snapshot(paths, name)


def test_artifacts_are_listed_by_name_with_size_and_hash(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"abc")
    (tmp_path / "tokenizer" / "deep").mkdir(parents=True)
    (tmp_path / "tokenizer" / "deep" / "vocab").write_bytes(b"12345")
    (tmp_path / ".model.pt.1.part").write_bytes(b"half")
    found = saved_in(tmp_path)
    assert {name: it.size_bytes for name, it in found.items()} == {"model.pt": 3, "tokenizer": 5}
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert found["model.pt"].sha256 == abc
    assert saved_in(tmp_path / "nothing") == {}


def test_a_file_whose_name_is_not_utf8_may_be_in_a_saved_folder_but_is_no_artifact_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    latin = os.fsdecode(b"caf\xe9.txt")
    (tmp_path / "preds").mkdir()
    for file in (tmp_path / "preds" / latin, tmp_path / latin):
        file.write_text("x")
    found = saved_in(tmp_path)
    assert [*found] == ["preds"]
    assert is_intact(tmp_path / "preds", found["preds"].sha256)
    assert "is not UTF-8" in caplog.text
    (tmp_path / "preds" / latin).rename(tmp_path / "preds" / "cafe.txt")
    assert not is_intact(tmp_path / "preds", found["preds"].sha256)


def test_the_hash_of_a_folder_depends_on_names_and_contents(tmp_path: Path) -> None:
    def made(name: str, **files: str) -> str:
        (tmp_path / name).mkdir()
        for file, text in files.items():
            (tmp_path / name / file).write_text(text)
        return content_of(tmp_path / name).sha256

    assert made("one", a="1", b="2") == made("two", b="2", a="1")
    assert len({made("three", a="1"), made("four", b="1"), made("five", a="2")}) == 3


def test_a_kept_artifact_is_a_hard_link_if_possible_and_survives_its_original(
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


def test_a_changed_or_missing_artifact_is_not_intact(tmp_path: Path) -> None:
    file = tmp_path / "model"
    file.write_text("w")
    sha256 = content_of(file).sha256
    assert is_intact(file, sha256)
    file.write_text("v")
    assert not is_intact(file, sha256)
    file.unlink()
    assert not is_intact(file, sha256)


def test_pipes_and_broken_links_are_not_saved_as_artifacts(
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
    assert (
        f"{tmp_path}/last cannot be kept as an artifact: No such file or directory" in caplog.text
    )
    assert f"{tmp_path}/pipe cannot be kept as an artifact" in caplog.text
