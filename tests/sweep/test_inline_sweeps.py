"""Whole sweeps with a real study and a real MLflow store, in which functions replace kernels."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from studies import scored, sweep_of, until

from sweeper import Sweep
from sweeper.control.lookup import find_study
from sweeper.control.steering import enqueue
from sweeper.errors import BrokenError, OutputError, StudyError
from sweeper.notebook_api.messages import Point, StopReason
from sweeper.study.storage import MirroredStorage
from sweeper.study.study import Study
from sweeper.sweep import opening
from sweeper.sweep.scheduling.trial_log import TrialLog
from sweeper.testing import write_notebook
from sweeper.tracking import writer
from sweeper.trials import Reason, RunningTrial, TrialOutcome, TrialSpec, TrialState

pytestmark = pytest.mark.slow  # MLflow is imported

RunTrial = Callable[[TrialSpec, RunningTrial], TrialOutcome]


def wait_for_stop(_: TrialSpec, running: RunningTrial) -> TrialOutcome:
    stopped = threading.Event()
    running.control.on_stop(stopped.set)
    assert stopped.wait(30), "nothing has stopped the trial"
    assert running.control.stop_reason is StopReason.INTERRUPTED
    return TrialOutcome(state=TrialState.STOPPED, reason=Reason.INTERRUPTED)


@pytest.fixture
def make_sweep(tmp_path: Path) -> Callable[..., Sweep]:
    """Return a function that builds a sweep whose trials are calls of a function."""

    def make(
        run_trial: RunTrial, *, jobs: int = 2, timeout_s: float | None = None, **changes: Any
    ) -> Sweep:
        notebook = write_notebook(tmp_path / "nb.ipynb", "val = x")
        options = {"timeout_s": timeout_s}
        return sweep_of(notebook, "inline", run_trial, jobs=jobs, options=options, **changes)

    return make


Make = Callable[..., Sweep]


def test_a_file_in_the_way_is_named_and_the_sweep_begins_after_it_was_moved(
    make_sweep: Make, tmp_path: Path
) -> None:
    notes = tmp_path / "out" / "inline" / "notes.json"
    notes.mkdir(parents=True)
    with pytest.raises(OutputError, match=r"notes\.json: cannot be used: .*begun no trial"):
        make_sweep(scored, study={"trials": 1}).run()
    notes.rmdir()
    assert make_sweep(scored, study={"trials": 1}).run().counts["completed"] == 1


def test_a_study_stores_what_another_command_needs_to_run_a_trial_again(
    make_sweep: Make, tmp_path: Path
) -> None:
    make_sweep(scored, study={"trials": 1}).run()
    existing = find_study(str(tmp_path / "out"), storage=None)
    facts = existing.study.facts
    assert facts.notebook == str(tmp_path / "nb.ipynb")
    assert facts.kernel == "python3"
    assert existing.settings.study.trials == 1
    assert existing.record("0000").scores == {"val": existing.record("0000").params["x"]}


def test_a_sweep_with_other_outputs_or_another_store_than_its_study_is_refused_and_changes_nothing(
    tmp_path: Path,
) -> None:
    notebook = write_notebook(tmp_path / "nb.ipynb", "val = x")
    there = f"sqlite:///{tmp_path}/team.db"

    def sweep(output: str = "out/{run_id}.ipynb", uri: str | None = there, trials: int = 2) -> Any:
        options, study = {"tracking_uri": uri, "allow_changes": True}, {"trials": trials}
        sweep = sweep_of(notebook, "kept", scored, output=output, options=options, study=study)
        return sweep.run()

    sweep()
    existing = find_study(str(tmp_path / "out"), storage=None)
    for changed in ({"output": "out/new.{run_id}.ipynb"}, {"uri": None}):
        with pytest.raises(StudyError):
            sweep(**changed)
        assert find_study(str(tmp_path / "out"), storage=None).study.facts == existing.study.facts
    assert sweep(trials=3).counts["completed"] == 3


@pytest.mark.parametrize(("completed", "failures"), [(0, 3), (1, 19)])
def test_three_equal_failures_end_a_sweep_if_no_trial_has_completed(
    make_sweep: Make, completed: int, failures: int
) -> None:
    def fail(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        if spec.number < completed:
            return scored(spec, running)
        raise ModuleNotFoundError("No module named 'timmm'")

    result = make_sweep(fail, jobs=1, study={"trials": 20}).run()
    assert result.counts["failed"] == failures
    assert "timmm" in result.records[-1].message


def test_a_study_ends_when_its_budget_is_spent(make_sweep: Make) -> None:
    cost = {"price_per_hour": 3600.0, "budget": 8.0}

    def watch(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        out = str(spec.notebook.parent)
        # The time spent must be stored while a trial runs, so that it counts even after a kill.
        until(lambda: find_study(out, storage=None).study.facts.spent_s > 0)
        return wait_for_stop(spec, running)

    first = make_sweep(watch, cost=cost).run()
    assert "cost.budget" in str(first.stopped_by)
    assert first.counts["stopped"] == 2
    assert first.to_json()["cost"] >= 8.0
    second = make_sweep(wait_for_stop, cost=cost).run()
    assert [record.attempt for record in second.records] == [1, 1], "a trial was started"


def all_fail(spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
    """Fail in the last cell of the trial, after it has saved a checkpoint and an artifact."""
    for saved in (spec.checkpoint_dir / "000009.ckpt", spec.artifact_dir / "model.pt"):
        saved.parent.mkdir(parents=True, exist_ok=True)
        saved.touch()
    return TrialOutcome(state=TrialState.FAILED, reason=Reason.NO_SCORE, message="no val_ac")


@pytest.mark.parametrize(
    "corrected",
    [
        {"space": {"x": {"low": 0.0, "high": 0.5}}},
        {"objective": {"loss": "minimize"}},
        {"objective": {"val": "minimize"}},
        {"space": {"x": [0.25, 0.5]}},
    ],
    ids=["range", "objective", "direction", "choices"],
)
def test_a_study_with_only_failures_begins_anew_after_a_correction_and_keeps_its_cost(
    make_sweep: Make, tmp_path: Path, corrected: dict[str, Any]
) -> None:
    cost = {"price_per_hour": 3600.0}
    failed = make_sweep(all_fail, study={"trials": 2}, cost=cost).run()
    (tmp_path / "out" / "inline" / "notes.json").write_text('{"0000": {"note": "what is this?"}}')
    found: list[bool] = []

    def run(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        found.append(spec.checkpoint_dir.exists() or spec.artifact_dir.exists())
        scores = {"val": 0.5, "loss": 0.5}
        return TrialOutcome(state=TrialState.COMPLETED, scores=scores)

    result = make_sweep(run, study={"trials": 2}, cost=cost, **corrected).run()
    assert result.counts == {"completed": 2, "pruned": 0, "failed": 0, "stopped": 0}
    assert found == [False, False]
    assert find_study(str(tmp_path / "out"), storage=None).study.facts.replaced_trials == 2
    assert (result.cost or 0.0) > (failed.cost or 0.0) > 0.0
    assert result.notes == {}


@pytest.mark.parametrize("allow_changes", [False, True])
def test_a_study_killed_before_its_first_trial_uses_all_settings_of_the_corrected_file(
    make_sweep: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allow_changes: bool
) -> None:
    first = make_sweep(scored, start=[{"x": 0.5}], objective={"vol": "minimize"}).run
    folder = tmp_path / "out" / "inline"
    folder.mkdir(parents=True)  # the folder exists before the sweep, so a failed start keeps it
    (folder / "notes.json").write_text('{"0000": {"note": "of an earlier study"}}')
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(opening, "to_learn", Mock(side_effect=KeyboardInterrupt))
        first()
    (study,) = Study.all_in(f"sqlite:///{folder / 'study.db'}")
    assert study.facts.objectives == ["vol"]
    corrected: dict[str, Any] = {"start": [{"x": 0.25}], "study": {"trials": 2}}
    options = {"allow_changes": allow_changes}
    result = sweep_of(tmp_path / "nb.ipynb", "inline", scored, options=options, **corrected).run()
    assert (result.counts["completed"], result.notes) == (2, {})
    assert [record.params["x"] == 0.25 for record in result.records] == [True, False]


def test_an_interrupted_trial_with_a_param_that_the_notebook_no_longer_has_fails_before_it_runs(
    tmp_path: Path,
) -> None:
    def sweep(name: str, run: RunTrial, **changes: Any) -> Any:
        notebook = write_notebook(tmp_path / "nb.ipynb", "val = 1", parameters=f"{name} = 0.5")
        space = {name: {"low": 0.0, "high": 1.0}}
        options = {"allow_changes": True}
        made = sweep_of(notebook, "lost", run, options=options, space=space, **changes)
        return made.run()

    def stopped(spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
        return TrialOutcome(state=TrialState.STOPPED, reason=Reason.NO_GPU, message="no GPU")

    ran: list[int] = []

    def run(spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
        ran.append(spec.number)
        return TrialOutcome(state=TrialState.COMPLETED, scores={"val": 1.0})

    sweep("x", stopped, study={"trials": 2})
    result = sweep("rate", run, study={"trials": 2})
    lost, other = result.records
    assert (lost.state, lost.reason) == (TrialState.FAILED, Reason.PARAM_LOST)
    assert f"began with x: {lost.params['x']!r}" in lost.message
    assert "rate" in lost.message
    assert (ran, [*other.params]) == ([1], ["rate"])


def test_a_kill_while_a_study_begins_anew_does_not_lose_the_cost_of_the_old_one(
    make_sweep: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = {"price_per_hour": 3600.0}
    failed = make_sweep(all_fail, study={"trials": 1}, cost=cost).run()
    remove = MirroredStorage.remove

    def killed(storage: MirroredStorage) -> None:
        remove(storage)
        raise KeyboardInterrupt

    corrected = {"study": {"trials": 1}, "cost": cost, "space": {"x": [0.25]}}
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(MirroredStorage, "remove", killed)
        make_sweep(scored, **corrected).run()
    result = make_sweep(scored, **corrected).run()
    assert (result.cost or 0.0) > (failed.cost or 0.0)
    assert find_study(str(tmp_path / "out"), storage=None).study.facts.replaced_trials == 1


def test_a_study_that_began_anew_and_was_killed_before_its_first_remote_copy_resumes(
    make_sweep: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = (tmp_path / "copies").as_uri()
    make_sweep(all_fail, study={"trials": 1}, sync=sync).run()
    corrected = {"study": {"trials": 1}, "sync": sync, "space": {"x": [0.25]}}
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(opening, "to_learn", Mock(side_effect=KeyboardInterrupt))
        make_sweep(scored, **corrected).run()
    result = make_sweep(scored, **corrected).run()
    assert result.counts["completed"] == 1


def test_a_study_does_not_begin_anew_while_a_trial_that_was_queued_by_hand_waits(
    make_sweep: Make, tmp_path: Path
) -> None:
    make_sweep(all_fail, study={"trials": 1}).run()
    enqueue(find_study(str(tmp_path / "out"), storage=None), {"x": 0.5}, like=None)
    with pytest.raises(StudyError, match="--allow-changes"):
        make_sweep(scored, study={"trials": 1}, space={"x": {"low": 0.0, "high": 0.5}}).run()
    assert find_study(str(tmp_path / "out"), storage=None).record("0000").params


def test_the_time_limit_stops_all_trials_and_counts_from_when_the_sweep_was_made(
    make_sweep: Make,
) -> None:
    called_s = time.monotonic()
    sweep = make_sweep(wait_for_stop, timeout_s=8)
    time.sleep(1.0)
    result = sweep.run()
    assert "--timeout after 8 s" in str(result.stopped_by)
    assert result.counts["stopped"] == 2
    assert 8 <= result.duration_s + 1 <= time.monotonic() - called_s


def test_a_sweep_that_waits_for_mlflow_at_its_end_still_reacts_to_a_preemption(
    make_sweep: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch, launched = writer.launch, []

    def noted() -> Any:
        launched.append(launch())
        return launched[-1]

    monkeypatch.setattr(writer, "launch", noted)

    def stop_writer(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        until(lambda: launched)
        # The process that writes to MLflow hangs, so that the end of the sweep has to wait for it.
        launched[0][0].send_signal(signal.SIGSTOP)
        threading.Timer(1.0, sweep.preempt, args=["SIGTERM"]).start()
        return scored(spec, running)

    sweep = make_sweep(stop_writer, study={"trials": 1}, limits={"grace": "4s"})
    began_s = time.monotonic()
    result = sweep.run()
    assert (result.counts["completed"], result.undelivered) == (1, 1)
    assert "no answer for" in str(result.undelivered_because)
    assert time.monotonic() - began_s < 30


def test_a_sweep_stops_if_another_machine_has_taken_over_its_remote_copy(
    make_sweep: Make, tmp_path: Path
) -> None:
    owner = tmp_path / "copy" / "inline" / "owner.json"

    def taken_over(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        other = json.loads(owner.read_text()) | {"token": "another", "host": "elsewhere"}
        owner.write_text(json.dumps(other))
        return wait_for_stop(spec, running)

    sync = {"url": (tmp_path / "copy").as_uri(), "every": "0.1s"}
    with pytest.raises(BrokenError, match=r"was taken over by process \d+ on elsewhere"):
        make_sweep(taken_over, sync=sync).run()


def test_a_sweep_whose_folder_was_taken_over_ends_without_further_changes_to_the_study(
    make_sweep: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = Mock()
    for call in ("ended", "finish"):
        monkeypatch.setattr(TrialLog, call, logged)
    folder = tmp_path / "out" / "inline"
    seen: list[str] = []

    def succeeded(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        owner = {"token": "another", "host": "elsewhere", "pid": 4711, "machine": "another"}
        (folder / "sweep.json").write_text(json.dumps(owner))
        running.points.publish(Point(metrics={"val": 0.5}, step=1))
        seen.append((folder / "study.json").read_text())
        wait_for_stop(spec, running)
        return scored(spec, running)

    with pytest.raises(BrokenError, match="was taken over by process 4711 on elsewhere"):
        make_sweep(succeeded, jobs=1).run()
    (trial,) = find_study(str(folder), storage=None).study.records()
    assert (trial.state, trial.scores) == (TrialState.RUNNING, {})
    assert [(folder / "study.json").read_text()] == seen
    logged.assert_not_called()


def test_with_order_fixed_a_later_sweep_uses_the_number_of_slots_of_the_first_one(
    make_sweep: Make, caplog: pytest.LogCaptureFixture
) -> None:
    make_sweep(scored, jobs=1, study={"trials": 2, "order": "fixed"}).run()
    assert "study.order" not in caplog.text
    make_sweep(scored, jobs=4, study={"trials": 3, "order": "fixed"}).run()
    (line,) = [r.getMessage() for r in caplog.records if "study.order" in r.getMessage()]
    assert "at most 1 of -j 4 trials run at once" in line


def test_the_option_trials_overrides_the_number_of_trials_in_the_settings(tmp_path: Path) -> None:
    notebook = write_notebook(tmp_path / "nb.ipynb", "val = x")
    result = sweep_of(notebook, "few", scored, options={"trials": 2}).run()
    assert len(result.records) == 2


def test_a_result_counts_the_trials_of_this_sweep_apart_from_those_of_the_whole_study(
    make_sweep: Make,
) -> None:
    assert make_sweep(scored, study={"trials": 2}).run().counts_here["completed"] == 2
    resumed = make_sweep(scored, study={"trials": 3}).run()
    assert (resumed.counts_here["completed"], resumed.counts["completed"]) == (1, 3)
    repeated = make_sweep(scored, study={"trials": 3}).run()
    assert not any(repeated.counts_here.values())


def test_a_resumed_sweep_without_new_trials_does_not_predict_the_scores_on_its_page_again(
    make_sweep: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    predicted = Mock(return_value={"val": []})
    monkeypatch.setattr(Study, "surfaces", predicted)
    for trials, n_calls in ((2, 1), (2, 1), (3, 2)):
        make_sweep(scored, study={"trials": trials}).run()
        assert predicted.call_count == n_calls
