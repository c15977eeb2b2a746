"""Test the server of the comparison page and MLflow's UI."""

from __future__ import annotations

import json
import re
import shutil
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from commands import Command
from http_servers import serving

from sweeper.cli import main
from sweeper.control.lookup import find_study
from sweeper.control.serving import StudyServer
from sweeper.errors import SettingsError

pytestmark = pytest.mark.slow  # because the fixture's sweep writes to MLflow


def test_the_server_listens_on_loopback_and_starts_no_process(folder: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    serving = Command("ui", str(folder), "--port", str(port), "--json")
    try:
        assert serving.stdout is not None
        pages = json.loads(serving.stdout.readline())
        assert re.fullmatch(rf"http://127\.0\.0\.1:{port}/[\w-]{{20,}}/study/seen/", pages["page"])
        with urllib.request.urlopen(pages["page"], timeout=60) as answer:
            assert b"Parallel coordinates" in answer.read()
        mlflow, _, view = pages["mlflow"].partition("/#/")
        assert mlflow == pages["page"].replace("/study/seen/", "/mlflow")
        assert view.startswith("experiments/1/runs?viewStateShareKey=")
        search = json.dumps({"max_results": 5, "filter": "name = 'seen'"}).encode()
        asked = urllib.request.Request(
            f"{mlflow}/ajax-api/2.0/mlflow/experiments/search",
            data=search,
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            assert json.load(answer)["experiments"][0]["name"] == "seen"
        with urllib.request.urlopen(f"{mlflow}/", timeout=60) as answer:
            (script,) = re.findall(r'src="(static-files/[^"]+)"', answer.read().decode())
        with urllib.request.urlopen(f"{mlflow}/{script}", timeout=60) as answer:
            assert len(answer.read()) == int(answer.headers["Content-Length"])
        (process, *others) = (
            psutil.Process(serving.pid),
            *psutil.Process(serving.pid).children(True),
        )
        (place,) = (it.laddr for it in process.net_connections() if it.status == "LISTEN")
        assert place == ("127.0.0.1", port)
        assert not others, "a child process would outlive a kill of the server"
    finally:
        serving.kill()
        serving.wait()


@contextmanager
def serving_page(folder: Path) -> Iterator[StudyServer]:
    """Serve the page of a study whose runs are on an MLflow server."""
    there = find_study(str(folder), storage=None, tracking_uri="http://127.0.0.1:9")
    with StudyServer(there, port=None) as server, serving(server):
        yield server


def test_a_port_that_cannot_be_used_is_refused(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        there = find_study(str(folder), storage=None, tracking_uri="http://127.0.0.1:9")
        for port, why in ((taken.getsockname()[1], "in use"), (65_536, "must be 0-65535")):
            with pytest.raises(SettingsError, match=f"--port {port}: cannot be used: .*{why}"):
                StudyServer(there, port=port)


def test_the_address_gives_access_to_the_page_but_to_no_other_file_of_the_study(
    folder: Path,
) -> None:
    assert (folder / "study.db").exists()
    with serving_page(folder) as server:
        assert server.mlflow.startswith("http://127.0.0.1:9/#/")
        with urllib.request.urlopen(server.page + "page/study.js?1", timeout=60) as answer:
            assert answer.read().startswith(b"sweeper.study({")
        runs = folder.with_name("seen-confirm")
        runs.mkdir()
        (runs / "index.html").write_text("the runs on fresh seeds")
        (runs / "study.db").write_text("secret")
        base = server.page.removesuffix("seen/")
        with urllib.request.urlopen(f"{base}seen-confirm/index.html", timeout=60) as answer:
            assert answer.read() == b"the runs on fresh seeds"
        root = f"http://127.0.0.1:{server.server_port}/"
        files = ("study.db", "page/../study.db", "page/%2e%2e/study.db", "page/", "page")
        others = ("seen-confirm/study.db", "../seen/study.db", "mlflow/", "index.html", "")
        urls = [*(server.page + file for file in files), *(base + file for file in others)]
        for url in (root, f"{root}page/study.js", *urls):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(url, timeout=60)


def test_the_server_changes_notes_for_its_own_page_and_not_for_another_website(
    folder: Path,
) -> None:
    with serving_page(folder) as server:
        url = f"{server.page}notes"
        origin = f"http://127.0.0.1:{server.server_port}"

        def post(url: str, origin: str, body: bytes) -> Any:
            headers = {"Content-Type": "application/json", "Origin": origin}
            asked = urllib.request.Request(url, data=body, headers=headers)
            with urllib.request.urlopen(asked, timeout=60) as answer:
                return json.load(answer)

        change = json.dumps({"0001": {"note": "look again"}}).encode()
        try:
            assert post(url, origin, change)["0001"]["note"] == "look again"
            with urllib.request.urlopen(f"{server.page}page/notes.js", timeout=60) as answer:
                assert b"look again" in answer.read()
            with pytest.raises(urllib.error.HTTPError, match="404"):
                post(f"{origin}/study/seen/notes", origin, change)
            with pytest.raises(urllib.error.HTTPError, match="403") as refused:
                post(url, "http://evil.example", change)
            assert origin in json.load(refused.value)["error"]
        finally:
            (folder / "notes.json").unlink()


@pytest.mark.parametrize("name", ["mlflow", "étude 狐"])
def test_the_page_of_a_study_with_any_name_is_served(
    folder: Path, tmp_path: Path, name: str
) -> None:
    shutil.copytree(folder, tmp_path / name)
    there = find_study(str(folder), storage=None, tracking_uri=None)
    there = replace(there, paths=replace(there.paths, study=name, root=tmp_path))
    with StudyServer(there, port=None) as server, serving(server):
        for url in (server.page, f"{server.page}page/study.js"):
            with urllib.request.urlopen(url, timeout=60) as answer:
                assert b"study" in answer.read()
        with urllib.request.urlopen(server.mlflow.partition("#")[0], timeout=60) as answer:
            assert b"<title>MLflow</title>" in answer.read()


def test_idle_connections_are_closed_and_do_not_block_the_page(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeper.control.serving._Quiet.timeout", 3.0)
    with serving_page(folder) as server, ExitStack() as held:
        address = ("127.0.0.1", server.server_port)
        idle = [held.enter_context(socket.create_connection(address, 60)) for _ in range(100)]
        with urllib.request.urlopen(server.page, timeout=60) as answer:
            assert b"Parallel coordinates" in answer.read()
        assert idle[0].recv(1) == b""
        assert idle[-1].recv(1) == b""
    assert capfd.readouterr().err == ""


def test_a_store_that_mlflow_cannot_serve_is_reported_in_one_message(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "broken.db"
    store.write_text("no database")
    assert main(["ui", str(folder), "--tracking-uri", f"sqlite:///{store}"]) == 2
    assert f"--tracking-uri sqlite:///{store}: cannot be used: " in capsys.readouterr().err
