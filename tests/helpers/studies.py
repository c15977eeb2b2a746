"""Small studies for tests, sweeps that end after enough trials, and functions that wait."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

import nbformat
import psutil

from sweeper.answer import StudySoFar, answer_of
from sweeper.guard import MARK_VARIABLE
from sweeper.settings import Settings
from sweeper.study.facts import StudyFacts
from sweeper.testing import InlineExecutor, write_notebook
from sweeper.trials import (
    Event,
    Observer,
    RunningTrial,
    StudyPaths,
    SweepResult,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
    TrialState,
    run_id_of,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

    from sweeper import Sweep
    from sweeper.execution.workload import Workload


def small_settings(name: str, **changes: Any) -> Settings:
    """Return settings with one objective and one dimension, changed by the stated sections."""
    usual = {"objective": {"val": "maximize"}, "space": {"x": {"low": 0.0, "high": 1.0}}}
    study = {"name": name, "trials": 9, "sampler": "random", **changes.get("study", {})}
    return Settings.from_mapping({**usual, **changes, "study": study})


def scored(spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
    """Run a trial of `sweep_of` whose score is its param."""
    return TrialOutcome(state=TrialState.COMPLETED, scores={"val": float(str(spec.params["x"]))})


def sweep_of(
    notebook: Path,
    name: str,
    run_trial: Callable[[TrialSpec, RunningTrial], TrialOutcome] | None = None,
    *,
    output: str = "out/{run_id}.ipynb",
    jobs: int = 1,
    options: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Sweep:
    """Return a sweep of a notebook with `small_settings`, whose outputs are next to the notebook.

    Args:
        run_trial: Function that runs each trial in place of a kernel. None for kernels.
        options: Further arguments of `Sweep.from_settings`.
        **changes: Sections of the settings.
    """
    from sweeper import Sweep

    return Sweep.from_settings(
        small_settings(name, **changes),
        notebook=notebook,
        output=f"{notebook.parent}/{output}",
        jobs=jobs,
        executor=run_trial and (lambda _: InlineExecutor(run_trial, jobs=jobs)),
        **(options or {}),
    )


def assert_says(text: str, *facts: str) -> None:
    """Check that a message has these texts in this order, such as keys, values and remedies.

    Other words in the message do not matter.
    """
    place = 0
    for fact in facts:
        place = text.find(fact, place)
        assert place >= 0, f"{fact!r} is not where it should be in: {text}"
        place += len(fact)


def sweep_result(**stated: Any) -> SweepResult:
    """Return the result of a sweep, with defaults for what a test does not state."""
    usual: dict[str, Any] = {
        "study": "digits",
        "study_id": "1",
        "storage": "sqlite:///study.db",
        "tracking_uri": "sqlite:///mlflow.db",
        "experiment_id": "1",
        "objectives": ["val"],
        "records": [],
        "best": [],
        "mlflow_run_ids": {},
        "compare_url": None,
    }
    result = SweepResult(**{**usual, **stated})
    if "counts_here" not in stated:
        result = replace(result, counts_here=result.counts)
    goals = dict.fromkeys(result.objectives, "maximize")
    settings = small_settings(
        result.study, objective=goals, study={"trials": len(result.records) or 1}
    )
    study = StudySoFar(
        settings=settings,
        records=result.records,
        best=result.best,
        words=[f"out/{result.study}"],
        confirmation=result.confirmation,
        importances=result.importances,
        cost=result.cost,
    )
    insights = answer_of(study)
    return replace(result, insights=insights)


def study_of_page(name: str, records: Sequence[TrialRecord], **stated: Any) -> Any:
    """Return a stand-in for a study, with the attributes that the study's HTML page needs."""
    facts = StudyFacts(id="1", objectives=["val"], notebook="nb.ipynb")
    usual: dict[str, Any] = {"best": [], "confirmation": None, "facts": facts}
    its = {"name": name, "records": records, **usual, **stated}
    calls = {key: lambda key=key: its[key] for key in ("records", "best")}
    return SimpleNamespace(**{**its, **calls})


def mlflow_client(uri: str) -> MlflowClient:
    """Return a client of MLflow. Its import takes a second, so most tests should not do this."""
    from mlflow import MlflowClient

    return MlflowClient(uri)


def mlflow_runs(uri: str, study: str) -> list[Run]:
    """Return the runs of a study in MLflow."""
    client = mlflow_client(uri)
    experiment = client.get_experiment_by_name(study)
    assert experiment is not None
    return list(client.search_runs([experiment.experiment_id]))


def workload_of(notebook: Path, **changes: Any) -> Workload:
    """Return the workload of a sweep of a notebook with `small_settings`."""
    from sweeper.execution.workload import Workload
    from sweeper.notebooks.research import ResearchNotebook

    return Workload(
        notebook=ResearchNotebook(notebook),
        settings=small_settings("contract", **changes),
        kernel_name="python3",
        cwd=notebook.parent,
        paths=StudyPaths.parse(f"{notebook.parent}/{{run_id}}.ipynb", study="contract"),
    )


def acting_workload(folder: Path, **changes: Any) -> Workload:
    """Return a workload whose trials do what their param `act` says, for the executor contract."""
    from sweeper.testing.executor_contract import ACTING_CELL

    notebook = write_notebook(folder / "nb.ipynb", ACTING_CELL, parameters="act = 'complete'")
    return workload_of(notebook, **{"space": {"act": ["complete"]}, **changes})


def note_in(notebook: Path, **metadata: Any) -> None:
    """Add facts about a trial to its executed notebook."""
    node = nbformat.read(notebook, as_version=4)
    node.metadata.setdefault("sweeper", {}).update(metadata)
    nbformat.write(node, notebook)


def trial_record(number: int = 0, **stated: Any) -> TrialRecord:
    """Return the record of a trial, completed by default, with defaults for what is not stated."""
    usual: dict[str, Any] = {
        "state": TrialState.COMPLETED,
        "params": {"x": 0.5},
        "seed": 0,
        "attempt": 1,
        "notebook": Path(f"out/{run_id_of(number)}.ipynb").absolute(),
        "scores": {"val": 1.0} if stated.get("state", "completed") == "completed" else {},
    }
    return TrialRecord(number=number, **{**usual, **stated})


#: Time limit in seconds for events that should happen at once. It is long for busy machines.
PATIENCE_S = 120.0


_Found = TypeVar("_Found")


def until(found: Callable[[], _Found], message: str = "the condition has not come true") -> _Found:
    """Call a function until it returns a true value, and return this value.

    Between two calls, the test waits longer than a call takes. Otherwise it would keep a core busy
    that other processes need.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        before_s = time.monotonic()
        if what := found():
            return what
        assert time.monotonic() < deadline_s, message
        time.sleep(min(max(0.005, 5 * (time.monotonic() - before_s)), 0.5))


def is_listening(port: int) -> bool:
    """Return whether a process listens on a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def processes_in(folder: Path, word: str = "") -> list[psutil.Process]:
    """Return the processes whose working folder is `folder` and whose command contains `word`."""
    return [
        one
        for one in psutil.process_iter(["cwd", "cmdline", "status"])
        if one.info["cwd"] == str(folder) and one.info["status"] != psutil.STATUS_ZOMBIE
        if word in " ".join(one.info["cmdline"] or ())
    ]


def kernels_in(folder: Path) -> list[psutil.Process]:
    """Return processes of sweeps in or below a folder: kernels, and what they have started."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            is_alive = process.status() != psutil.STATUS_ZOMBIE
            is_there = Path(process.cwd()).is_relative_to(folder)
            if is_alive and is_there and MARK_VARIABLE in process.environ():
                found.append(process)
    return found


def run_until(
    enough: Callable[[list[Any]], bool], make: Callable[[Observer], Sweep]
) -> SweepResult:
    """Run a sweep that starts no more trials once enough trials have ended.

    Which trials have forked kernels depends on the machine's speed. So a fixed number of trials
    would be too many on a quiet machine and too few on a busy one.

    Args:
        enough: Returns whether enough trials have ended, from the metadata of their notebooks.
        make: Builds the sweep with an observer.
    """
    ended: list[Any] = []

    def observe(event: Event, record: TrialRecord | None) -> None:
        if event is Event.TRIAL_ENDED and record is not None:
            ended.append(nbformat.read(record.notebook, as_version=4).metadata["sweeper"])
            if enough(ended):
                sweep.stop("the test has seen enough")

    sweep = make(observe)
    return sweep.run()


def forked(count: int) -> Callable[[list[Any]], bool]:
    """Return the argument `enough` of `run_until` for a number of trials with forked kernels."""
    return lambda ended: sum(one["kernel"] == "warm" for one in ended) >= count
