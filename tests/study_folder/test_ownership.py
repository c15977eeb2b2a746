"""One sweep at a time holds a study's folder, even between machines without common file locks."""

from __future__ import annotations

import errno
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from sweeper.errors import OutputError, StudyError
from sweeper.study_folder.heartbeat import ALIVE_S, elsewhere_s, this_machine
from sweeper.study_folder.ownership import (
    held_elsewhere,
    held_folder,
    is_held,
    owner_of,
    while_unswept,
)
from sweeper.trials import StudyPaths


@pytest.fixture
def paths(tmp_path: Path) -> StudyPaths:
    """A study's folder that was swept once."""
    paths = StudyPaths.parse(str(tmp_path / "out" / "{run_id}.ipynb"), study="shared")
    with held_folder(paths) as held:
        held.is_needed = True
    return paths


def swept_elsewhere(paths: StudyPaths, *, ago_s: float) -> None:
    """Let a sweep on another machine hold the folder. Its lock is not visible on this machine.

    Args:
        ago_s: Seconds since that sweep touched its owner file, `sweep.json`.
    """
    paths.owner.write_text('{"host": "far-away", "pid": 4711, "machine": "another"}')
    touched_s = paths.owner.stat().st_mtime - ago_s
    os.utime(paths.owner, (touched_s, touched_s))


def test_a_sweep_on_another_machine_counts_as_alive_while_its_owner_file_is_recent(
    paths: StudyPaths,
) -> None:
    swept_elsewhere(paths, ago_s=ALIVE_S - 10)
    assert is_held(paths)
    assert owner_of(paths) == "process 4711 on far-away"
    with while_unswept(paths) as is_unswept:
        assert not is_unswept
    swept_elsewhere(paths, ago_s=ALIVE_S + 1)
    assert not is_held(paths)
    with while_unswept(paths) as is_unswept:
        assert is_unswept


def test_the_refusal_of_a_second_sweep_says_when_the_first_counts_as_dead(
    paths: StudyPaths,
) -> None:
    swept_elsewhere(paths, ago_s=20)
    message = r"process 4711 on far-away, last seen 20 s ago \(if it is dead, try again in 40 s\)"
    with pytest.raises(StudyError, match=message), held_folder(paths):
        pass
    assert json.loads(paths.owner.read_text())["host"] == "far-away"
    swept_elsewhere(paths, ago_s=ALIVE_S + 1)
    with held_folder(paths) as held:
        held.is_needed = True
        assert json.loads(paths.owner.read_text())["machine"] == this_machine()


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_suspended_sweep_whose_folder_was_taken_over_raises_and_keeps_the_new_owner_file(
    paths: StudyPaths, has_ended: bool
) -> None:
    with held_folder(paths) as held:
        held.is_needed = True
        held.check()
        # Processes in two containers may have the same id.
        owner = {**json.loads(paths.owner.read_text()), "machine": "another", "token": "another"}
        paths.owner.write_text(json.dumps(owner))
        if has_ended:
            paths.owner.unlink()
        with pytest.raises(StudyError, match=r"shared.*was taken over by .*process.*stop it"):
            held.check()
    assert paths.owner.exists() is not has_ended


def test_an_owner_file_that_cannot_be_read_does_not_count_as_a_takeover_by_another_sweep(
    paths: StudyPaths,
) -> None:
    with held_folder(paths) as held:
        held.is_needed = True
        away = paths.folder.rename(paths.folder.with_name("away"))
        held.check()
        away.rename(paths.folder)
        paths.owner.unlink()
        paths.owner.mkdir()  # A folder cannot be read as a file.
        held.check()


@pytest.mark.parametrize(
    "owner", ["", "{", "[]", "{}", "7", '{"machine": null}', f'{{"machine": "{this_machine()}"}}']
)
def test_on_the_same_machine_only_the_lock_shows_whether_a_sweep_is_alive(
    paths: StudyPaths, owner: str
) -> None:
    paths.owner.write_text(owner)
    assert not is_held(paths)
    with held_folder(paths) as held:
        held.is_needed = True
        assert is_held(paths)


def test_asking_whether_a_study_without_a_folder_is_swept_creates_no_folder(
    paths: StudyPaths,
) -> None:
    gone = replace(paths, study="gone")
    with while_unswept(gone) as is_unswept:
        assert is_unswept
    assert not is_held(gone)
    assert not gone.folder.exists()


def test_the_age_of_another_machines_owner_file_is_right_even_if_clocks_differ(
    paths: StudyPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept_elsewhere(paths, ago_s=30)
    for wrong_by_s in (-86400.0, 86400.0):
        wrong_s = time.time() + wrong_by_s
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda now_s=wrong_s: now_s)
            assert 29 < (elsewhere_s(paths.owner) or 0) < 50
    assert set(os.listdir(paths.folder)) == {"sweep.json", "sweep.lock"}, (
        "a temporary file was left"
    )


def test_a_folder_whose_owner_file_cannot_be_written_is_refused_and_not_locked(
    paths: StudyPaths,
) -> None:
    """As on a full disk: the folder and its lock exist, and no other file can be written."""
    paths.owner.mkdir()
    with pytest.raises(OutputError, match="cannot be written"), held_folder(paths):
        pass
    paths.owner.rmdir()
    with held_folder(paths):
        assert is_held(paths)


def test_a_new_study_whose_owner_file_cannot_be_written_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("sweeper.study_folder.ownership.write_atomically", is_full)
    paths = StudyPaths.parse(str(tmp_path / "out" / "{run_id}.ipynb"), study="s")
    with pytest.raises(OutputError, match="No space left"), held_folder(paths):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_refused_sweep_does_not_remove_the_folder_of_a_sweep_that_began_at_the_same_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = StudyPaths.parse(str(tmp_path / "out" / "{run_id}.ipynb"), study="s")
    monkeypatch.setattr("sweeper.study_folder.ownership._PATIENCE_S", 0.0)
    with held_folder(paths) as first:
        first.is_needed = True
        paths.storage.touch()
        with monkeypatch.context() as meanwhile:  # As if the first sweep made the folder just now.
            meanwhile.setattr("os.path.exists", lambda _: False)
            with pytest.raises(StudyError, match="is being swept by"), held_folder(paths):
                pass
        assert paths.storage.exists()
    with held_folder(replace(paths, study="refused")):
        pass
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["s"]


def test_a_folder_whose_name_is_too_long_is_refused(paths: StudyPaths) -> None:
    message = "cannot be written: File name too long"
    long = replace(paths, study="x" * 300)
    with pytest.raises(OutputError, match=message), held_folder(long):
        pass


# --- outputs and storages that two studies could share ------------------------------------------


def outputs(folder: Path, study: str, template: str = "out/{run_id}.ipynb") -> StudyPaths:
    return StudyPaths.parse(str(folder / template), study=study)


def test_two_studies_cannot_write_to_the_same_outputs_at_once(tmp_path: Path) -> None:
    first, second = outputs(tmp_path, "first"), outputs(tmp_path, "second")
    with held_folder(first) as held, held_elsewhere(first, None):
        held.is_needed = True
        message = r"out/{run_id}\.ipynb: another study, .* choose other names with -o"
        with pytest.raises(StudyError, match=message), held_folder(second):
            held_elsewhere(second, None).__enter__()
        for template in ("out/{study}.{run_id}.ipynb", "out/b.{run_id}.ipynb"):
            beside = outputs(tmp_path, "second", template)
            with held_folder(beside), held_elsewhere(beside, None):
                pass
    with held_folder(second), held_elsewhere(second, None):
        pass
    left = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")]
    assert sorted(left) == ["out", "out/first", "out/first/sweep.lock"]


def test_a_study_in_a_database_outside_of_its_folder_is_swept_from_one_folder_at_a_time(
    tmp_path: Path,
) -> None:
    file = tmp_path / "studies.db"
    here, there = (outputs(tmp_path, "kept", f"{name}.{{study}}.{{run_id}}.ipynb") for name in "ab")
    another = outputs(tmp_path, "another", "b.{study}.{run_id}.ipynb")
    with held_elsewhere(here, file):
        with pytest.raises(StudyError, match=r"'kept' in .* is being swept from another folder"):
            held_elsewhere(there, file).__enter__()
        with held_elsewhere(another, file), held_elsewhere(there, there.storage):
            pass
    assert list(tmp_path.iterdir()) == []
