"""The code and the environment of trials, kept under names made of their content."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.errors import StudyError
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


def test_a_snapshot_and_an_environment_come_back_byte_for_byte(paths: StudyPaths) -> None:
    found = read_snapshot(paths, keep_snapshot(paths, SNAPSHOT))
    assert found == SNAPSHOT
    frozen = found.frozen_in("/elsewhere/notebooks")
    assert set(frozen) == {"/elsewhere/notebooks/model.py", "/elsewhere/lib/deep.py"}
    assert frozen["/elsewhere/notebooks/model.py"].encode("utf-8", "surrogateescape") == BYTES
    facts = {"cores": 2, "python": {"packages": {"numpy": "2.0"}}}
    environment = keep_environment(paths, facts)
    assert read_environment(paths, environment) == facts


def test_equal_code_has_one_file_and_other_code_another(paths: StudyPaths) -> None:
    other_ids = replace(SNAPSHOT, notebook=NOTEBOOK.replace('"a"', '"b"'))
    edited = replace(SNAPSHOT, files={**SNAPSHOT.files, "model.py": "X = 2\n"})
    names = [keep_snapshot(paths, one) for one in (SNAPSHOT, other_ids, edited, SNAPSHOT)]
    assert names[0] == names[1] == names[3] != names[2]
    assert {file.name for file in paths.code.iterdir()} == {f"{name}.json" for name in names}


def test_a_file_that_is_missing_or_was_changed_is_one_message(paths: StudyPaths) -> None:
    with pytest.raises(StudyError, match=r"code/0123\.json: there is no such file"):
        read_snapshot(paths, "0123")
    name = keep_snapshot(paths, SNAPSHOT)
    file = paths.snapshot(name)
    text = file.read_text()
    for damaged in (text.replace("Y = 2", "Y = 3"), "[]", "{}"):
        file.write_text(damaged)
        with pytest.raises(StudyError, match="was changed after the sweep has written it"):
            read_snapshot(paths, name)
    file.write_text("{")
    with pytest.raises(StudyError, match="cannot be read"):
        read_snapshot(paths, name)
