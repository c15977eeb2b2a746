"""Test the commands `status`, `stop`, `enqueue` and `retry` without kernels."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import nbformat
import pytest
from opened_studies import asked, opened_in
from studies import small_settings

from sweeper.cli import main
from sweeper.control import steering
from sweeper.control.lookup import ExistingStudy, find_study
from sweeper.control.status import look
from sweeper.errors import SettingsError, StudyError
from sweeper.study.study import Study
from sweeper.study_folder.ownership import held_folder
from sweeper.study_folder.requests import ALL, Requests
from sweeper.testing import write_notebook
from sweeper.trials import (
    Progress,
    Reason,
    RerunPlan,
    StudyPaths,
    TrialOutcome,
    TrialRecord,
    TrialState,
)

SETTINGS = small_settings(
    "steered",
    space={
        "kind": ["a", "b"],
        "x": {"low": 0.0, "high": 1.0},
        "only_a": {"low": 0.0, "high": 1.0, "when": {"kind": "a"}},
    },
    start=[{"kind": "a", "x": 0.5, "only_a": 0.25}],
    fixed={"epochs": 3},
    limits={"grace": 0.125},
)
FAILED = TrialOutcome(state=TrialState.FAILED, reason=Reason.CELL_ERROR, message="1/0")
COMPLETED = TrialOutcome(state=TrialState.COMPLETED, scores={"val": 1.0})


class Sweep:
    """A study that is open for a sweep, without kernels and without a lock on its folder.

    Tests end its trials themselves.
    """

    def __init__(self, folder: Path) -> None:
        self.paths = StudyPaths.parse(str(folder / "out" / "{run_id}.ipynb"), study="steered")
        facts = {"tracking_uri": "http://127.0.0.1:1", "settings": SETTINGS.as_mapping}
        self.study = opened_in(self.paths, SETTINGS, **facts)

    def ask(self) -> TrialRecord:
        return asked(self.study, SETTINGS, self.paths)

    def existing(self) -> ExistingStudy:
        """Return the study as a command in another terminal finds it."""
        return find_study(str(self.paths.folder), storage=None)


@pytest.fixture
def sweep(tmp_path: Path) -> Iterator[Sweep]:
    sweep = Sweep(tmp_path)
    yield sweep
    sweep.study.close()


def test_a_study_that_is_not_swept_cannot_be_stopped(sweep: Sweep) -> None:
    with pytest.raises(StudyError, match="is not being swept, so there is nothing to stop"):
        steering.stop(sweep.existing(), [], running_finish=False)


def test_a_trial_that_does_not_run_cannot_be_stopped(sweep: Sweep) -> None:
    running, ended = sweep.ask(), sweep.ask()
    sweep.study.tell(ended.number, COMPLETED)
    with held_folder(sweep.paths):
        with pytest.raises(
            StudyError, match=f"trial 0001 is not running; running: {running.run_id}"
        ):
            steering.stop(sweep.existing(), [ended.run_id], running_finish=False)
        with pytest.raises(StudyError, match="has no trial 0007; it has 0000 to 0001"):
            steering.stop(sweep.existing(), ["0007"], running_finish=False)


def test_a_stop_request_that_cannot_be_written_names_another_way_to_stop_the_sweep(
    sweep: Sweep,
) -> None:
    sweep.paths.requests.write_text("")  # a file is where the folder of requests should be
    with (
        held_folder(sweep.paths),
        pytest.raises(
            StudyError, match=r"cannot be written to .*; run this command as the user of the"
        ),
    ):
        steering.stop(sweep.existing(), [], running_finish=False)


@pytest.mark.parametrize("runs_best_again", [False, True])
def test_a_sweep_that_does_not_stop_in_time_is_reported(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, runs_best_again: bool
) -> None:
    monkeypatch.setattr(steering, "_PATIENCE_S", 0.25)
    paths = sweep.paths.following("confirm") if runs_best_again else sweep.paths
    with held_folder(paths):
        with pytest.raises(
            StudyError, match=r"process \d+ on .* was asked to stop, and still runs after 0.375 s"
        ):
            steering.stop(sweep.existing(), [], running_finish=False)
        assert [file.name for file in paths.requests.iterdir()] == [ALL]


def test_stop_with_the_folder_of_a_study_stops_a_rerun_of_its_best_trials(
    sweep: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep.study.tell(sweep.ask().number, COMPLETED)
    paths = sweep.paths.following("confirm")
    settings = small_settings(paths.study)
    confirms = RerunPlan(
        objective="val", direction="maximize", seeds=[], trials=[], of=sweep.study.study_id
    )
    confirming = opened_in(paths, settings, confirms=confirms)
    running = asked(confirming, settings, paths)

    def end(request: str) -> None:
        confirming.tell(int(request), TrialOutcome(state=TrialState.STOPPED))

    with held_folder(paths), closing(Requests(paths, end)):
        with pytest.raises(StudyError, match="'steered-confirm' has no trial 0007"):
            steering.stop(sweep.existing(), ["0007"], running_finish=False)
        assert main(["stop", str(sweep.paths.folder), running.run_id]) == 0
    assert "steered-confirm: stopped 0000; retry runs them again" in capsys.readouterr().out
    assert confirming.records()[0].state is TrialState.STOPPED
    confirming.close()


def test_status_counts_a_queued_trial_among_the_trials_that_are_left_to_run(sweep: Sweep) -> None:
    sweep.study.tell(sweep.ask().number, COMPLETED)

    def next_step() -> str:
        insights = look(sweep.existing())[0].insights
        assert insights is not None
        return dict(insights.sentences)["next"]

    n_left = SETTINGS.study.trials - 1
    assert f"left: {n_left}" in next_step()
    steering.enqueue(sweep.existing(), {"x": 0.75}, like=None)
    assert f"left: {n_left + 1}" in next_step()


def test_a_queued_trial_combines_stated_params_with_those_of_another_trial(
    sweep: Sweep,
) -> None:
    sweep.ask()
    existing = sweep.existing()
    assert steering.enqueue(existing, {"x": 0.75}, like=None)[1] == {"x": 0.75}
    like = steering.enqueue(existing, {"x": 0.125}, like="0000")[1]
    assert like == {"kind": "a", "x": 0.125, "only_a": 0.25}
    other_branch = steering.enqueue(existing, {"kind": "b"}, like="0000")[1]
    assert other_branch == {"kind": "b", "x": 0.5}
    its_branch = steering.enqueue(existing, {"only_a": 0.5}, like=None)[1]
    assert its_branch == {"kind": "a", "only_a": 0.5}
    assert sweep.ask().params["x"] == 0.75


def test_enqueue_refuses_missing_unknown_and_fixed_params_and_values_outside_the_space(
    sweep: Sweep,
) -> None:
    existing = sweep.existing()
    for params, message in (
        ({}, "no params to run; give NAME=VALUE, or --like RUN_ID"),
        ({"x": 2.0}, "x: 2.0 is outside the space"),
        ({"z": 2.0}, "'z' is not in the space"),
        ({"epochs": 4}, "epochs is fixed to 3 in this study"),
    ):
        with pytest.raises(SettingsError, match=message):
            steering.enqueue(existing, params, like=None)
    with pytest.raises(StudyError, match="has no trial 0000; it has none yet"):
        steering.enqueue(existing, {}, like="0000")


def test_failed_trials_are_retried_once_with_their_params_and_seed(
    sweep: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    failed, completed = sweep.ask(), sweep.ask()
    sweep.study.tell(failed.number, FAILED)
    sweep.study.tell(completed.number, COMPLETED)
    assert steering.retry(sweep.existing(), ["0000", "0000"]) == [("0000", "0002")]
    assert steering.retry(sweep.existing(), []) == []
    with pytest.raises(StudyError, match="trial 0000 waits or runs already"):
        steering.retry(sweep.existing(), ["0000"])
    again = sweep.ask()
    with pytest.raises(StudyError, match="trial 0000 waits or runs already"):
        steering.retry(sweep.existing(), ["0000"])
    assert (again.params, again.seed, again.retry_of) == (failed.params, failed.seed, 0)
    sweep.study.tell(again.number, FAILED)
    assert main(["retry", str(sweep.paths.folder), "--failed"]) == 0
    assert "queued 0003, which runs 0002 again" in capsys.readouterr().out
    with pytest.raises(StudyError, match="trial 0001 is completed, and only failed or stopped"):
        steering.retry(sweep.existing(), ["0001"])


def test_retry_refuses_an_interrupted_trial_because_the_sweeps_own_command_runs_it_again(
    sweep: Sweep,
) -> None:
    interrupted = sweep.ask()
    sweep.study.tell(
        interrupted.number, TrialOutcome(state=TrialState.STOPPED, reason=Reason.INTERRUPTED)
    )
    with pytest.raises(StudyError, match=r"trial 0000 was interrupted .* the same command runs it"):
        steering.retry(sweep.existing(), ["0000"])


#: Large libraries that `status` must not import for a study in an SQLite file.
LARGE = (
    *("IPython", "jsonschema", "mlflow", "nbclient", "nbconvert", "nbformat", "papermill"),
    *("scipy", "torch", "zmq"),
)


SEEN = small_settings("seen")


@pytest.fixture
def paths(tmp_path: Path) -> StudyPaths:
    """Make a study with a completed and a running trial. The running one has no notebook yet."""
    paths = StudyPaths.parse(str(tmp_path / "out" / "{run_id}.ipynb"), study="seen")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    study = opened_in(paths, SEEN, tracking_uri=uri, trials=5)
    for _ in range(2):
        asked(study, SEEN, paths)
    study.tell(0, TrialOutcome(state=TrialState.COMPLETED, scores={"val": 0.5}))
    study.close()
    return paths


def progress(paths: StudyPaths) -> Progress:
    (running,) = look(find_study(str(paths.folder), storage=None))[1].running
    return running


def test_status_shows_the_counts_the_best_trial_and_the_running_trials_of_a_study(
    paths: StudyPaths,
) -> None:
    result, snapshot = look(find_study(str(paths.folder), storage=None))
    assert result.counts == {
        "completed": 1, "pruned": 0, "failed": 0, "stopped": 0, "running": 1
    }  # fmt: skip
    assert [record.run_id for record in result.best] == ["0000"]
    assert (snapshot.trials, snapshot.counts) == (5, result.counts)
    assert result.to_json()["tracking_uri"] == f"sqlite:///{paths.root.parent}/mlflow.db"


def test_status_shows_the_cost_of_a_study(
    paths: StudyPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    study = Study.load(f"sqlite:///{paths.storage}", "seen")
    settings = small_settings("seen", cost={"price_per_hour": 2.5, "budget": 4.0})
    study.note_facts(spent_s=3600.0, settings=settings.as_mapping)
    assert main(["status", str(paths.folder), "--json"]) == 0
    printed = capsys.readouterr()
    assert "cost 2.50, 2.5 per completed trial" in printed.err
    data = json.loads(printed.out)
    assert (data["cost"], data["cost_per_trial"]) == (2.5, 2.5)


@pytest.mark.slow  # because a process is started
def test_status_imports_none_of_the_large_libraries(paths: StudyPaths) -> None:
    # Importing these libraries would take most of the command's time.
    code = (
        "import sys, sweeper.cli; code = sweeper.cli.main(sys.argv[1:]);"
        f"print(sorted(set({LARGE!r}) & set(sys.modules))); sys.exit(code)"
    )
    command = [sys.executable, "-c", code, "status", str(paths.folder), "--json"]
    # An unheld folder means a killed sweep, so `status` would mark the running trial as stopped.
    with held_folder(paths):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    result, loaded = done.stdout.splitlines()
    assert json.loads(result)["counts"]["running"] == 1
    assert loaded == "[]"


def test_a_trial_has_no_progress_while_its_kernel_starts(paths: StudyPaths) -> None:
    running = progress(paths)
    assert (running.run_id, running.cells, running.step, running.metrics) == ("0001", 0, None, {})


def test_the_progress_of_a_trial_is_read_from_its_notebook(paths: StudyPaths) -> None:
    file = write_notebook(paths.notebook("0001"), "1", "2", "3")
    node = nbformat.read(file, as_version=4)
    for cell, status in zip(node.cells, ("completed", "running", "pending"), strict=False):
        cell.metadata["papermill"] = {"status": status}
    metadata: dict[str, Any] = {
        "started_at": "2026-01-01T00:00:00+00:00",
        "series": {"val": {"steps": [0, 4], "values": [0.25, 0.75]}},
        "printed": {"loss": {"steps": [7], "values": [1.5]}},
        "finals": {"auc": "nan"},
    }
    node.metadata["sweeper"] = metadata
    nbformat.write(node, file)
    running = progress(paths)
    assert (running.cell, running.cells, running.step) == (2, len(node.cells), 7)
    assert {k: str(v) for k, v in running.metrics.items()} == {
        "loss": "1.5", "val": "0.75", "auc": "nan"
    }  # fmt: skip
    assert running.elapsed_s > 0
    node.metadata["sweeper"] = {**metadata, "waits_for": "its turn, behind 0000"}
    nbformat.write(node, file)
    waiting = progress(paths)
    assert waiting.waits_for == "its turn, behind 0000"
    assert waiting.elapsed_s == 0, "the wait counts as running time"
