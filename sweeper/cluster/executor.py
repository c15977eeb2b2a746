"""Run trials on the workers of a Dask cluster. Workers may connect late and may be lost.

`on_worker` defines how a worker runs a trial, and `dask_cluster` how the cluster is reached. The
files of a trial are written on its worker, and are copied to the sweep's machine while it runs.
"""

from __future__ import annotations

import json
import logging
import math
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from secrets import token_hex
from typing import Any

from pydantic import TypeAdapter

from ..errors import BrokenError, SettingsError, StoppedError, StudyError, first_line, shortened
from ..execution.earlier_attempt import make_way, path_problem
from ..execution.executor import TrialSource
from ..execution.verdict import failed
from ..execution.workload import Workload
from ..files import beside, files_below
from ..kernels import check_kernel
from ..machine.capacity import read_jobs
from ..notebook_api.messages import Point
from ..notebooks.metadata import read_metadata
from ..settings.machines import Cluster
from ..settings.units import duration
from ..study.endings import has_all_scores
from ..study_folder.patience import Patience, is_of_the_machine
from ..study_folder.snapshots import keep_environment
from ..trials import Reason, RunningTrial, TrialOutcome, TrialSpec, TrialState, display_path
from .dask_cluster import DaskCluster, DaskWorker, LostError
from .files import (
    NOTEBOOK,
    PART_BYTES,
    NotebookFolder,
    Stamp,
    difference,
    files_of,
    is_whole_at_once,
    kernel_python,
    kind_of,
    notebook_folder,
    path_of,
    stamp_of,
)

_log = logging.getLogger(__name__)

#: Seconds between two polls of the scheduler, and of a worker's files.
_LOOK_S = 1.0
#: A sweep begins once a worker can run trials. If other workers have not answered yet, it waits for
#: their answers, up to this many seconds after it has connected to the cluster. If no worker can
#: run trials by then, a warning says that the sweep waits (chosen, not measured).
_SETTLE_S = 10.0
#: The sweep requests the full number of workers again after this many seconds, because the batch
#: jobs of some workers may have ended. Dask notices the end of such a job only after 15 s.
_SCALE_AGAIN_S = 30.0
#: Wait this many seconds for a worker to transfer an answer, or to end its processes (chosen, not
#: measured).
_ANSWER_S = 30.0
#: If a trial was stopped for one of these reasons, its worker has a fault that would stop every
#: trial there.
_OF_THE_WORKER = (Reason.KERNEL_START, Reason.NO_GPU, Reason.FILE, Reason.INTERNAL)
_OUTCOME, _FINDINGS = TypeAdapter(TrialOutcome), TypeAdapter(list[str])
_ENVIRONMENT = TypeAdapter(dict[str, Any] | None)
#: The message of a trial is cut to this many characters (chosen, not measured).
_MESSAGE = 10_000


class RefusedError(Exception):
    """A worker cannot run the trials of this sweep. The message says why."""


class DaskExecutor:
    """Runs trials on the workers of a Dask cluster. Made by `open`, ended by `run` or `close`.

    On a cluster, trials are never frozen (paused so that others can run), because a frozen trial
    would still use its slot, which is a thread of its worker.

    Args:
        workload: Workload of the trials.
        settings: Section `cluster` of the parameters file.
        most: Largest number of trials that run at once. None for as many as the workers have
            threads.
    """

    can_freeze = False

    def __init__(self, workload: Workload, settings: Cluster, *, most: int | None) -> None:
        self._workload = workload
        self._settings = settings
        self._most = most
        outputs = f"the outputs in {display_path(workload.paths.root)}"
        self._patience = Patience(outputs, may_pass=is_of_the_machine)
        self._python = kernel_python(workload.kernel_name)
        #: This condition guards the attributes below. Each change of a worker or a slot notifies
        #: it.
        self._change = threading.Condition(threading.RLock())
        self._members: dict[DaskWorker, Member] = {}
        self._source: TrialSource | None = None
        self._folder = NotebookFolder()
        self._slots: list[Future[None]] = []
        self._losses = 0
        self._is_over = False
        self._findings: list[str] = []
        self._running: dict[str, RunningTrial] = {}
        self._cluster = DaskCluster(settings, on_event=self._take_event)

    @classmethod
    def open(
        cls,
        workload: Workload,
        settings: Cluster,
        jobs: int | str | None,
        *,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> DaskExecutor:
        """Connect to a cluster, or start one, and wait for a first worker that can run trials.

        Args:
            workload: Workload of the trials.
            settings: Section `cluster` of the parameters file.
            jobs: Largest number of trials that run at once. None or `"auto"` for as many as the
                workers have threads.
            is_stopped: Returns whether the sweep was stopped, which ends the wait for a worker.

        Raises:
            KernelError: This machine lacks the notebook's kernel, with which the kernels of the
                workers are compared.
            SettingsError: The cluster cannot be reached, or none of its workers can run trials.
            StoppedError: The sweep was stopped.
        """
        check_kernel(workload.kernel_name, asked_by=workload.notebook.display_name)
        most = None
        if jobs not in (None, "auto"):
            most, _ = read_jobs(jobs, workload.settings.resources.threads)
        executor = cls(workload, settings, most=most)
        began_s = time.monotonic()
        has_told = False

        def can_begin() -> bool:
            nonlocal has_told
            if is_stopped():
                raise StoppedError("the sweep was stopped while it waited for workers")
            has_waited = time.monotonic() - began_s > _SETTLE_S
            if executor._usable():
                return executor._all_have_answered or has_waited
            if has_waited and not has_told:
                has_told = True
                limit = duration(settings.wait)
                _log.warning(
                    "%s: waiting for a first worker that can run trials, up to %s",
                    settings.place,
                    limit,
                )
            return False

        try:
            executor._watch(can_begin)
        except BaseException as error:
            executor.close()
            if isinstance(error, BrokenError):
                raise SettingsError(str(error)) from error
            raise
        return executor

    @property
    def jobs(self) -> int:
        """Number of trials that can run at once. It changes when workers connect or are lost.

        With `study.order: fixed`, it is always the number that the user has stated, if any, because
        the order of trials depends on it.
        """
        offered = sum(member.worker.threads for member in self._usable())
        if self._most is None:
            return max(1, offered)
        if not offered or self._workload.settings.study.order == "fixed":
            return self._most
        return min(self._most, offered)

    @property
    def description(self) -> str:
        """Text for users: number of workers, their cluster, and what `pruner: auto` does there."""
        workers = len(self._usable())
        prunes = self._workload.settings.study.pruner.name == "auto"
        ends = ", where pruner auto prunes and does not freeze" if prunes else ""
        return f"{workers} worker{'s' * (workers != 1)} of {self._cluster.place}{ends}"

    def close(self) -> None:
        """End the trials on the workers, and the cluster if this sweep has started it."""
        wait_s = _ANSWER_S
        left_s = None if self._source is None else self._source.left_s()
        if left_s is not None:
            wait_s = min(wait_s, left_s / 3)
        end_by_s = time.monotonic() + wait_s
        for ended in [member.end() for member in self._usable()]:
            ended.wait(max(0.0, end_by_s - time.monotonic()))
        with self._change:
            for member in self._members.values():
                member.lose()
        self._cluster.close()

    def run(self, source: TrialSource) -> Sequence[str]:
        """Keep the slots of all workers busy until there are no more trials.

        Returns:
            Sentences for users about how trials ran.

        Raises:
            BrokenError: Dask's scheduler was lost, or no worker has been available for too long.
        """
        self._patience.limit_s, self._patience.check = source.patience_s, source.check_held
        self._folder = notebook_folder(self._workload)
        with self._change:
            self._source = source
            self._change.notify_all()
        # Each slot needs a thread of its own, so the pool must not limit the number of slots.
        with ThreadPoolExecutor(max_workers=10_000, thread_name_prefix="cluster slot") as slots:
            try:
                self._watch(lambda: self._serve_slots(slots, source))
            except BaseException as error:
                is_lost = isinstance(error, BrokenError)
                source.stop(str(error) if is_lost else "an interruption")
                for member in self._usable() if is_lost else ():
                    member.lose()
                raise
            finally:
                wait(self._slots)
                self.close()
        for slot in self._slots:
            slot.result()  # This call raises the error that ended the slot, if any.
        return self._findings

    # --- workers ----------------------------------------------------------------------------------

    def _usable(self) -> list[Member]:
        """Return the workers that were accepted and are not lost.

        Some of them may still have to be prepared for trials, with `Member.open`.
        """
        with self._change:
            return [
                member
                for member in self._members.values()
                if member.is_accepted and not member.is_lost
            ]

    @property
    def _all_have_answered(self) -> bool:
        """Whether each worker has been accepted or refused."""
        with self._change:
            return all(
                member.is_accepted or member.refusal is not None
                for member in self._members.values()
            )

    @property
    def _is_ending(self) -> bool:
        """Whether no trial is left to begin, or the sweep was stopped.

        If a running trial loses its worker, that trial is left to begin again.
        """
        return self._is_over or (self._source is not None and self._source.is_closed())

    def _watch(self, is_done: Callable[[], bool]) -> None:
        """Poll the scheduler for new and lost workers, until a condition is true.

        Args:
            is_done: Condition. Called after each poll.

        Raises:
            BrokenError: No worker was usable for as long as `_wait_s` states, or the scheduler was
                lost.
        """
        used_s, scaled_s = time.monotonic(), -math.inf
        while True:
            is_away = not self._look()
            if is_done():
                return
            now_s = time.monotonic()
            if self._usable() and not is_away:
                used_s = now_s
            if now_s - used_s >= self._wait_s():
                why = f"{self._cluster.place}: {self._lack()}"
                raise BrokenError(f"{why}; then give the same command again")
            is_due = now_s - scaled_s > _SCALE_AGAIN_S and not self._is_ending
            if self._settings.class_ is not None and is_due:
                scaled_s = now_s
                self._scale()
            with self._change:
                self._change.wait(_LOOK_S)

    def _scale(self) -> None:
        """Ask the cluster for as many workers as the sweep can use.

        This is the smallest of `max` in the section `cluster`, the number of trials of the study,
        and, if the user has limited it, the number of trials that may run at once.
        """
        workers = min(self._settings.max, self._workload.settings.study.trials)
        if self._most is not None:
            workers = min(workers, self._most)
        self._cluster.scale(workers)

    def _wait_s(self) -> float:
        """Return after how many seconds without a usable worker the sweep gives up.

        This is `wait` in the section `cluster`, but at most `_ANSWER_S` once the sweep was stopped.
        It is 0 if all workers were refused and the sweep cannot start others. Seconds in which the
        scheduler does not answer count as seconds without a usable worker.
        """
        with self._change:
            are_all_refused = len(self._refusals) == len(self._members) > 0
        if self._settings.class_ is None and are_all_refused:
            return 0.0  # The sweep cannot start other workers, so do not wait for any.
        if self._source is not None and self._source.is_closed():
            return min(self._settings.wait, _ANSWER_S)
        return self._settings.wait

    @property
    def _refusals(self) -> list[str]:
        """Reasons why workers were refused."""
        with self._change:
            refusals = [member.refusal for member in self._members.values()]
        return [refusal for refusal in refusals if refusal is not None]

    def _lack(self) -> str:
        """Return why there is no usable worker, and what the user can do."""
        refusals = self._refusals
        if refusals:
            return (
                f"no worker can run these trials: {max(refusals)}; provide a worker with "
                "the versions, the kernel and the data of this machine, room on its disk, enough "
                "memory and open files, and GPUs that work"
            )
        how = "" if self._settings.class_ else f" with `dask worker {self._cluster.place}`"
        limit = f"{round(self._settings.wait, 1):g} s (cluster: wait, or --timeout)"
        return f"no worker has connected within {limit}; raise this limit, or start one{how}"

    def _look(self) -> bool:
        """Poll the scheduler once. Add new workers, and give up workers that are gone.

        Returns:
            Whether the scheduler has answered.
        """
        try:
            present = self._cluster.workers()
        except LostError as error:  # Dask reconnects. If it cannot, a later poll raises.
            _log.info("%s: %s", self._cluster.place, error)
            return False
        with self._change:
            for worker, member in list(self._members.items()):
                if worker not in present:
                    member.lose()
                is_gone = worker not in present or member.refusal is None
                if member.is_lost and is_gone and not member.used:
                    del self._members[worker]
            if not self._is_over:
                for worker in present - self._members.keys():
                    self._add(worker)
        return True

    def _add(self, worker: DaskWorker) -> None:
        member = self._members[worker] = Member(
            cluster=self._cluster,
            worker=worker,
            workload=self._workload,
            patience=self._patience,
            findings=self._findings,
            running=self._running,
        )
        threading.Thread(
            target=self._welcome, args=[member], name="cluster worker", daemon=True
        ).start()

    def _welcome(self, member: Member) -> None:
        """Accept a new worker and prepare it for trials, or refuse it."""
        try:
            member.begin(self._python)
            with self._change:
                member.is_accepted = True
                self._change.notify_all()
                while self._source is None and not member.is_lost:
                    self._change.wait(_LOOK_S)
            if self._source is not None:
                member.open(self._folder)
                member.is_ready = True
        except LostError as error:  # The next poll tries again if the worker is still there.
            _log.info("the worker %s cannot be used yet: %s", member.worker.address, error)
            member.lose()
        except Exception as error:  # noqa: BLE001  a malformed answer may raise anything
            member.refuse(first_line(error))
        with self._change:
            self._change.notify_all()

    def _take_event(self, event: Mapping[str, Any]) -> None:
        """Handle an event of a worker: values that a trial has reported, or a line for the user."""
        try:
            if "line" in event:
                _log.warning("worker %s: %s", event["host"], event["line"])
            elif event["task"] in self._running:
                point = Point.decode(event["point"])
                self._running[event["task"]].points.publish(point)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            _log.info("an event of a worker cannot be read: %s", first_line(error))

    # --- trials of the sweep ----------------------------------------------------------------------

    def _serve_slots(self, pool: ThreadPoolExecutor, source: TrialSource) -> bool:
        """Start a thread for each free slot of the workers. Return whether all trials are done.

        Raises:
            Exception: The error that has ended one of the threads.
        """
        with self._change:
            for slot in list(self._slots):
                if slot.done():
                    self._slots.remove(slot)
                    slot.result()
            used = sum(member.used for member in self._members.values())
            is_over = self._is_ending
            while not is_over and used != self._most:
                free = [
                    member
                    for member in self._usable()
                    if member.is_ready and member.used < member.worker.threads
                ]
                if not free:
                    break
                # Use the worker with the fewest trials, so that trials spread over the machines.
                member = min(free, key=lambda member: member.used / member.worker.threads)
                member.used += 1
                used += 1
                self._slots.append(pool.submit(self._serve, source, member))
            return is_over and not used

    def _serve(self, source: TrialSource, member: Member) -> None:
        """Run trials in one slot of a worker until no trial is left or the worker is lost."""
        try:
            while not member.is_lost:
                losses_before = self._losses
                trial = source.next_trial()
                if trial is None:
                    # A trial that loses its worker during `next_trial` runs again. So the sweep is
                    # over only if no trial has lost its worker meanwhile.
                    with self._change:
                        self._is_over = self._losses == losses_before
                    return
                spec, running = trial
                outcome = member.run_trial(spec, running)
                source.finish_trial(spec, outcome)
                if outcome.reason is Reason.WORKER_LOST:
                    with self._change:
                        self._losses += 1
                        self._is_over = False
        finally:
            with self._change:
                member.used -= 1
                self._change.notify_all()


@dataclass(eq=False, slots=True, kw_only=True)
class Member:
    """A worker of the cluster, as the sweep sees it. Safe to use from several threads.

    Attributes:
        cluster: Cluster of the worker.
        worker: The worker as the scheduler knows it.
        workload: Workload of the trials.
        patience: How long to wait for a full or unavailable disk of the sweep's machine.
        findings: Sentences for users about how trials ran. This object appends sentences.
        running: Trials that run on any worker, by the names of their tasks. This object adds its
            own trials.
        host: Name of the worker's machine. Empty before `begin`.
        used: Number of slots in use. `DaskExecutor` counts them.
        is_accepted: Whether the worker has passed the checks of `begin`.
        is_ready: Whether the worker was prepared by `open`, so that trials can be sent to it.
        is_lost: Whether the worker can run no more trials.
        refusal: Reason why the sweep has refused the worker. None if it has not.
    """

    cluster: DaskCluster
    worker: DaskWorker
    workload: Workload
    patience: Patience
    findings: list[str]
    running: dict[str, RunningTrial]
    host: str = ""
    used: int = 0
    is_accepted: bool = False
    is_ready: bool = False
    is_lost: bool = False
    refusal: str | None = None
    _session: Any = None
    _environment: Any = None
    _sent_inputs: set[Path] = field(default_factory=set)

    def lose(self) -> None:
        """Give up the worker and its trials.

        This drops the future of the call `begin`. Dask then frees the task of this call, and the
        worker ends the trials by itself.
        """
        self.is_lost, self._session = True, None

    def refuse(self, why: str) -> None:
        """Never use the worker again, and log why. Other workers continue."""
        self.refusal = f"worker {self.worker.address}: {why}"
        self.lose()
        _log.warning("%s; the sweep does not use this worker", self.refusal)

    def begin(self, python: Mapping[str, Any] | None) -> None:
        """Check that the worker has the GPUs, the notebook's kernel, and the same package versions.

        Args:
            python: Python version and packages of the kernel on the sweep's machine, as
                `kernel_python` returns them. None if they are not compared.

        Raises:
            RefusedError: The worker cannot run trials.
            LostError: The worker is lost.
        """
        there = self._ask("begin", {"workload": pickle.dumps(self.workload)})
        self.host = str(there["host"])
        found = difference(python, there["python"])
        if found is not None:
            raise RefusedError(found)

    def open(self, folder: NotebookFolder) -> None:
        """Prepare the worker for trials. The longest part is to fetch their data.

        Args:
            folder: What is in the notebook's folder.

        Raises:
            RefusedError: The worker cannot be prepared.
            LostError: The worker is lost.
        """
        self._send(folder.sent)
        opened = self._ask("open", {"folder": pickle.dumps(folder)})
        self._environment = _ENVIRONMENT.validate_python(opened["environment"])

    def end(self) -> threading.Event:
        """Ask the worker to end all trials. Return an event that is set when it has answered."""
        ended = threading.Event()
        try:
            self._submit("end", {}).add_done_callback(lambda _: ended.set())
        except LostError:  # The worker ends its trials by itself, as if the sweep had died.
            ended.set()
        return ended

    def run_trial(self, spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        """Run a trial on the worker: send its files, wait for its end, and fetch its files.

        A worker runs no more trials if its kernels, GPUs or disk have failed, or if its answer
        cannot be read. Other workers run its trials again.
        """
        running.points.note_kernel(None, host=self.host)
        task = f"{spec.run_id}-{spec.attempt}-{token_hex(4)}"
        trial = _TrialThere(task=task, spec=spec, running=running)
        self.running[task] = running
        try:
            in_the_way = make_way(spec, self.patience)
            if in_the_way is not None:
                return in_the_way
            self._send_trial(trial)
            running.control.on_stop(trial.wake.set)
            asked = {"task": task, "spec": pickle.dumps(spec), "trials_left": running.trials_left}
            follow = partial(self._follow, trial)
            answer = self._ask("run", asked, wake=trial.wake, meanwhile=follow)
            outcome = self._ended(trial, answer)
            is_stopped = outcome.state is TrialState.STOPPED
            is_of_worker = is_stopped and outcome.reason in _OF_THE_WORKER
            if not is_of_worker or running.control.stop_reason is not None:
                return outcome
            self.refuse(outcome.message)
        except RefusedError as error:
            if trial.is_sent:
                return failed(Reason.INTERNAL, f"on {self.host}: {error}")
            self.refuse(str(error))  # For example, the worker's disk is full.
        except OSError as error:  # For example, the disk of the sweep's machine is full.
            return _stopped(Reason.FILE, path_problem(error, spec))
        except StudyError as error:  # Another sweep has taken over the study.
            return _stopped(Reason.INTERRUPTED, str(error))
        except LostError as error:
            _log.info("%s: %s", self.worker.address, error)
            self.lose()
        except Exception as error:  # noqa: BLE001  a malformed answer may raise anything
            self.refuse(f"its answer cannot be read: {first_line(error)}")
        finally:
            running.control.on_stop(None)
            del self.running[task]
            try:  # A later attempt sends the trial's files again, so remove them from the worker.
                self._ask("forget", {"task": task})
            except (LostError, RefusedError):
                self.lose()
        message = self.refusal
        if message is None:
            message = f"the worker on {self.host} that ran the trial has ended, or is out of reach"
        return replace(_stopped(Reason.WORKER_LOST, message), host=self.host)

    # --- calls to the worker ----------------------------------------------------------------------

    def _submit(self, act: str, arguments: Mapping[str, Any]) -> Any:
        """Call a method of `TrialsOnWorker`. Return the future of its answer.

        Args:
            act: Name of the method.
            arguments: Arguments of the method, by name.

        Raises:
            LostError: The scheduler does not answer.
        """
        asked = {
            "version": version("notebook-hpo"),
            "key": self.cluster.key,
            "act": act,
            "arguments": arguments,
        }
        task = f"{self.cluster.key}-{act}-{token_hex(8)}"
        return self.cluster.submit(self.worker, pickle.dumps(asked), task=task)

    def _ask(
        self,
        act: str,
        arguments: Mapping[str, Any],
        *,
        wake: threading.Event | None = None,
        meanwhile: Callable[[], object] | None = None,
    ) -> dict[str, Any]:
        """Call a method of `TrialsOnWorker` and return the dict that it has returned.

        In this dict, `data` has the bytes that the worker has sent after the JSON.

        Args:
            act: Name of the method.
            arguments: Arguments of the method, by name.
            wake: Event to set when the answer has arrived.
            meanwhile: Called again and again until the answer has arrived. Default: only wait.

        Raises:
            RefusedError: The worker has answered with an error.
            LostError: The worker no longer answers.
        """
        wake = wake or threading.Event()
        future = self._submit(act, arguments)
        if act == "begin":
            # While this future exists, Dask keeps its task on the worker. When Dask frees the task,
            # the worker ends the trials of this sweep.
            self._session = future
        future.add_done_callback(lambda _: wake.set())
        while not future.done():
            if self.is_lost:
                raise LostError("the worker is lost")
            meanwhile() if meanwhile is not None else wake.wait(_LOOK_S)
        # `carry_out` raises no exception. So the worker could not import it: this package is
        # missing there, or has another version.
        if future.status == "error":
            needed = f"notebook-hpo {version('notebook-hpo')} is needed there"
            raise RefusedError(f"{needed}: {first_line(future.exception(timeout=_ANSWER_S))}")
        try:  # A lost connection to the scheduler cancels the future.
            line, _, data = bytes(future.result(timeout=_ANSWER_S)).partition(b"\n")
            answer = json.loads(line)
        except Exception as error:
            raise LostError(f"no answer has arrived: {first_line(error)}") from error
        if not isinstance(answer, dict):
            raise LostError("the worker no longer belongs to the sweep")
        if "error" in answer:
            raise RefusedError(str(answer["error"]))
        return {**answer, "data": data}

    def _send(self, paths: Iterable[Path]) -> None:
        for path in paths:
            # The file may have been removed meanwhile.
            with suppress(OSError), open(path, "rb") as file:
                size, changed_ns = stamp_of(os.fstat(file.fileno()))
                for offset in range(0, size or 1, PART_BYTES):
                    part = {"offset": offset, "data": file.read(PART_BYTES)}
                    self._ask("write", {"path": str(path), "changed_ns": changed_ns, **part})

    # --- a trial that runs on the worker ----------------------------------------------------------

    def _send_trial(self, trial: _TrialThere) -> None:
        """Send the files that a trial needs from the sweep's machine, such as old checkpoints."""
        spec = trial.spec
        trial.have = files_of(spec)
        trial.have.pop(NOTEBOOK, None)
        self._send(path_of(spec, name) for name in trial.have)
        if spec.continues is not None:
            self._send([spec.continues])
        for input_file in spec.inputs.values():
            path = input_file.path
            if path not in self._sent_inputs:
                self._send(files_below(path) if path.is_dir() else [path])
                self._sent_inputs.add(path)  # These files never change.
        trial.is_sent = True

    def _follow(self, trial: _TrialThere) -> None:
        """Fetch the new files of a trial, then wait until the next poll is due.

        The wait ends early if the trial is stopped or has ended.

        Raises:
            StudyError: Another sweep has taken over the study.
        """
        self.patience.check()
        # Ignore errors, because the next poll tries again. The caller checks whether the worker is
        # lost.
        with suppress(LostError, RefusedError, OSError):
            self._bring(trial)
        trial.wake.wait(max(_LOOK_S, len(self.running) / 50))  # Poll less often if many trials run.
        trial.wake.clear()

    def _ended(self, trial: _TrialThere, answer: Mapping[str, Any]) -> TrialOutcome:
        """Return the outcome of a trial, after all its files have been fetched.

        Args:
            trial: The trial.
            answer: Answer of the worker to the call `run`.

        Raises:
            LostError: The worker ended before the trial.
            ValueError: The outcome cannot be read.
            OSError: A file cannot be written on the sweep's machine.
        """
        outcome = _OUTCOME.validate_python(answer["outcome"])
        message = shortened(outcome.message, _MESSAGE)
        outcome = replace(outcome, environment="", message=message)
        objectives = self.workload.settings.objective
        if not outcome.state.has_ended or not has_all_scores(outcome, objectives):
            raise ValueError(
                "expected a trial that has ended, with all scores if it has completed; got the "
                f"state {outcome.state}"
            )
        if outcome.reason is Reason.INTERRUPTED and trial.running.control.stop_reason is None:
            raise LostError("the worker is ending")
        findings = _FINDINGS.validate_python(answer["findings"])
        self.findings += [finding for finding in findings if finding not in self.findings]
        self.patience.insist(partial(self._bring, trial, is_over=True))
        if self._environment is not None:
            # The record of the worker's environment has a hash of its content as its name.
            name = keep_environment(self.workload.paths, self._environment)
            outcome = replace(outcome, environment=name)
        return replace(outcome, host=self.host)

    def _bring(self, trial: _TrialThere, *, is_over: bool = False) -> None:
        """Fetch a trial's new files from the worker. Tell the worker if the trial is to stop.

        A file that the notebook writes itself may be half written while the trial runs. It is
        fetched when two polls in a row have found the same size and time of its last change, or
        after the trial has ended.

        A file that is gone on the worker is removed from the sweep's machine, too. While the trial
        runs, this waits until all newer files of its kind have arrived. So an old checkpoint
        remains until a newer one has arrived.

        Args:
            trial: The trial.
            is_over: Whether the trial has ended.

        Raises:
            LostError: The worker does not answer.
            RefusedError: The worker cannot read a file.
            ValueError: The worker names a file that cannot belong to the trial.
            OSError: A file cannot be written on the sweep's machine.
        """
        reason, message = trial.running.control.stop_reason, trial.running.control.message
        stop = None if reason is None else (str(reason), message)
        answer = self._ask("follow", {"task": trial.task, "stop": stop})
        if "files" not in answer:  # The trial has not begun.
            return
        trial.running.points.note_cells(*map(int, answer["cells"]))
        found: dict[str, Stamp] = {}
        for name, (size, changed_ns) in answer["files"].items():
            found[name] = int(size), int(changed_ns)
        # Fetch the notebook first while the trial runs, and other files only after it has arrived
        # once: a later attempt resumes from a checkpoint only if there is a notebook.
        # Fetch it last after the end: it states the outcome, so no other file may be missing then.
        for name in sorted(found, key=lambda name: name == NOTEBOOK, reverse=not is_over):
            stamp = found[name]
            is_usable = is_over or name == NOTEBOOK or NOTEBOOK in trial.have
            is_whole = is_over or is_whole_at_once(name) or trial.seen.get(name) == stamp
            if is_usable and is_whole and trial.have.get(name) != stamp:
                self._fetch(trial, name, stamp, is_over=is_over)
        trial.seen = found
        late = {kind_of(name) for name in found.keys() - trial.have.keys()}
        for name in trial.have.keys() - found.keys() - {NOTEBOOK}:
            if is_over or kind_of(name) not in late:
                path_of(trial.spec, name).unlink(missing_ok=True)
                del trial.have[name]

    def _fetch(self, trial: _TrialThere, name: str, stamp: Stamp, *, is_over: bool) -> None:
        """Fetch one file under a temporary name and rename it, unless it changes meanwhile.

        While the trial runs, a notebook that already states the trial's end is dropped. It is
        fetched again at the end, after the other files.
        """
        place = path_of(trial.spec, name)
        part = beside(place)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with open(part, "wb") as file:
                for offset in range(0, stamp[0], PART_BYTES):
                    asked = {"task": trial.task, "name": name, "offset": offset, "stamp": stamp}
                    if not (data := self._ask("read", asked)["data"]):
                        return
                    file.write(data)
            if name == NOTEBOOK and not is_over and _states_end(part):
                return
            os.replace(part, place)
            trial.have[name] = stamp
        except OSError as error:
            if is_of_the_machine(error):
                raise
            raise RefusedError(
                f"{name!r} cannot be written on the sweep's machine: {error.strerror}"
            ) from error
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def _stopped(reason: Reason, message: str) -> TrialOutcome:
    return TrialOutcome(state=TrialState.STOPPED, reason=reason, message=message)


def _states_end(notebook: Path) -> bool:
    metadata = read_metadata(notebook)
    return metadata is not None and metadata.state.has_ended


@dataclass(slots=True, kw_only=True)
class _TrialThere:
    """A trial that runs on a worker.

    Attributes:
        task: Name of the trial in the calls to the worker.
        spec: Spec of the trial, with the paths of the sweep's machine.
        running: The values that the trial reports, and requests to stop it, in the sweep's process.
        have: Name and stamp (size and time of the last change) of each file that is the same on
            both machines.
        seen: Name and stamp of each file that the last poll has found on the worker.
        is_sent: Whether the worker has all files that the trial needs from the sweep's machine.
        wake: Event that ends the wait for the next poll: the trial is stopped, or has ended.
    """

    task: str
    spec: TrialSpec
    running: RunningTrial
    have: dict[str, Stamp] = field(default_factory=dict)
    seen: dict[str, Stamp] = field(default_factory=dict)
    is_sent: bool = False
    wake: threading.Event = field(default_factory=threading.Event)
