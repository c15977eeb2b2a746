"""Test that outputs can be moved or copied to another folder, and are complete there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from commands import call, project
from studies import mlflow_runs

pytestmark = pytest.mark.kernel
CELL = "val = x + seed % 7"
SETTINGS = "study: {name: digits, trials: 2, sampler: random}"


def swept(folder: Path) -> list[str]:
    """Run a sweep in a folder, and return its options."""
    folder.mkdir()
    options = project(CELL, settings=SETTINGS, parameters="x = 0.5\nseed = 0", folder=folder)
    done = call(*options, cwd=folder)
    assert done.returncode == 0, done.stderr
    return options


def status(cwd: Path) -> dict[str, Any]:
    """Return the JSON that the command `status` prints about the study."""
    done = call("status", "digits", "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def content(folder: Path) -> dict[Path, bytes]:
    """Return the content of each `.ipynb` and `.json` file below a folder."""
    files = (path for path in folder.rglob("*") if path.suffix in (".ipynb", ".json"))
    return {path: path.read_bytes() for path in files}


def test_a_copied_project_works_without_the_original_and_does_not_change_it(tmp_path: Path) -> None:
    server, laptop = tmp_path / "server", tmp_path / "my laptop {2}"
    swept(server)
    before = content(server)
    shutil.copytree(server, laptop)
    known = status(laptop)
    notebooks = [trial["notebook"] for trial in known["trials"]]
    assert notebooks == ["out/0000.ipynb", "out/0001.ipynb"]
    exported = call("export", "digits", cwd=laptop)
    assert exported.returncode == 0, exported.stderr
    assert (laptop / "out" / "digits" / "index.html").is_file()
    server.rename(tmp_path / "away")  # nothing in the copy needs the original
    replayed = call("replay", "out/0001.ipynb", cwd=laptop)
    assert replayed.returncode == 0, replayed.stderr
    for run in mlflow_runs(known["tracking_uri"], "digits"):
        artifacts = Path(unquote(urlsplit(run.info.artifact_uri).path))
        assert artifacts.is_relative_to(laptop)
        assert list(artifacts.rglob("*.ipynb"))
    (tmp_path / "away").rename(server)
    assert content(server) == before


def test_a_moved_project_resumes_and_runs_no_trial_again(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    options = swept(first)
    first.rename(second)
    done = call(*options, "--trials", "3", "--json", cwd=second)
    assert done.returncode == 0, done.stderr
    trials = json.loads(done.stdout.splitlines()[-1])["trials"]
    assert [trial["attempt"] for trial in trials] == [1, 1, 1]
    assert {Path(second, trial["notebook"]).parent for trial in trials} == {second / "out"}
    assert not first.exists()
    ablated = call("ablate", "digits", "--seeds", "2", cwd=second)
    # The ablation runs the notebook, which it must find at the new path.
    assert ablated.returncode == 0, ablated.stderr


def test_a_moved_study_whose_database_is_lost_is_rebuilt_in_the_new_folder(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    swept(first)
    first.rename(second)
    (second / "out" / "digits" / "study.db").unlink()
    rebuilt = call("rebuild", "out/digits", cwd=second)
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert len(status(second)["trials"]) == 2
    assert not first.exists()
