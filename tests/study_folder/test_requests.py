"""Requests to stop, between processes that share nothing but a folder."""

from __future__ import annotations

import threading
from pathlib import Path

from sweeper.study_folder.requests import ALL, Requests, ask_to_stop


def test_each_request_is_obeyed_once(tmp_path: Path) -> None:
    heard: list[str] = []
    obeyed = threading.Event()

    def obey(what: str) -> None:
        heard.append(what)
        if len(heard) == 2:
            obeyed.set()

    requests = Requests(tmp_path / "requests", obey)
    ask_to_stop(tmp_path / "requests", "0007")
    ask_to_stop(tmp_path / "requests", ALL)
    assert obeyed.wait(10)
    requests.close()
    assert sorted(heard) == ["0007", ALL]
    assert list((tmp_path / "requests").iterdir()) == []


def test_a_request_for_a_sweep_that_has_ended_is_dropped(tmp_path: Path) -> None:
    ask_to_stop(tmp_path, "0007")
    heard: list[str] = []
    requests = Requests(tmp_path, heard.append)
    assert list(tmp_path.iterdir()) == []
    requests.close()
    assert heard == []
