"""Whose a study's folder is, also where file locks do not reach the other machine."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from sweeper.errors import OutputError, StudyError
from sweeper.study_folder import heartbeat
from sweeper.study_folder.heartbeat import ALIVE_S, Heartbeat, elsewhere_s, this_machine
from sweeper.study_folder.ownership import held_folder, is_held, owner_of, while_unswept
from sweeper.trials import StudyPaths


@pytest.fixture
def paths(tmp_path: Path) -> StudyPaths:
    """A study's folder that was swept once."""
    paths = StudyPaths.parse(str(tmp_path / "out" / "{run_id}.ipynb"), study="shared")
    with held_folder(paths) as keep:
        keep()
    return paths


def swept_elsewhere(paths: StudyPaths, *, ago_s: float = 0.0, **changes: Any) -> None:
    """As a machine sees it whose locks do not reach the one with the sweep."""
    told = {"host": "far-away", "pid": 4711, "machine": "another", "started_at_s": 0.0, **changes}
    paths.owner.write_text(json.dumps(told))
    touched_s = paths.owner.stat().st_mtime - ago_s
    os.utime(paths.owner, (touched_s, touched_s))


def test_a_sweep_on_another_machine_is_alive_as_long_as_it_touches_its_file(
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


def test_a_second_sweep_is_refused_with_the_time_after_which_the_first_counts_as_dead(
    paths: StudyPaths,
) -> None:
    swept_elsewhere(paths, ago_s=20)
    said = r"process 4711 on far-away, which gave a sign of life 20 s ago; .* try again in 40 s"
    with pytest.raises(StudyError, match=said), held_folder(paths):
        pass
    assert json.loads(paths.owner.read_text())["host"] == "far-away"
    swept_elsewhere(paths, ago_s=ALIVE_S + 1)
    with held_folder(paths) as keep:
        keep()
        assert json.loads(paths.owner.read_text())["machine"] == this_machine()


@pytest.mark.parametrize("changes", [{"machine": this_machine()}, {"machine": None}])
def test_on_this_machine_locks_say_who_is_alive(paths: StudyPaths, changes: dict[str, Any]) -> None:
    swept_elsewhere(paths, **changes)
    assert not is_held(paths)
    with held_folder(paths) as keep:
        keep()


def test_clocks_that_differ_between_machines_do_not_matter(
    paths: StudyPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept_elsewhere(paths, ago_s=30)
    for wrong_by_s in (-86400.0, 86400.0):
        wrong_s = time.time() + wrong_by_s
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda now_s=wrong_s: now_s)
            assert 29 < (elsewhere_s(paths.owner) or 0) < 50
    assert set(os.listdir(paths.folder)) == {"sweep.json", "sweep.lock"}, "something was left"


def test_a_file_in_which_nobody_says_who_wrote_it_is_nobodys(paths: StudyPaths) -> None:
    for text in ("", "{", "[]", "{}", "7"):
        paths.owner.write_text(text)
        assert not is_held(paths)


def test_a_heartbeat_touches_its_file_until_it_is_closed(tmp_path: Path) -> None:
    file = tmp_path / "alive"
    file.touch()
    os.utime(file, (1, 1))
    beating = Heartbeat(file, every_s=0.01)
    end_s = time.monotonic() + 10
    while file.stat().st_mtime < 2:
        assert time.monotonic() < end_s
        time.sleep(0.005)
    file.unlink()  # and it is not made anew by who has lost it
    time.sleep(0.05)
    beating.close()
    assert not file.exists()


def test_whoever_holds_a_folder_touches_its_file(
    paths: StudyPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat.Heartbeat.__init__, "__kwdefaults__", {"every_s": 0.01})
    with held_folder(paths) as keep:
        keep()
        os.utime(paths.owner, (1, 1))
        end_s = time.monotonic() + 10
        while paths.owner.stat().st_mtime < 2:
            assert time.monotonic() < end_s
            time.sleep(0.005)


def test_a_folder_in_which_the_owner_cannot_be_written_is_refused_and_stays_free(
    paths: StudyPaths,
) -> None:
    """As on a disk that is full: the folder and its lock are there, and nothing more fits."""
    paths.owner.mkdir()
    with pytest.raises(OutputError, match="cannot be written"), held_folder(paths):
        pass
    paths.owner.rmdir()
    with held_folder(paths):
        assert is_held(paths)
