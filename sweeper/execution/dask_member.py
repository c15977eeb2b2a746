"""One worker of a Dask cluster as a sweep uses it: what it has, its trials, and their files."""

from __future__ import annotations

import json
import logging
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
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
from .dask_cluster import DaskCluster, DaskWorker, LostError
from .dask_files import NOTEBOOK, PART_BYTES, Stamp, files_below, files_of, path_of
from .executor import TimeLeft
from .verdict import failed
from .worker import keep_earlier_attempt
from .workload import Workload

_log = logging.getLogger(__name__)

#: How often a task that is no trial is looked after.
_LOOK_S = 0.2
#: How long the outcome of a trial that has ended may be on its way.
_RESULT_S = 30.0
_CARRY_OUT = f"{__package__}.dask_worker.carry_out"
_OUTCOME = TypeAdapter(TrialOutcome)


class RefusedError(Exception):
    """A worker cannot run the trials of this sweep."""


class Member:
    """A worker of the cluster. Safe to use from several threads.

    Args:
        key: of the sweep, as `TrialsOnWorker` has it.
        patience: with home's disk.
        findings: gets what users should know of how trials ran, each sentence once.

    Attributes:
        host: the name of the worker's machine; empty before `begin`.
        slots: how many trials run there at once.
        used: how many slots of the sweep use it now; `DaskExecutor` counts them.
        is_accepted: whether it can run the trials of this sweep.
        is_ready: whether trials may be sent.
        is_lost: whether no trial can run there any more.
        refusal: why it is not used; empty where it may be.
    """

    def __init__(
        self,
        cluster: DaskCluster,
        worker: DaskWorker,
        *,
        key: str,
        patience: Patience,
        findings: list[str],
    ) -> None:
        self.worker = worker
        self.host = self.refusal = ""
        self.slots = worker.threads
        self.used = 0
        self.is_accepted = self.is_ready = self.is_lost = False
        self._cluster = cluster
        self._key = key
        self._patience = patience
        self._findings = findings
        self._is_shared = False
        self._session: Any = None
        self._trials: dict[str, _TrialThere] = {}
        self._sent_inputs: set[Path] = set()

    def lose(self) -> None:
        """Give the worker up, with the trials that run there; it ends everything by itself."""
        self.is_lost, self._session = True, None
        for trial in list(self._trials.values()):
            trial.wake.set()

    def begin(
        self, workload: Workload, modules: Sequence[str], python: Mapping[str, Any] | None
    ) -> None:
        """Ask the worker what it has.

        Args:
            modules: that the notebook imports.
            python: of the kernel at home, as `kernel_python` describes it.

        Raises:
            RefusedError: it cannot run trials.
            LostError: it is gone.
        """
        asked = {"workload": pickle.dumps(workload), "modules": list(modules)}
        there = self._do("begin", asked)
        self.host = str(there["host"])
        if found := differences(python, there["python"]):
            raise RefusedError(", ".join(found))

    def open(
        self, workload: Workload, files: Callable[[], Iterable[Path]], time_left: TimeLeft
    ) -> None:
        """Make the worker ready for trials, which takes as long as their data does.

        Args:
            files: called where it lacks home's folders; returns those beside the notebook.

        Raises:
            RefusedError: it runs no trials after all.
            LostError: it is gone.
        """
        self._paths, self._time_left = workload.paths, time_left
        with suppress(OSError):  # without a study there is nothing to share
            owner = workload.paths.owner
            self._is_shared = bool(self._ask("share", owner=str(owner), text=owner.read_text()))
        if not self._is_shared:
            self._send(files())
        self._do("open", {"workload": pickle.dumps(workload), **self._times()})

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
            if message := keep_earlier_attempt(spec, self._patience):
                return failed(Reason.FILE, message)
            self._send_trial(trial)
            running.on_stop(trial.wake.set)
            follow = partial(self._follow, task, trial, pace_s)
            asked = {"task": task, "spec": pickle.dumps(spec), "trials_left": running.trials_left}
            answer = self._do("run", asked, name=task, meanwhile=follow)
            return self._ended(task, trial, answer)
        except RefusedError as error:
            return failed(Reason.INTERNAL, f"on {self.host}: {error}")
        except (LostError, ValueError) as error:
            _log.info("%s: %s", self.worker.address, error)
            self.lose()
            return lost_outcome(self.host)
        except OSError as error:  # of home
            message = f"{spec.notebook}: {error.strerror or error}"
            return TrialOutcome(state=TrialState.STOPPED, reason=Reason.FILE, message=message)
        finally:
            running.on_stop(None)
            del self._trials[task]
            self._forget(task)

    # --- calls and tasks --------------------------------------------------------------------------

    def _ask(self, act: str, **arguments: Any) -> Any:
        """Call the plugin there (`TrialsOnWorker.answer`).

        Raises:
            LostError: it does not answer, or has failed.
        """
        address = self.worker.address
        answers = self._cluster.call([address], self._key, act=act, **arguments)
        if address not in answers:
            raise LostError("it does not answer")
        answer = answers[address]
        if isinstance(answer, Mapping) and answer.get("status") == "error":
            raise LostError(str(answer.get("exception_text", act)))
        return answer

    def _do(
        self,
        what: str,
        arguments: Mapping[str, Any],
        *,
        name: str = "",
        meanwhile: Callable[[], object] | None = None,
    ) -> Mapping[str, Any]:
        """Have a task carried out there (`dask_worker.carry_out`); its answer.

        Args:
            name: of the task; empty for any.
            meanwhile: called again and again until the task has ended.

        Raises:
            RefusedError: the worker has answered that it cannot.
            LostError: it does not answer any more.
        """
        asked = {"version": own_version(), "key": self._key, "task": what, "arguments": arguments}
        name = name or f"{self._key}-{what}-{token_hex(4)}"
        future = self._cluster.submit(self.worker, _CARRY_OUT, pickle.dumps(asked), task=name)
        if what == "begin":
            self._session = future  # which Dask keeps there as long as it is held here
        if (trial := self._trials.get(name)) is not None:
            future.add_done_callback(lambda _: trial.wake.set())
        while not future.done():
            if self.is_lost:
                future.cancel()
                raise LostError("it is gone")
            meanwhile() if meanwhile is not None else time.sleep(_LOOK_S)
        if future.status == "error":  # it could not even begin
            needed = f"notebook-hpo {own_version()} is needed there"
            raise RefusedError(f"{needed}: {first_line(future.exception(timeout=_RESULT_S))}")
        try:  # a future may have been cancelled, with the connection to the scheduler
            answer = json.loads(bytes(future.result(timeout=_RESULT_S)))
        except Exception as error:
            raise LostError(f"no answer has arrived: {first_line(error)}") from error
        if not isinstance(answer, Mapping):
            raise LostError("it does not belong to the sweep any more")
        if "error" in answer:
            raise RefusedError(str(answer["error"]))
        return answer

    def _forget(self, task: str) -> None:
        """Have the copies of a trial removed: those of a later attempt are other ones."""
        if not self.is_lost:
            try:
                self._ask("forget", task=task)
            except LostError:
                self.lose()

    def _times(self) -> dict[str, float | None]:
        return {"patience_s": self._time_left.patience_s(), "left_s": self._time_left.left_s()}

    def _send(self, paths: Iterable[Path]) -> None:
        for path in paths:
            with suppress(OSError), open(path, "rb") as file:  # it may be gone meanwhile
                changed_ns, is_whole = os.fstat(file.fileno()).st_mtime_ns, False
                while not is_whole:
                    offset, data = file.tell(), file.read(PART_BYTES)
                    part = {"offset": offset, "data": data, "changed_ns": changed_ns}
                    self._ask("write", path=str(path), **part)
                    is_whole = len(data) < PART_BYTES

    # --- a trial that runs there ------------------------------------------------------------------

    def _send_trial(self, trial: _TrialThere) -> None:
        """Have the files of a trial there that home has."""
        spec = trial.spec
        if spec.continues is not None:
            self._send([spec.continues])
        if self._is_shared:
            return
        trial.have = files_of(spec, with_folders=True)
        trial.have.pop(NOTEBOOK, None)
        self._send(path_of(spec, name) for name in trial.have)
        for path in {it.path for it in spec.inputs.values()} - self._sent_inputs:
            self._send(files_below(path) if path.is_dir() else [path])
            self._sent_inputs.add(path)  # they never change

    def _follow(self, task: str, trial: _TrialThere, pace_s: float) -> None:
        """Bring home what is new of a trial, and pass a stop on."""
        with suppress(LostError, OSError):  # it is tried again until the worker is gone
            if trial.running.stop_reason is not None and not trial.is_told:
                stop = {"reason": str(trial.running.stop_reason), "message": trial.running.message}
                trial.is_told = bool(self._ask("stop", task=task, **stop, **self._times()))
            self._bring(task, trial)
        trial.wake.wait(pace_s)
        trial.wake.clear()

    def _ended(self, task: str, trial: _TrialThere, answer: Mapping[str, Any]) -> TrialOutcome:
        """The outcome of a trial, when all its files are at home.

        Raises:
            LostError: it did not come to its end, or has no outcome that can be read.
            OSError: a file cannot be written at home.
        """
        try:
            outcome = replace(_OUTCOME.validate_python(answer["outcome"]), host=self.host)
            environment = None if answer["environment"] is None else dict(answer["environment"])
            new = [str(text) for text in answer["findings"] if text not in self._findings]
        except (KeyError, TypeError, ValueError) as error:
            raise LostError(f"an outcome that cannot be read: {first_line(error)}") from error
        if outcome.reason is Reason.INTERRUPTED and trial.running.stop_reason is None:
            raise LostError("the worker ends")
        self._findings += new
        trial.is_over = True
        self._patience.insist(partial(self._bring, task, trial))
        if environment is None:
            return outcome
        # Home names the record by its content.
        return replace(outcome, environment=keep_environment(self._paths, environment))

    def _bring(self, task: str, trial: _TrialThere) -> None:
        """Bring home the files of a trial that are new.

        A file in a folder may be half written: it comes when the last look has found the same.

        Raises:
            LostError: the worker does not answer.
            ValueError: it names a file that is none of the trial's; it is not used any more.
            OSError: a file cannot be written at home.
        """
        answer = self._ask("changes", task=task)
        if not answer:  # it has not begun
            return
        trial.running.cell, trial.running.cells = map(int, answer["cells"])
        files = answer["files"].items()
        found = {str(name): (int(size), int(time_ns)) for name, (size, time_ns) in files}
        for name, stamp in found.items():
            is_whole = trial.is_over or name == NOTEBOOK or trial.seen.get(name) == stamp
            if is_whole and trial.have.get(name) != stamp:
                self._fetch(task, trial, name, stamp)
        trial.seen = found
        # Only now: a new checkpoint is at home before the older one goes.
        for name in [it for it in trial.have if it not in found and it != NOTEBOOK]:
            path_of(trial.spec, name).unlink(missing_ok=True)
            del trial.have[name]

    def _fetch(self, task: str, trial: _TrialThere, name: str, stamp: Stamp) -> None:
        """Bring one file home, beside its place and then renamed, unless it changes meanwhile."""
        place = path_of(trial.spec, name)
        beside = place.with_name(f".{place.name}.{os.getpid()}.part")
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(beside, "wb") as file:
                while file.tell() < stamp[0]:
                    asked = {"name": name, "offset": file.tell(), "stamp": stamp}
                    if not (data := bytes(self._ask("read", task=task, **asked))):
                        return
                    file.write(data)
            os.replace(beside, place)
            trial.have[name] = stamp
        finally:
            beside.unlink(missing_ok=True)


class _TrialThere:
    """A trial that runs on a worker.

    Attributes:
        have: the files that home has as the worker has them.
        seen: the files that the last look has found there.
        is_told: whether the worker knows of a stop.
        is_over: whether it has ended there.
        wake: set when there is something to do for it.
    """

    def __init__(self, spec: TrialSpec, running: RunningTrial) -> None:
        self.spec = spec
        self.running = running
        self.have: dict[str, Stamp] = {}
        self.seen: dict[str, Stamp] = {}
        self.is_told = self.is_over = False
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
