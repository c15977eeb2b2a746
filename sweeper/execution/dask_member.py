"""One worker of a Dask cluster as a sweep uses it: what it has, its trials, and their files."""

from __future__ import annotations

import json
import logging
import os
import pickle
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from io import FileIO
from pathlib import Path
from secrets import token_hex
from typing import Any

from pydantic import TypeAdapter

from ..errors import first_line
from ..notebook_api.messages import Point, PointSource
from ..study_folder.patience import Patience
from ..study_folder.snapshots import keep_environment
from ..trials import Reason, RunningTrial, TrialOutcome, TrialSpec, TrialState
from .acceptance import differences, own_version
from .dask_cluster import CallError, DaskCluster, DaskWorker
from .dask_files import Stamp, files_below, is_in_folder, parts_of, path_of
from .executor import TimeLeft
from .workload import Workload

_log = logging.getLogger(__name__)

#: How long a worker may take to look for its kernel and its packages.
_LOOK_S = 120.0
#: How long the outcome of a trial that has ended may be on its way.
_RESULT_S = 30.0
#: How often a file is asked for that changes while it is on its way from a trial that has ended.
_MOST_TRIES = 3
_RUN = f"__import__('{__package__}.dask_worker', fromlist=['run_trial']).run_trial"
_OUTCOME = TypeAdapter(TrialOutcome)


class LostError(Exception):
    """The worker, or the way to it, is gone."""


class Member:
    """A worker of the cluster. Safe to use from several threads.

    Args:
        key: of the sweep, as `TrialsOnWorker` has it.
        patience: with home's disk.

    Attributes:
        host: the name of the worker's machine; empty before `look`.
        slots: how many trials run there at once.
        used: how many slots of the sweep use it now; `DaskExecutor` counts them.
        is_accepted: whether it can run the trials of this sweep.
        is_ready: whether trials may be sent.
        shares_code: whether it has the notebook's folder on a disk of both; `shares_study`: whether
            it has the study's.
    """

    def __init__(
        self, cluster: DaskCluster, worker: DaskWorker, *, key: str, patience: Patience
    ) -> None:
        self.worker = worker
        self.host = ""
        self.slots = worker.threads
        self.used = 0
        self.is_accepted = self.is_ready = False
        self.shares_code = self.shares_study = False
        self._cluster = cluster
        self._key = key
        self._patience = patience
        self._is_lost = False
        self._trials: dict[str, _TrialThere] = {}
        self._sent_inputs: set[Path] = set()

    @property
    def is_lost(self) -> bool:
        """Whether no trial can run there any more."""
        return self._is_lost

    def lose(self) -> None:
        """Give the worker up, and the trials that run there."""
        self._is_lost = True
        for trial in list(self._trials.values()):
            trial.wake.set()

    def look(
        self, workload: Workload, modules: Sequence[str], python: Mapping[str, Any] | None
    ) -> str:
        """Ask the worker what it has.

        Args:
            modules: that the notebook imports.
            python: of the kernel at home, as `kernel_python` describes it.

        Returns:
            why it cannot run trials; empty where it can.

        Raises:
            LostError: it does not answer.
        """
        from .dask_worker import TrialsOnWorker  # imports Dask

        try:
            probed = self._cluster.probe(self.worker.address)
            theirs, ours = str(probed["package"]), own_version()
            self.host = str(probed["host"])
            if not theirs:
                return f"notebook-hpo is not installed; {ours} is needed there"
            if theirs != ours:
                return f"notebook-hpo: {ours} here, {theirs} there"
            plugin = pickle.dumps(TrialsOnWorker(self._key))
            self._cluster.ask(self.worker.address, "plugin-add", plugin=plugin, name=self._key)
        except CallError as error:
            raise LostError(str(error)) from error
        found = self._ask(
            "look",
            timeout_s=_LOOK_S,
            workload=pickle.dumps(workload),
            modules=list(modules),
        )
        if found["obstacle"]:
            return str(found["obstacle"])
        return ", ".join(differences(python, json.loads(found["python"])))

    def share(self, signs: Mapping[str, tuple[str, str] | None]) -> None:
        """Find out which folders of home the worker has.

        Args:
            signs: files of home and their texts: `code_sign` of the notebook's folder, `study_sign`
                of the study's; None where the worker is to have copies.

        Raises:
            LostError: it does not answer.
        """
        answer = self._ask("share", timeout_s=_LOOK_S, **signs)
        self.shares_code, self.shares_study = map(bool, answer)

    def open(self, workload: Workload, files: Sequence[Path], time_left: TimeLeft) -> str:
        """Make the worker ready for trials, which takes as long as their data does.

        Args:
            files: beside the notebook, which it lacks.

        Returns:
            why it runs no trials after all; empty where it does.

        Raises:
            LostError: it is gone.
        """
        self._paths = workload.paths
        self._send(files)
        times = {"patience_s": time_left.patience_s(), "left_s": time_left.left_s()}
        return str(self._ask("open", timeout_s=None, workload=pickle.dumps(workload), **times))

    def publish(self, event: Mapping[str, Any]) -> None:
        """Take an event of the worker: a point of a trial, where it is one of this worker's."""
        trial = self._trials.get(str(event.get("task")))
        if trial is not None and "point" in event:
            point = Point.decode(event["point"])
            trial.running.publish(replace(point, source=PointSource(event["point"]["source"])))

    def run_trial(self, spec: TrialSpec, running: RunningTrial, *, pace_s: float) -> TrialOutcome:
        """Run a trial there, from its files that home has to those that it has when it ends.

        Args:
            pace_s: how often what is new of its files is brought home.
        """
        running.host = self.host
        task = f"{self._key}-{spec.run_id}-{spec.attempt}-{token_hex(4)}"
        trial = self._trials[task] = _TrialThere(spec, running)
        try:
            self._send_trial(spec)
            payload = pickle.dumps((spec, running.trials_left))
            code = f"{_RUN}({self._key!r}, {task!r}, payload)"
            future = self._cluster.submit(self.worker, code, payload, task=task)
            return self._follow(task, trial, future, pace_s)
        except (CallError, LostError) as error:
            _log.info("%s: %s", self.worker.address, error)
            self.lose()
            return lost_outcome(self.host)
        finally:
            running.on_stop(None)
            del self._trials[task]

    def _ask(self, act: str, *, timeout_s: float | None = 30.0, **arguments: Any) -> Any:
        """Call the plugin there (`TrialsOnWorker.answer`).

        Raises:
            LostError: it does not answer.
        """
        try:
            return self._cluster.ask(
                self.worker.address,
                self._key,
                timeout_s=timeout_s,
                is_vain=lambda: self._is_lost,
                act=act,
                **arguments,
            )
        except CallError as error:
            raise LostError(str(error)) from error

    def _send(self, paths: Iterable[Path]) -> None:
        for path in paths:
            for offset, data in parts_of(path):
                self._ask("write", path=str(path), offset=offset, data=data)

    def _send_trial(self, spec: TrialSpec) -> None:
        """Make the files of a trial there the same as at home."""
        notebooks = [spec.notebook, *([] if spec.continues is None else [spec.continues])]
        for notebook in notebooks:
            self._ask("remove", path=str(notebook))
        self._send(notebooks)
        if self.shares_study:
            return
        for folder in (spec.checkpoint_dir, spec.artifact_dir):
            self._ask("remove", path=str(folder))
            self._send(files_below(folder))
        for path in {it.path for it in spec.inputs.values()} - self._sent_inputs:
            self._send(files_below(path) if path.is_dir() else [path])
            self._sent_inputs.add(path)  # they never change

    # --- a trial that runs there ------------------------------------------------------------------

    def _follow(self, task: str, trial: _TrialThere, future: Any, pace_s: float) -> TrialOutcome:
        """Bring home what is new of a trial until it has ended, and pass a stop on."""
        future.add_done_callback(lambda _: trial.wake.set())
        trial.running.on_stop(trial.wake.set)
        is_told = False
        while not future.done():
            if self._is_lost:
                future.cancel()
                return lost_outcome(self.host)
            with suppress(LostError, OSError):  # it is tried again until the worker is gone
                if trial.running.stop_reason is not None and not is_told:
                    reason, text = str(trial.running.stop_reason), trial.running.message
                    self._ask("stop", task=task, reason=reason, message=text)
                    is_told = True
                self._bring(task, trial)
            trial.wake.wait(pace_s)
            trial.wake.clear()
        if future.status != "finished":  # cancelled with the connection to the scheduler
            raise LostError(f"the task {task} is {future.status}")
        try:
            answer = json.loads(bytes(future.result(timeout=_RESULT_S)))
        except Exception as error:
            raise LostError(f"the outcome did not arrive: {first_line(error)}") from error
        return self._ended(task, trial, answer)

    def _ended(self, task: str, trial: _TrialThere, answer: Mapping[str, Any]) -> TrialOutcome:
        if "error" in answer:
            message = f"on {self.host}: {answer['error']}"
            return TrialOutcome(
                state=TrialState.FAILED, reason=Reason.INTERNAL, message=message, host=self.host
            )
        if not answer:
            raise LostError("the worker has taken the sweep for dead")
        try:
            outcome = replace(_OUTCOME.validate_python(answer["outcome"]), host=self.host)
            environment = None if answer["environment"] is None else dict(answer["environment"])
        except (KeyError, TypeError, ValueError) as error:
            raise LostError(f"an outcome that cannot be read: {first_line(error)}") from error
        is_asked = trial.running.stop_reason is not None
        if outcome.reason is Reason.INTERRUPTED and not is_asked:  # the worker itself ends
            raise LostError("the worker ends")
        trial.is_over = True
        try:
            any(self._bring(task, trial) for _ in range(_MOST_TRIES))
            if environment is not None:  # home names the record by its content
                name = keep_environment(self._paths, environment)
                outcome = replace(outcome, environment=name)
        except OSError as error:
            message = f"{trial.spec.notebook}: {error.strerror or error}"
            return replace(outcome, state=TrialState.STOPPED, reason=Reason.FILE, message=message)
        with suppress(LostError):
            self._ask("forget", task=task)
        return outcome

    def _bring(self, task: str, trial: _TrialThere) -> bool:
        """Bring home the files of a trial that are new; whether all of them are there.

        Raises:
            LostError: the worker does not answer, or names files that are none of the trial's.
            OSError: a file cannot be written at home.
        """
        answer = self._ask("changes", task=task)
        trial.running.cell, trial.running.cells = map(int, answer["cells"])
        if trial.have is None:
            trial.have = _stamps(answer["known"])
        found, is_whole = _stamps(answer["files"]), True
        for name, stamp in found.items():
            if trial.have.get(name) != stamp:
                if self._fetch(task, trial, name, stamp):
                    trial.have[name] = stamp
                else:
                    is_whole = False
        # Only now: a new checkpoint is at home before the older one goes.
        for name in [it for it in trial.have if it not in found and is_in_folder(it)]:
            with suppress(FileNotFoundError):
                _place(trial.spec, name).unlink()
            del trial.have[name]
        return is_whole

    def _fetch(self, task: str, trial: _TrialThere, name: str, stamp: Stamp) -> bool:
        """Bring one file home, beside its place and then renamed; False where it changed."""
        place = _place(trial.spec, name)
        beside = place.with_name(f".{place.name}.{os.getpid()}.part")
        place.parent.mkdir(parents=True, exist_ok=True)
        insist = self._patience.insist if trial.is_over else _call
        offset = 0
        try:
            with open(beside, "wb", buffering=0) as file:
                while offset < stamp[0] or not offset:
                    part = self._ask("read", task=task, name=name, offset=offset)
                    data = bytes(part["data"])
                    if tuple(map(int, part["stamp"])) != stamp:
                        return False
                    insist(partial(_write_at, file, offset, data))
                    offset += len(data)
                    if not data:
                        break
            insist(partial(os.replace, beside, place))
            return True
        finally:
            with suppress(OSError):
                beside.unlink()


class _TrialThere:
    """A trial that runs on a worker.

    Attributes:
        have: the files that home has as the worker has them; None before that is known.
        is_over: whether it has ended there, so that home's disk is worth waiting for.
        wake: set when there is something to do for it.
    """

    def __init__(self, spec: TrialSpec, running: RunningTrial) -> None:
        self.spec = spec
        self.running = running
        self.have: dict[str, Stamp] | None = None
        self.is_over = False
        self.wake = threading.Event()


def lost_outcome(host: str) -> TrialOutcome:
    """The outcome of a trial whose worker was lost."""
    place = f" on {host}" if host else ""
    return TrialOutcome(
        state=TrialState.STOPPED,
        reason=Reason.WORKER_LOST,
        message=f"the worker{place} that ran the trial is gone",
        host=host,
    )


def _call(call: Callable[[], object]) -> None:
    call()


def _write_at(file: FileIO, offset: int, data: bytes) -> None:
    """Write the next part of a file; it may be repeated."""
    file.seek(offset)
    file.truncate()
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def _stamps(files: Mapping[str, Sequence[int]]) -> dict[str, Stamp]:
    return {str(name): (int(size), int(time_ns)) for name, (size, time_ns) in files.items()}


def _place(spec: TrialSpec, name: str) -> Path:
    """Where a file that a worker names belongs at home.

    Raises:
        LostError: it is no file of the trial; such a worker is not used any more.
    """
    try:
        return path_of(spec, name)
    except ValueError as error:
        raise LostError(str(error)) from error
