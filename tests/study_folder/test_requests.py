"""A process asks a sweep to stop through files in the study's folder."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from studies import PATIENCE_S, until

from sweeper.study_folder.requests import ALL, NO_MORE, Requests, ask_to_stop
from sweeper.trials import StudyPaths


@pytest.fixture
def paths(tmp_path: Path) -> StudyPaths:
    return StudyPaths.parse(f"{tmp_path}/{{run_id}}.ipynb", study="s")


class Received:
    """Collects requests. The request `fails` is collected too, and raises an error."""

    def __init__(self, n_expected: int) -> None:
        self.requests: list[str] = []
        self.are_all_here = threading.Event()
        self._n_expected = n_expected

    def __call__(self, what: str) -> None:
        self.requests.append(what)
        if len(self.requests) == self._n_expected:
            self.are_all_here.set()
        if what == "fails":
            raise RuntimeError("not now")


def test_each_stop_request_is_received_once_and_a_request_that_fails_is_logged(
    paths: StudyPaths, caplog: pytest.LogCaptureFixture
) -> None:
    received = Received(3)
    requests = Requests(paths, received)
    for what in ("0007", "fails", NO_MORE):
        ask_to_stop(paths.requests, what)
    assert received.are_all_here.wait(PATIENCE_S)
    requests.close()
    assert sorted(received.requests) == ["0007", "fails", NO_MORE]
    assert "the stop request 'fails' failed: not now" in caplog.text
    assert list(paths.requests.iterdir()) == []


def test_a_stop_request_for_a_sweep_that_has_ended_is_dropped(paths: StudyPaths) -> None:
    ask_to_stop(paths.requests, ALL)
    received = Received(1)
    Requests(paths, received).close()
    assert list(paths.requests.iterdir()) == []
    assert received.requests == []


def test_the_owner_file_that_shows_that_a_sweep_is_alive_is_touched_and_never_created(
    paths: StudyPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeper.study_folder.requests.TOUCH_S", 0.0)
    paths.folder.mkdir()
    paths.owner.touch()
    os.utime(paths.owner, (1, 1))
    requests = Requests(paths, lambda _: None)
    until(lambda: paths.owner.stat().st_mtime > 2)
    paths.owner.unlink()
    time.sleep(0.6)
    requests.close()
    assert not paths.owner.exists()
