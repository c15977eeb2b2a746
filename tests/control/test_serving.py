"""The comparison page and MLflow's UI of a study, on this machine only."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from commands import Command
from studies import small_settings, until

from sweeper import Sweep
from sweeper.cli import main
from sweeper.control.lookup import find_study
from sweeper.control.serving import served
from sweeper.errors import SettingsError
from sweeper.guard import MARK_VARIABLE, marked_processes
from sweeper.testing import InlineExecutor, write_notebook
from sweeper.trials import RunningTrial, TrialOutcome, TrialSpec, TrialState


def run_trial(spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
    write_notebook(spec.notebook, "val = x")
    return TrialOutcome(state=TrialState.COMPLETED, scores={"val": 0.5})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a study")
    Sweep.from_settings(
        small_settings("served", study={"trials": 1}),
        notebook=write_notebook(folder / "nb.ipynb", "val = x", parameters="x = 0.5"),
        output=f"{folder}/out/{{run_id}}.ipynb",
        executor=lambda _: InlineExecutor(run_trial),
    ).run()
    return folder / "out" / "served"


@pytest.mark.slow  # MLflow's UI takes ten seconds to start
def test_it_answers_on_loopback_and_does_not_outlive_a_kill(folder: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    serving = Command("ui", str(folder), "--port", str(port), "--json")
    try:
        assert serving.stdout is not None
        pages = json.loads(serving.stdout.readline())
        assert pages["page"] == f"http://127.0.0.1:{port}/"
        with urllib.request.urlopen(pages["page"], timeout=60) as answer:
            assert b"Parallel coordinates" in answer.read()
        mlflow, _, view = pages["mlflow"].partition("/#/")
        assert mlflow.startswith("http://127.0.0.1:")
        assert view.startswith("experiments/1/runs?viewStateShareKey=")
        with urllib.request.urlopen(f"{mlflow}/health", timeout=60) as answer:
            assert answer.status == 200
        marks = {
            word.partition("=")[2].partition(".")[0]
            for pid in marked_processes("ui-")
            for word in Path(f"/proc/{pid}/environ").read_text().split("\0")
            if word.startswith(f"{MARK_VARIABLE}=ui-")
        }
        assert marks
    finally:
        serving.kill()
        serving.wait()
    until(lambda: not any(marked_processes(mark) for mark in marks))


@pytest.mark.slow
def test_a_study_on_a_server_has_a_ui_there(folder: Path) -> None:
    there = find_study(str(folder), storage=None, tracking_uri="http://127.0.0.1:9")
    with served(there, folder / "index.html", port=None) as pages:
        assert pages.ui is None
        assert pages.mlflow.startswith("http://127.0.0.1:9/#/")


def test_a_port_that_is_taken_is_refused(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = find_study(str(folder), storage=None)
        with (
            pytest.raises(SettingsError, match=f"--port {port}: something else listens there"),
            served(found, folder / "index.html", port=port),
        ):
            pass


@pytest.mark.parametrize("port", [0, -1, 65_536])
def test_a_port_that_cannot_be_is_refused(folder: Path, port: int) -> None:
    found = find_study(str(folder), storage=None)
    with (
        pytest.raises(SettingsError, match=f"--port {port}: expected a number from 1 to 65535"),
        served(found, folder / "index.html", port=port),
    ):
        pass


def test_of_the_study_s_folder_only_the_page_is_served(folder: Path) -> None:
    there = find_study(str(folder), storage=None, tracking_uri="http://127.0.0.1:9")
    assert (folder / "study.db").exists()
    with served(there, folder / "index.html", port=None) as pages:
        with urllib.request.urlopen(pages.page + "page/study.js?1", timeout=60) as answer:
            assert answer.read().startswith(b"sweeper.study({")
        for path in ("study.db", "page/../study.db", "page/%2e%2e/study.db", "page/", "page"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(pages.page + path, timeout=60)


def test_another_site_s_name_for_this_machine_is_refused(folder: Path) -> None:
    there = find_study(str(folder), storage=None, tracking_uri="http://127.0.0.1:9")
    with served(there, folder / "index.html", port=None) as pages:
        asked = urllib.request.Request(pages.page, headers={"Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(asked, timeout=60)


@pytest.mark.slow  # as above
def test_a_store_that_mlflow_cannot_serve_is_one_message(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "broken.db"
    store.write_text("no database")
    assert main(["ui", str(folder), "--tracking-uri", f"sqlite:///{store}"]) == 2
    assert f"MLflow's UI over sqlite:///{store} does not start: " in capsys.readouterr().err
