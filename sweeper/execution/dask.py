"""Trials on the workers of a Dask cluster, which may come late and may be lost: one task for each.

How trials run there is `dask_worker`'s business, how a cluster is reached `dask_cluster`'s.
"""

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

from ..errors import BrokenError, SettingsError, first_line
from ..kernels import check_kernel
from ..notebook_api.messages import Point, PointSource
from ..settings.machines import Cluster
from ..study_folder.patience import Patience, patience_with_disk
from ..study_folder.snapshots import keep_environment
from ..trials import Reason, RunningTrial, TrialOutcome, TrialSpec, TrialState, display_path
from .capacity import read_jobs
from .dask_cluster import DaskCluster, DaskWorker, LostError
from .dask_files import (
    NOTEBOOK,
    PART_BYTES,
    Stamp,
    differences,
    files_below,
    files_of,
    imported_modules,
    kernel_python,
    own_version,
    path_of,
    travelling_files,
)
from .executor import TimeLeft, TrialSource
from .verdict import failed
from .worker import keep_earlier_attempt
from .workload import Workload

_log = logging.getLogger(__name__)

#: How often the scheduler is asked for its workers.
_LOOK_S = 1.0
#: How long the first worker waits for others that are there and have not answered yet.
_SETTLE_S = 10.0
#: The shortest time that a scheduler may stay away before the sweep ends.
_SCHEDULER_AWAY_S = 30.0
#: How often a cluster is asked for its workers again: jobs end, and Dask notices after 15 s.
_SCALE_AGAIN_S = 30.0
#: How long the workers have to end their processes when the trials have ended.
_END_S = 30.0
#: How often a task that is no trial is looked after.
_TASK_LOOK_S = 0.2
#: How long the outcome of a trial that has ended may be on its way.
_RESULT_S = 30.0
_CARRY_OUT = f"{__package__}.dask_worker.carry_out"
_OUTCOME = TypeAdapter(TrialOutcome)


class RefusedError(Exception):
    """A worker cannot run the trials of this sweep."""


class DaskExecutor:
    """Runs trials on the workers of a Dask cluster. Made by `open`, ended by `run` or `close`.

    Args:
        most: how many trials run at once at most; None for as many as the workers have threads.
    """

    def __init__(
        self, workload: Workload, cluster: DaskCluster, *, settings: Cluster, most: int | None
    ) -> None:
        self._workload = workload
        self._cluster = cluster
        self._settings = settings
        self._most = most
        self._patience = patience_with_disk(f"the outputs in {display_path(workload.paths.root)}")
        self._modules = imported_modules(workload)
        self._python = kernel_python(workload.kernel_name, self._modules)
        self._key = f"notebook-hpo-{token_hex(4)}"
        #: Guards what follows; notified whenever a worker or a slot changes.
        self._change = threading.Condition(threading.RLock())
        self._members: dict[DaskWorker, Member] = {}
        self._told: set[str] = set()
        self._source: TrialSource | None = None
        self._slots: list[threading.Thread] = []
        self._losses = 0
        self._is_over = False
        self._error: BaseException | None = None
        self._findings: list[str] = []
        self._travelling: Sequence[Path] | None = None
        cluster.subscribe(self._key, self._take_event)

    @classmethod
    def open(cls, workload: Workload, settings: Cluster, jobs: int | str | None) -> DaskExecutor:
        """Connect to a cluster, or start one, and wait for a first worker that can run trials.

        Args:
            jobs: trials at once at most; None or `"auto"` for as many as the workers have threads.

        Raises:
            KernelError: this machine lacks the notebook's kernel, which workers are compared with.
            SettingsError: there is no such cluster, or none of its workers can run trials.
        """
        check_kernel(workload.kernel_name, asked_by=workload.notebook.display_name)
        most = None
        if jobs not in (None, "auto"):
            most = read_jobs(jobs, workload.settings.resources.threads).count
        executor = cls(workload, DaskCluster.open(settings), settings=settings, most=most)
        try:
            executor._scale()
            executor._wait_for_worker()
        except BaseException:
            executor.close()
            raise
        return executor

    @property
    def jobs(self) -> int:
        """How many trials run at once; with late workers it grows.

        The order of trials, where it is fixed, goes by what is asked for.
        """
        offered = sum(member.slots for member in self._usable())
        if self._most is not None and self._workload.settings.study.order == "fixed":
            return self._most
        return max(1, offered if self._most is None else min(self._most, offered or self._most))

    @property
    def description(self) -> str:
        """Where the trials run."""
        workers = len(self._usable())
        return f"{workers} worker{'s' * (workers != 1)} of {self._cluster.place}"

    def close(self) -> None:
        """End what was started on the workers, and the cluster that this sweep has started."""
        with self._change:
            members = list(self._members.values())
        left_s = None if self._source is None else self._source.left_s()
        self._end(members, _END_S if left_s is None else min(_END_S, left_s / 3))
        self._cluster.close()

    def run(self, source: TrialSource) -> Sequence[str]:
        """Keep the slots of all workers busy until there are no more trials.

        Raises:
            BrokenError: the scheduler or all workers were lost, and have not come back.
        """
        self._patience.begin(source.patience_s)
        with self._change:
            self._source = source
            self._change.notify_all()
        try:
            self._watch(source)
        except BaseException as error:
            is_lost = isinstance(error, BrokenError)
            source.stop(str(error) if is_lost else "an interruption")
            for member in self._usable() if is_lost else ():
                member.lose()
            raise
        finally:
            for slot in self._slots:
                slot.join()
            self.close()
        if self._error is not None:
            raise self._error
        return self._findings

    # --- workers ----------------------------------------------------------------------------------

    def _usable(self) -> list[Member]:
        """The workers that can run trials, or will when the sweep begins."""
        with self._change:
            return [it for it in self._members.values() if it.is_accepted and not it.is_lost]

    def _refusals(self) -> list[str]:
        with self._change:
            return [member.refusal for member in self._members.values() if member.refusal]

    def _wait_for_worker(self) -> None:
        """Wait until a worker can run trials, and a moment for others that are there.

        Raises:
            SettingsError: none can, or none has come in time.
        """
        began_s = time.monotonic()
        while True:
            try:
                present = self._look()
            except LostError as error:
                raise SettingsError(f"{self._cluster.place}: {error}") from error
            waited_s, refusals = time.monotonic() - began_s, self._refusals()
            is_coming = len(self._usable()) + len(refusals) < present
            if self._usable() and (not is_coming or waited_s > _SETTLE_S):
                return
            if self._are_all_refused(present) or waited_s > self._settings.wait:
                raise SettingsError(self._refusal() if refusals else self._nobody())
            self._pause()

    def _pause(self) -> None:
        with self._change:
            self._change.wait(_LOOK_S)

    def _are_all_refused(self, present: int) -> bool:
        """Whether all workers that there are were refused, and no others are to be expected."""
        return 0 < present <= len(self._refusals()) and self._settings.class_ is None

    def _refusal(self) -> str:
        return (
            f"{self._cluster.place}: no worker can run these trials: {self._refusals()[0]}; give "
            "the workers the versions, the kernel and the data of this machine"
        )

    def _nobody(self) -> str:
        how = "" if self._settings.class_ else f" with `dask worker {self._cluster.place}`"
        return (
            f"{self._cluster.place}: no worker has come within {self._settings.wait:g} s "
            f"(cluster: wait); start one{how}"
        )

    def _look(self) -> int:
        """Begin with workers that have come, and end with those that are gone.

        Returns:
            how many workers there are.

        Raises:
            LostError: the scheduler does not answer.
        """
        present = self._cluster.workers()
        with self._change:
            for worker, member in list(self._members.items()):
                if worker not in present:
                    member.lose()
                is_gone = worker not in present or not member.refusal
                if member.is_lost and is_gone and not member.used:
                    del self._members[worker]
            for worker in () if self._is_over else present - self._members.keys():
                member = self._members[worker] = Member(
                    self._cluster,
                    worker,
                    key=self._key,
                    patience=self._patience,
                    findings=self._findings,
                )
                threading.Thread(
                    target=self._welcome, args=[member], name="cluster worker", daemon=True
                ).start()
        return len(present)

    def _welcome(self, member: Member) -> None:
        """Accept a worker that has come and make it ready for trials, or refuse it."""
        try:
            member.begin(self._workload, self._modules, self._python)
            with self._change:
                member.is_accepted = True
                self._change.notify_all()
                while self._source is None and not member.is_lost:
                    self._change.wait(_LOOK_S)
            if self._source is not None:
                member.open(self._workload, self._files, self._source)
                member.is_ready = True
        except RefusedError as error:
            self._refuse(member, str(error))
        except LostError as error:  # it is looked at again while it is there
            _log.info("%s: %s", member.worker.address, error)
            member.lose()
        with self._change:
            self._change.notify_all()

    def _refuse(self, member: Member, why: str) -> None:
        """Keep a worker from being used; a line says it of the first with the same reason."""
        place = f"worker {member.worker.address}" + (f" ({member.host})" if member.host else "")
        with self._change:
            member.refusal = f"{place}: {why}"
            member.lose()
            if why not in self._told:
                _log.warning("%s; it is not used", member.refusal)
            self._told.add(why)

    def _files(self) -> Sequence[Path]:
        """The files beside the notebook that travel."""
        with self._change:
            if self._travelling is None:
                self._travelling = travelling_files(self._workload)
        return self._travelling

    def _take_event(self, event: Mapping[str, Any]) -> None:
        """Take what a worker has logged: a point of a trial, or how far it is with its data."""
        if "line" in event:
            _log.warning("worker %s: %s", event["host"], event["line"])
        for member in self._usable():
            member.publish(event)

    def _end(self, members: Sequence[Member], limit_s: float) -> None:
        """End the processes on workers, as far as they can be reached in time."""
        addresses = [member.worker.address for member in members if not member.is_lost]
        try:
            if addresses:
                self._cluster.call(addresses, "plugin-remove", name=self._key, timeout_s=limit_s)
        except LostError as error:  # the workers end by themselves, as after the sweep's death
            _log.info("%s: %s", self._cluster.place, error)
        for member in members:
            member.lose()

    # --- the sweep --------------------------------------------------------------------------------

    def _watch(self, source: TrialSource) -> None:
        """Use workers as they come, and notice those that go, until all slots have ended.

        Raises:
            BrokenError: the scheduler or all workers stay away.
        """
        answered_s = used_s = scaled_s = time.monotonic()
        is_away, present = False, 0
        while True:
            now_s = time.monotonic()
            try:
                present = self._look()
                answered_s, is_away = now_s, False
            except LostError as error:
                limit_s = max(_SCHEDULER_AWAY_S, source.patience_s())  # as long as for a storage
                why = f"{self._cluster.place}: the Dask scheduler does not answer: {error}"
                if not is_away:
                    _log.warning("%s; it is tried again for %g s", why, limit_s)
                is_away = True
                if now_s - answered_s > limit_s:
                    raise BrokenError(
                        f"{why}; start it again, and the same command goes on"
                    ) from error
            self._start_slots(source)
            with self._change:
                is_busy = any(member.used for member in self._members.values())
            if not is_busy and (self._is_over or source.is_closed()):
                return
            if self._is_over:
                self._retire_idle_workers()
            elif now_s - scaled_s > _SCALE_AGAIN_S:
                scaled_s = now_s
                self._scale()
            if self._usable() or is_away:
                used_s = now_s
            elif self._are_all_refused(present):
                raise BrokenError(self._refusal())
            elif now_s - used_s > self._settings.wait:
                raise BrokenError(
                    f"{self._cluster.place}: all workers are lost, and none has come for "
                    f"{self._settings.wait:g} s (cluster: wait); the same command goes on"
                )
            self._pause()

    def _scale(self) -> None:
        """Ask the cluster for as many workers as the trials need."""
        if self._settings.class_ is not None:
            trials = self._workload.settings.study.trials
            self._cluster.scale(min(self._settings.max, trials, self._most or trials))

    def _retire_idle_workers(self) -> None:
        """Give back the workers of a class on which no trial runs while others finish theirs."""
        with self._change:
            idle = [member for member in self._usable() if not member.used]
        if self._settings.class_ is not None and idle:
            self._end(idle, _END_S)
            for member in idle:
                self._cluster.retire(member.worker)

    # --- slots ------------------------------------------------------------------------------------

    def _start_slots(self, source: TrialSource) -> None:
        """Start a thread for each slot that the workers offer and none serves."""
        with self._change:
            used = sum(member.used for member in self._members.values())
            while not self._is_over and not source.is_closed() and used != self._most:
                free = [it for it in self._usable() if it.is_ready and it.used < it.slots]
                if not free:
                    return
                # The worker with the fewest trials, so that they spread over the machines.
                member = min(free, key=lambda member: member.used / member.slots)
                member.used += 1
                used += 1
                slot = threading.Thread(
                    target=self._serve, args=[source, member], name="cluster slot", daemon=True
                )
                self._slots = [it for it in self._slots if it.is_alive()] + [slot]
                slot.start()

    def _serve(self, source: TrialSource, member: Member) -> None:
        """Run trials in one slot of a worker, as long as it is there."""
        try:
            while not member.is_lost:
                losses = self._losses
                if (trial := source.next_trial()) is None:
                    self._is_over = losses == self._losses
                    return
                outcome = member.run_trial(*trial, pace_s=max(_LOOK_S, len(self._slots) / 50))
                source.finish_trial(trial[0], outcome)
                if outcome.reason is Reason.WORKER_LOST:  # it is run again
                    self._losses += 1
                    self._is_over = False
        except BaseException as error:  # noqa: BLE001  `run` raises it
            self._error = self._error or error
            source.stop("an error of a slot")
        finally:
            with self._change:
                member.used -= 1
                self._change.notify_all()


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
        self._do("open", self._times())

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
            return TrialOutcome(
                state=TrialState.STOPPED,
                reason=Reason.WORKER_LOST,
                message=f"the worker on {self.host} that ran the trial is gone",
                host=self.host,
            )
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
            meanwhile() if meanwhile is not None else time.sleep(_TASK_LOOK_S)
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
