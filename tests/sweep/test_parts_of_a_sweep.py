"""Parts of a sweep that need no trial: its snapshot of code, its stops, and its spending."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
from optuna.storages import RDBStorage
from studies import assert_says, small_settings, trial_record

from sweeper.cli.parser import parse
from sweeper.drafting.observed_run import has_same_code, made_of
from sweeper.errors import SettingsError, StorageAwayError, StudyError
from sweeper.notebook_api.messages import StopReason
from sweeper.notebooks.fingerprint import Fingerprint, fingerprint_of
from sweeper.notebooks.local_code import local_code
from sweeper.notebooks.metadata import BLANK
from sweeper.notebooks.research import ResearchNotebook
from sweeper.settings import Settings
from sweeper.settings.sections import Cost
from sweeper.study.access import LostFileError
from sweeper.study.facts import StudyFacts
from sweeper.study.study import Study
from sweeper.study_folder.snapshots import CodeSnapshot
from sweeper.sweep import opening
from sweeper.sweep.confirming import following_settings
from sweeper.sweep.frozen_code import changed_meanwhile, snapshot_of
from sweeper.sweep.housekeeping import Housekeeping
from sweeper.sweep.resume_checks import refuse_changes
from sweeper.sweep.scheduling.stop_switch import StopSwitch
from sweeper.sweep.spending import Spending
from sweeper.testing import write_notebook
from sweeper.trials import Chores, Events, RunningTrial, StudyPaths

CELLS = ("import model\n%run other.ipynb", "val = x")


@pytest.fixture
def notebook(tmp_path: Path) -> ResearchNotebook:
    (tmp_path / "model.py").write_text("V = 1\n")
    write_notebook(tmp_path / "other.ipynb", "y = 1")
    return ResearchNotebook(write_notebook(tmp_path / "nb.ipynb", *CELLS))


def snapshot(notebook: ResearchNotebook, settings: Settings | None = None) -> CodeSnapshot:
    code = local_code(notebook.code, notebook.path.parent)
    return snapshot_of(notebook, settings or small_settings("s"), code)


def test_a_module_that_the_notebook_has_downloaded_does_not_count_as_changed_code(
    notebook: ResearchNotebook, tmp_path: Path
) -> None:
    def fingerprint() -> Fingerprint:
        return fingerprint_of(notebook, small_settings("s"), kernel_name="python3")

    def resume() -> None:
        paths = StudyPaths.parse(f"{tmp_path}/{{run_id}}.ipynb", study="s")
        refuse_changes(study, fingerprint(), sources="nb.ipynb", paths=paths)

    model = notebook.path.with_name("model.py")
    model.unlink()
    trials = [trial_record(notebook=tmp_path / "0000.ipynb")]
    study: Any = SimpleNamespace(
        name="s", facts=SimpleNamespace(made_of=fingerprint()), records=lambda: trials
    )
    observed = replace(BLANK, observed=made_of(fingerprint()))
    model.write_text("V = 1\n")  # as if a cell had downloaded the module
    resume()
    assert has_same_code(observed, fingerprint())
    study.facts.made_of = fingerprint()
    model.write_text("V = 2\n")
    with pytest.raises(StudyError, match=r"model\.py has changed"):
        resume()


def test_mlflow_shows_the_command_that_resumes_a_search_and_none_for_a_confirming_study(
    notebook: ResearchNotebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "my.yml"
    file.write_text("objective: {val: maximize}\nspace: {x: [1, 2], y: [1, 2]}\n")
    settings = Settings.load(file).with_overrides(study="other", fixed={"y": 3})
    plan: Any = SimpleNamespace(
        settings=settings,
        notebook=notebook,
        paths=StudyPaths.parse("out/{study}.{run_id}.ipynb", study="other"),
        executor=SimpleNamespace(jobs=2),
        confirming=None,
    )
    command = opening._description(plan).splitlines()[-1].split()
    assert command[0] == "notebook_hpo.py"
    options = parse(shlex.split(" ".join(command[1:])))
    assert (options.input, options.parameters, options.jobs) == ("nb.ipynb", "my.yml", "2")
    assert (options.study, options.set) == ("other", ["y=3"])
    plan.confirming = "a plan"
    assert "notebook_hpo.py" not in opening._description(plan)


def test_the_name_of_a_code_snapshot_depends_on_modules_but_not_on_outputs_in_the_notebook(
    notebook: ResearchNotebook,
) -> None:
    name = snapshot(notebook).name
    node = nbformat.read(notebook.path, as_version=4)
    node.cells[1].outputs = [nbformat.v4.new_output("stream", text="seen by hand")]
    node.cells[1].execution_count = 3
    nbformat.write(node, notebook.path)
    assert snapshot(ResearchNotebook(notebook.path)).name == name
    notebook.path.with_name("model.py").write_text("V = 2\n")
    assert snapshot(notebook).name != name


def test_a_snapshot_contains_the_parameters_file_with_command_line_options(
    notebook: ResearchNotebook, tmp_path: Path
) -> None:
    file = tmp_path / "digits.yml"
    file.write_text("objective: {val: maximize}  # ours\nspace: {x: [1.0, 2.0]}\n")
    settings = Settings.load(file).with_overrides(trials=3, fixed={"y": 2})
    kept = snapshot(notebook, settings)
    assert kept.parameters_name == "digits.yml"
    file.write_text(kept.parameters)
    assert Settings.load(file).as_mapping == settings.as_mapping
    assert set(kept.files) == {"model.py", "other.ipynb"}


def test_code_files_that_change_while_a_sweep_runs_are_reported(notebook: ResearchNotebook) -> None:
    kept, folder = snapshot(notebook), notebook.path.parent
    assert changed_meanwhile(kept, notebook) == []
    write_notebook(notebook.path, "import other", "val = x")
    (folder / "model.py").unlink()
    write_notebook(folder / "other.ipynb", "y = 2")
    (finding,) = changed_meanwhile(kept, notebook)
    assert_says(finding, str(notebook.path), "model.py", "other.ipynb")


def test_a_stop_that_was_requested_before_a_trial_began_stops_it_when_it_begins() -> None:
    stop_switch = StopSwitch(Events())
    stop_switch.stop(3, "stopped by the command stop")
    others, wanted = RunningTrial(), RunningTrial()
    stop_switch.enter(2, others)
    stop_switch.enter(3, wanted)
    assert others.control.stop_reason is None
    assert (wanted.control.stop_reason, wanted.control.message) == (
        StopReason.BY_HAND,
        "stopped by the command stop",
    )


def test_a_stop_request_left_over_from_a_search_stops_no_trial_of_its_confirming_study() -> None:
    stop_switch, trial = StopSwitch(Events()), RunningTrial()
    stop_switch.stop(7, "stopped by the command stop")
    stop_switch.drop_requests()
    stop_switch.enter(7, trial)
    assert trial.control.stop_reason is None


@pytest.mark.parametrize(
    ("name", "cost", "spent", "part"),
    [
        ("n" * 95, None, 0.0, "at most 100"),
        ("paid", {"price_per_hour": 1.0, "budget": 2.0}, 2.0, "cost.budget: 2 is spent"),
    ],
)
def test_a_confirming_study_is_refused_if_its_name_is_too_long_or_the_budget_is_spent(
    name: str, cost: Any, spent: float, part: str
) -> None:
    settings = small_settings(name, **({} if cost is None else {"cost": cost}))
    with pytest.raises(SettingsError, match=part):
        following_settings(settings, f"{name}-confirm", spent=spent, trials=1)


def test_the_cost_of_a_study_can_be_read_although_its_stored_budget_is_invalid() -> None:
    settings = {"cost": {"price_per_hour": 2.0, "budget": 0.0}}
    facts = StudyFacts(id="s", objectives=["val"], settings=settings, spent_s=3600.0)
    assert facts.cost == 2.0


@pytest.mark.parametrize(
    ("error", "is_lost"),
    [
        (StudyError("another process sweeps the study"), True),
        (LostFileError(Path("study.db"), "it was removed"), True),
        (StorageAwayError("the server is away"), False),
        (OSError("no memory"), False),
    ],
    ids=["taken over", "removed", "away", "memory"],
)
def test_a_sweep_ends_if_the_time_spent_cannot_be_stored_because_its_storage_is_lost(
    tmp_path: Path, error: Exception, is_lost: bool
) -> None:
    def write() -> None:
        raise error

    lost: list[Exception] = []
    parts: Any = {
        "plan": SimpleNamespace(paths=StudyPaths.parse(f"{tmp_path}/{{run_id}}.ipynb", study="s")),
        "study": None,
        "scheduler": SimpleNamespace(lose=lost.append, broken=None),
        "spending": SimpleNamespace(write=write),
    }
    Housekeeping(parts.pop("plan"), parts.pop("study"), chores=Chores(), **parts).close()
    assert (error in lost) is is_lost


_STOPPED_MEANWHILE = """
import signal
from sweeper.sweep.scheduling.stop_switch import StopSwitch
from sweeper.trials import Events, RunningTrial

class Interrupted(RunningTrial):
    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "stop_reason" and value is not None:
            signal.raise_signal(signal.SIGTERM)

stop_switch = StopSwitch(Events())
signal.signal(signal.SIGTERM, lambda *_: stop_switch.stop_all("a signal"))
stop_switch.enter(0, Interrupted(lambda _: None))
stop_switch.stop_all("the end")
"""


@pytest.mark.slow
def test_a_signal_that_arrives_while_a_trial_is_being_stopped_causes_no_deadlock() -> None:
    # The code runs in another process, because the test could not end a deadlock in its own.
    subprocess.run([sys.executable, "-c", _STOPPED_MEANWHILE], check=True, timeout=30)


def test_the_time_spent_on_a_study_is_the_sum_of_its_sweeps_each_counted_once(
    storage: RDBStorage,
) -> None:
    named, cost = small_settings("spent"), Cost(price_per_hour=3600.0, budget=100.0)
    first = Spending(Study.open(storage, named), cost, since=time.monotonic() - 10)
    first.write()
    first.write()
    stored = Study.load(str(storage.url), "spent").facts.spent_s
    assert stored == pytest.approx(10, abs=1)
    second = Spending(Study.open(storage, named), cost, since=time.monotonic() - 20)
    assert second.spent_s == pytest.approx(30, abs=1)
    assert second.cost == pytest.approx(30, abs=1)
    assert second.left_s == pytest.approx(70, abs=1)
    study = Study.open(storage, named)
    assert Spending(study, None, since=time.monotonic()).left_s is None
