"""Requests to stop between processes that share only a folder."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from studies import PATIENCE_S

from sweeper.study_folder.requests import ALL, NO_MORE, Requests, ask_to_stop


class Received:
    """Collects requests; a request named `fails` is received and raises."""

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


def test_each_request_is_received_once(tmp_path: Path) -> None:
    received = Received(2)
    requests = Requests(tmp_path / "requests", received)
    ask_to_stop(tmp_path / "requests", "0007")
    ask_to_stop(tmp_path / "requests", ALL)
    assert received.are_all_here.wait(PATIENCE_S)
    requests.close()
    assert sorted(received.requests) == ["0007", ALL]
    assert list((tmp_path / "requests").iterdir()) == []


def test_a_request_that_fails_is_logged_and_later_ones_are_received(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    received = Received(2)
    requests = Requests(tmp_path / "requests", received)
    ask_to_stop(tmp_path / "requests", "fails")
    ask_to_stop(tmp_path / "requests", NO_MORE)
    assert received.are_all_here.wait(PATIENCE_S)
    requests.close()
    assert received.requests == ["fails", NO_MORE]
    assert "the request to stop fails failed: not now" in caplog.text


def test_a_request_for_a_sweep_that_has_ended_is_dropped(tmp_path: Path) -> None:
    ask_to_stop(tmp_path, "0007")
    received = Received(1)
    requests = Requests(tmp_path, received)
    assert list(tmp_path.iterdir()) == []
    requests.close()
    assert received.requests == []
