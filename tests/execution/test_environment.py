"""The environment of trials is recorded: packages, machine and git commit."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from sweeper.execution.environment import environment_facts, environment_of, git_state
from sweeper.execution.python_probe import packages_in


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "model.py").write_text("V = 1\n")
    git(folder, "add", "model.py")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def test_the_recorded_packages_are_those_of_the_interpreter_that_runs_the_kernels(
    tmp_path: Path,
) -> None:
    found = environment_of(
        interpreter=[sys.executable], env=os.environ, folder=tmp_path, threads=3, gpus=[]
    )
    assert found["python"]["packages"]["ipykernel"] == version("ipykernel")
    assert found["python"]["version"] == ".".join(map(str, sys.version_info[:3]))
    assert found["python"]["executable"] == sys.executable
    assert found["threads"] == 3
    assert found["cores"] >= 1
    assert not {"gpus", "gpu_driver", "git"} & found.keys()


def test_the_recorded_environment_has_no_python_version_if_the_interpreter_does_not_run(
    tmp_path: Path,
) -> None:
    found = environment_of(
        interpreter=[f"{tmp_path}/python"], env={}, folder=tmp_path, threads=1, gpus=[]
    )
    assert "python" not in found
    assert found["platform"]


def test_the_recorded_version_of_a_package_is_the_one_that_python_imports_if_there_are_several(
    tmp_path: Path,
) -> None:
    for folder, names in {
        "a": ["Some_Name-1.0+cu121.dist-info", "old-2-py3.9.egg-info", "no_version.egg-info"],
        "b": ["some.name-0.9.dist-info", "module"],
    }.items():
        for name in names:
            (tmp_path / folder / name).mkdir(parents=True)
    folders = [f"{tmp_path}/{name}" for name in ("a", "missing", "b")]
    assert packages_in(folders) == {"some-name": "1.0+cu121", "old": "2"}


def test_the_git_commit_is_recorded_and_whether_files_differ_from_it(repository: Path) -> None:
    git(repository, "tag", "v1-final")
    commit = git(repository, "rev-parse", "HEAD")
    (repository / "untracked.py").touch()
    assert git_state(repository, {}) == {"commit": commit, "is_dirty": False}
    (repository / "model.py").write_text("V = 2\n")
    assert git_state(repository, {}) == {"commit": commit, "is_dirty": True}


def test_the_git_state_is_none_without_a_commit_or_without_git(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert git_state(tmp_path, {}) is None
    assert git_state(tmp_path, {"PATH": str(tmp_path)}) is None


def test_an_environment_is_described_in_words_with_gpus_threads_and_package_versions() -> None:
    python = {"version": "3.11.7", "packages": {"numpy": "2.0"}}
    assert environment_facts({"gpus": ["A100", "H200"], "threads": 2, "python": python}) == {
        "the GPU": "A100, H200",
        "the number of CPU threads": "2",
        "Python": "3.11.7",
        "numpy": "2.0",
    }
    assert environment_facts({}) == {}
