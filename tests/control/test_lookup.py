"""Test how commands find existing studies, and what they correct after a killed sweep."""

from __future__ import annotations

import json
import math
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from opened_studies import asked, opened_in
from studies import mlflow_runs, note_in, small_settings, trial_record

from sweeper.cli import main
from sweeper.control.lookup import find_studies
from sweeper.control.status import sort
from sweeper.errors import StudyError
from sweeper.study.facts import ATTRIBUTE
from sweeper.study.study import Study
from sweeper.study_folder.heartbeat import ALIVE_S
from sweeper.testing import write_notebook
from sweeper.trials import StudyPaths, TrialState

#: The URL of an MLflow server that does not exist: no process listens on this port.
AWAY = "http://127.0.0.1:1"


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StudyPaths:
    """Make a study whose sweep was killed during its first trial.

    Its MLflow server is unavailable.
    """
    monkeypatch.chdir(tmp_path)
    paths = StudyPaths.parse("out/{run_id}.ipynb", study="killed")
    settings = small_settings("killed")
    facts: dict[str, Any] = {"tracking_uri": AWAY, "experiment_id": "1", "trials": 3}
    study = opened_in(paths, settings, settings=settings.as_mapping, **facts)
    record = asked(study, settings, paths)
    notebook = write_notebook(record.notebook, "1 + 1")
    note_in(notebook, study_id=study.study_id, state="running")
    return paths


def states(paths: StudyPaths) -> list[TrialState]:
    return [r.state for r in Study.load(f"sqlite:///{paths.storage}", paths.study).records()]


@pytest.mark.slow  # because MLflow creates its tables
def test_status_marks_a_killed_sweeps_trial_as_stopped_and_its_mlflow_run_when_mlflow_answers(
    killed: StudyPaths, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        assert main(["status", "killed"]) == 0
        assert "study killed: 1 stopped" in capsys.readouterr().out
        (line,) = (record.getMessage() for record in caplog.records)
        assert "MLflow still shows ended trials of the study 'killed' as running" in line
        assert f"{AWAY}: the MLflow server does not answer" in line
        assert "leave --tracking-uri out" not in line
        caplog.clear()
        assert states(killed) == [TrialState.STOPPED]
    assert main(["enqueue", "killed", "x=0.5", "--quiet"]) == 0
    there = f"sqlite:///{killed.tracking}"
    (killed_study,) = find_studies("killed", storage=None, tracking_uri=there)
    killed_study.runs().start(killed_study.record("0000"), {"x": "0.5"})
    caplog.clear()
    for _ in range(2):
        assert main(["status", "killed", "--tracking-uri", there]) == 0
    (run,) = mlflow_runs(there, "killed")
    assert (run.info.run_name, run.info.status) == ("0000", "KILLED")
    assert main(["status", "killed"]) == 0  # The run in MLflow was corrected above.
    assert caplog.records == []


def test_status_does_not_change_trials_that_run_on_another_machine(
    killed: StudyPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = {"host": "far-away", "pid": os.getpid(), "machine": "another"}
    killed.owner.write_text(json.dumps(elsewhere))
    assert main(["status", "killed", "--json"]) == 0
    printed = capsys.readouterr()
    assert f"swept by process {os.getpid()} on far-away" in printed.err
    assert json.loads(printed.out)["running"] is True
    assert states(killed) == [TrialState.RUNNING]
    touched_s = killed.owner.stat().st_mtime - ALIVE_S - 1
    os.utime(killed.owner, (touched_s, touched_s))
    assert main(["status", "killed", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["running"] is False
    assert states(killed) == [TrialState.STOPPED]


def test_commands_about_a_missing_study_create_no_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("CREATE TABLE runs (id)")
    before = other.read_bytes()
    (tmp_path / "empty.db").touch()
    for name, message in (
        ("typo.db", "there is no study in typo.db"),
        ("other.db", "there is no study in other.db"),
        ("empty.db", "there is no study in empty.db"),
    ):
        for command in ("status x", "stop x", "enqueue x y=1", "retry x --failed"):
            assert main([*command.split(), "--storage", f"sqlite:///{name}"]) == 2
            (line,) = capsys.readouterr().err.splitlines()
            assert message in line
    assert {file.name for file in tmp_path.iterdir()} == {"other.db", "empty.db"}
    assert other.read_bytes() == before
    assert (tmp_path / "empty.db").stat().st_size == 0


def test_status_passes_over_a_study_without_a_trial_if_the_folder_has_another_study(
    killed: StudyPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = killed.folder.parent / "new"
    folder.mkdir()
    Study.open(f"sqlite:///{folder}/study.db", small_settings("new")).close()
    for words in (["out"], []):
        assert main(["status", *words]) == 0
        assert "study killed: 1 stopped" in capsys.readouterr().out
    assert main(["status", "out/new"]) == 2
    assert "there is no study in 'out/new' that has begun a trial" in capsys.readouterr().err
    storage = f"sqlite:///{folder}/study.db"
    assert main(["status", "--storage", storage]) == 2
    assert "no study in it has begun a trial" in capsys.readouterr().err
    assert main(["status", "new", "--storage", storage]) == 2
    assert "the study 'new' in it has not begun a trial" in capsys.readouterr().err


def test_status_of_a_folder_leaves_out_a_damaged_study_but_retry_and_enqueue_refuse_the_folder(
    killed: StudyPaths, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def left_out(*words: str) -> list[str]:
        caplog.clear()
        assert main(["status", *words, "--quiet", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["study"] == "killed"
        said = (record.getMessage() for record in caplog.records)
        return [line for line in said if "left out" in line]

    other = killed.root / "other" / "study.db"
    other.parent.mkdir()
    other.touch()  # an empty file is no study: another tool or a sweep killed at once left it
    for words in ([], ["out"]):
        assert left_out(*words) == []
    other.write_bytes(b"no database" * 100)
    for words in ([], ["out"]):
        (line,) = left_out(*words)
        assert "out/other/study.db is damaged" in line
    for words in (["status", "out/other"], ["retry", "out", "--failed"], ["enqueue", "x=0.5"]):
        assert main(words) == 2
        assert "out/other/study.db is damaged" in capsys.readouterr().err
    assert main(["stop", "killed"]) == 2
    assert "nothing to stop" in capsys.readouterr().err


def test_a_study_stored_by_another_package_version_is_left_out_when_its_storage_is_searched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = f"sqlite:///{tmp_path}/all.db"
    for name in ("old", "new"):
        study = Study.open(storage, small_settings(name))
        study.note_facts(template=f"{tmp_path}/{{run_id}}.ipynb")
        study.close()
    optuna.load_study(study_name="old", storage=storage).set_user_attr(ATTRIBUTE, {"unknown": 1})
    (found,) = find_studies(None, storage=storage)
    assert found.study.name == "new"
    assert "'old'" in caplog.text
    with pytest.raises(StudyError, match="'old'"):
        find_studies("old", storage=storage)


def test_a_study_is_found_by_its_name_although_another_folder_has_that_name(
    killed: StudyPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("killed").mkdir()
    assert main(["status", "killed"]) == 0
    assert "study killed: 1 stopped" in capsys.readouterr().out


def test_the_name_of_a_studys_folder_may_have_an_equals_sign(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = StudyPaths.parse(f"{tmp_path}/lr=1/{{run_id}}.ipynb", study="queued")
    settings = small_settings("queued")
    opened_in(paths, settings, settings=settings.as_mapping).close()
    assert main(["enqueue", str(paths.folder), "x=0.5"]) == 0
    assert "queued: queued 0000 (x=0.5)" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["status", "stop", "diff", "replay", "export", "rebuild"])
def test_a_study_name_that_is_too_long_for_a_folder_is_refused_in_one_message(
    killed: StudyPaths, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    more = ["0000", "0001"] if command == "diff" else []
    for wanted in ("x" * 300, f"out/{'x' * 300}"):
        assert main([command, wanted, *more]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "there is no study" in line


def test_a_study_is_found_three_folders_deeper_but_not_in_a_virtual_environment(
    killed: StudyPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = Path("results/exp1")
    deep.parent.mkdir()
    killed.root.rename(deep)
    for wanted in ([], ["killed"], ["results"], ["results/exp1/killed"]):
        assert main(["status", *wanted]) == 0
        assert "study killed: 1 stopped" in capsys.readouterr().out
    Path("results/pyvenv.cfg").touch()
    assert main(["status"]) == 2
    assert "up to 3 folders deeper" in capsys.readouterr().err


def test_the_search_for_studies_does_not_list_folders_below_its_depth_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data/train/cats").mkdir(parents=True)
    list_folder, listed = os.scandir, []

    def scandir(folder: Path) -> Any:
        listed.append(folder)
        return list_folder(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(StudyError, match="there is no study in"):
        find_studies(str(tmp_path), storage=None)
    assert listed == [tmp_path, tmp_path / "data", tmp_path / "data/train"]


def test_status_of_a_study_whose_folder_is_on_another_machine_creates_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = StudyPaths.parse(f"{tmp_path}/gone/{{run_id}}.ipynb", study="afar")
    storage, settings = f"sqlite:///{tmp_path}/all.db", small_settings("afar")
    study = Study.open(storage, settings)
    tracking = f"sqlite:///{paths.tracking}"
    study.note_facts(template=paths.template, tracking_uri=tracking, tracking_is_behind=True)
    asked(study, settings, paths)
    study.close()
    assert main(["status", "afar", "--storage", storage]) == 0
    assert "study afar: 1 stopped" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["all.db"]


def test_a_password_missing_in_the_stored_mlflow_url_is_taken_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = StudyPaths.parse(f"{tmp_path}/out/{{run_id}}.ipynb", study="stored")
    opened_in(paths, small_settings("stored"), tracking_uri="mysql://me:***@db/mlflow").close()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "mysql://me:hush@db/mlflow")
    (existing,) = find_studies(str(paths.folder), storage=None)
    assert existing.tracking.full == "mysql://me:hush@db/mlflow"


def test_stop_refuses_run_ids_together_with_the_option_finish(
    killed: StudyPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stop", "killed", "0000", "--finish"]) == 2
    assert "with it (0000); leave out --finish or the run ids" in capsys.readouterr().err


@pytest.mark.slow  # because the fixture's sweep writes to MLflow
def test_status_sorts_trials_by_a_score_or_a_param_and_shows_the_best_n(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ids(*words: str) -> list[str]:
        assert main(["status", str(folder), *words]) == 0
        lines = capsys.readouterr().out.splitlines()
        return [line.split()[0] for line in lines if line.startswith("  000")]

    assert ids("--best", "2") == ["0005", "0000"]
    assert ids("--sort", "x") == ["0002", "0004", "0000", "0001", "0003", "0005"]
    assert ids("--sort", "loss", "--best", "1") == ["0005"]
    assert main(["status", str(folder), "--sort", "los"]) == 2
    assert (
        "--sort los: no trial has such a score or param; did you mean 'loss'?"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [([0.3, math.nan, 0.1, 0.2], [2, 3, 0, 1]), ([None, 128, 2, "auto", 16], [2, 4, 1, 3, 0])],
)
def test_trials_are_sorted_by_numbers_then_texts_then_nan_and_null(
    values: list[Any], expected: list[int]
) -> None:
    existing: Any = SimpleNamespace(settings=small_settings("sorted"))
    by_param = [trial_record(n, params={"y": value}) for n, value in enumerate(values)]
    by_score = [trial_record(n, scores={"y": value}) for n, value in enumerate(values)]
    for records in (by_param, by_score):
        assert [record.number for record in sort(existing, records, by="y")] == expected


@pytest.mark.parametrize(
    ("direction", "expected"), [("maximize", [0, 3, 2, 1]), ("minimize", [2, 3, 0, 1])]
)
def test_trials_are_sorted_by_an_objective_with_the_best_first_and_nan_last(
    direction: str, expected: list[int]
) -> None:
    settings = small_settings("sorted", objective={"val": direction})
    values = [0.3, math.nan, 0.1, 0.2]
    records = [trial_record(number, scores={"val": value}) for number, value in enumerate(values)]
    existing: Any = SimpleNamespace(settings=settings)
    assert [record.number for record in sort(existing, records, by=None)] == expected
