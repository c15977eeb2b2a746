"""What runs inside a Dask worker: a plugin that opens a worker of ours, and one task per trial.

A sweep calls `answer` through the scheduler, as all calls of a Dask client go. What is sent to the
sweep is JSON and the bytes of a trial's own files, by names of `dask_files`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pickle
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed import WorkerPlugin, get_worker

from ..errors import SweepError, first_line
from ..kernels import check_kernel
from ..notebook_api.checkpoints import checkpoint_files
from ..notebook_api.messages import Point, StopReason
from ..trials import Reason, RunningTrial, TrialOutcome, TrialSpec, TrialState
from .acceptance import kernel_python
from .dask_files import PART_BYTES, Mirror, Stamp, files_of, is_in_folder, path_of, remove
from .places import Places
from .worker import Worker, opened_worker
from .workload import Workload

if TYPE_CHECKING:
    from distributed import Worker as DaskWorker

_log = logging.getLogger(__name__)

#: A sweep that has not called for so long is dead, or cannot reach this worker any more; and where
#: Dask has cancelled a trial of it, because it has lost the sweep's client.
_SILENCE_S, _SILENCE_WHEN_CANCELLED_S = 60.0, 10.0
#: Whoever ends a Dask worker may end its kernels first, as the end of a SLURM job does: a trial
#: whose kernel has died lost its worker, unless this process still runs after so long.
_DOUBT_S = 2.0
#: How long the kernel of a stopped trial may still write a checkpoint in the background.
_LATE_S = 15.0
#: How often a line says how far this worker is with the data of the trials.
_SAY_S = 30.0
#: A file that is no checkpoint of ours may be half written until it has not changed for so long.
_SETTLED_S = 2.0


@dataclass(slots=True, kw_only=True)
class _Trial:
    """A trial that runs here, or has ended and is not forgotten yet.

    Attributes:
        spec: with the paths of this machine.
        known: the files that home has sent, which it need not get back.
    """

    spec: TrialSpec
    running: RunningTrial
    known: dict[str, Stamp]
    is_over: bool = False


@dataclass(slots=True)
class _HomeTime:
    """The `TimeLeft` of the sweep, as it was sent last."""

    _patience_s: float = 0.0
    _end_by_s: float | None = None
    heard_s: float = field(default_factory=time.monotonic)

    def set(self, *, patience_s: float, left_s: float | None) -> None:
        """Note what home has sent now."""
        self._patience_s = patience_s
        self._end_by_s = None if left_s is None else time.monotonic() + left_s

    def patience_s(self) -> float:
        """How long to wait for a disk that is full or away, in seconds."""
        return self._patience_s

    def left_s(self) -> float | None:
        """How long the sweep still has, in seconds; None for as long as it takes."""
        return None if self._end_by_s is None else max(0.0, self._end_by_s - time.monotonic())


class TrialsOnWorker(WorkerPlugin):
    """Runs the trials of one sweep in this Dask worker's process and threads.

    Args:
        key: of the sweep, the name of the plugin, of its calls and of the topic of its points.
    """

    def __init__(self, key: str) -> None:
        self.name = key

    def setup(self, worker: DaskWorker) -> None:
        """Make a private folder in that of the Dask worker, and answer calls of the sweep."""
        self._dask_worker = worker
        self._root = Path(tempfile.mkdtemp(prefix="notebook-hpo-", dir=worker.local_directory))
        self._root = self._root.resolve()
        self._time = _HomeTime()
        self._mirror = Mirror(root=self._root)
        self._workload: Workload | None = None
        self._worker: Worker | None = None
        self._opened = ExitStack()
        self._trials: dict[str, _Trial] = {}
        self._closing = threading.Lock()
        self._left: list[str] | None = None
        self._is_at_work = False
        worker.handlers[self.name] = self.answer
        self._watching = asyncio.ensure_future(self._watch())

    async def teardown(self, worker: DaskWorker) -> None:
        """End everything: the Dask worker ends, or the sweep has."""
        worker.handlers.pop(self.name, None)
        if asyncio.current_task() is not self._watching:
            self._watching.cancel()
        await asyncio.to_thread(self._end)

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        """Stop a trial whose task Dask has cancelled: it has lost the sweep's client."""
        is_cancelled = (start, finish) == ("executing", "released")
        if is_cancelled and (trial := self._trials.get(key)) is not None:
            trial.running.stop(StopReason.INTERRUPTED)
            silent_s = _SILENCE_S - _SILENCE_WHEN_CANCELLED_S
            self._time.heard_s = min(self._time.heard_s, time.monotonic() - silent_s)

    async def answer(self, act: str, **arguments: Any) -> Any:
        """Carry out a call of the sweep, in a thread; the answer needs no pickle.

        Args:
            act: the name of a method below.
        """
        acts: dict[str, Callable[..., Any]] = {
            "look": self._look,
            "share": self._share,
            "write": self._write,
            "remove": self._remove,
            "open": self._open,
            "times": self._time.set,
            "changes": self._changes,
            "read": self._read,
            "stop": self._stop,
            "forget": self._forget,
            "end": self._end,
        }
        self._time.heard_s = time.monotonic()
        answer = await asyncio.to_thread(partial(acts[act], **arguments))
        self._time.heard_s = time.monotonic()
        return answer

    async def _watch(self) -> None:
        """End everything when the sweep is gone."""
        while self._is_at_work or time.monotonic() - self._time.heard_s < _SILENCE_S:
            await asyncio.sleep(1.0)
        _log.warning("%s: the sweep is gone", self.name)
        await self._dask_worker.plugin_remove(self.name)

    # --- calls of the sweep -----------------------------------------------------------------------

    def _look(self, *, workload: bytes, modules: Sequence[str]) -> dict[str, Any]:
        """What this machine has of what a sweep asks for.

        Args:
            workload: pickled.
            modules: that its notebook imports.
        """
        asked: Workload = pickle.loads(workload)
        try:
            check_kernel(asked.kernel_name, asked_by="the notebook")
            self._places(asked)
        except SweepError as error:
            return {"obstacle": first_line(error)}
        return {"obstacle": "", "python": json.dumps(kernel_python(asked.kernel_name, modules))}

    def _share(
        self, *, code_sign: tuple[str, str] | None, study_sign: tuple[str, str] | None
    ) -> tuple[bool, bool]:
        """Whether the notebook's folder, and the study's, lie on a disk of both."""
        self._mirror = Mirror(
            root=self._root,
            shares_code=_has(code_sign),
            shares_study=_has(study_sign, to_write=True),
        )
        return self._mirror.shares_code, self._mirror.shares_study

    def _places(self, workload: Workload) -> Places:
        jobs = max(2, self._dask_worker.state.nthreads)  # other workers may be beside this one
        return Places.of_machine(workload.settings.resources, jobs=jobs)

    def _write(self, *, path: str, offset: int, data: bytes) -> None:
        place = self._mirror.copy(Path(path))
        place.parent.mkdir(parents=True, exist_ok=True)
        with open(place, "r+b" if offset else "wb") as file:
            file.seek(offset)
            file.write(data)

    def _remove(self, *, path: str) -> None:
        remove(self._mirror.copy(Path(path)))

    def _open(self, *, workload: bytes, patience_s: float, left_s: float | None) -> str:
        """Make ready for trials; why that cannot be, empty where it can."""
        self._time.set(patience_s=patience_s, left_s=left_s)
        asked = self._mirror.workload(pickle.loads(workload), host=socket.gethostname())
        asked.cwd.mkdir(parents=True, exist_ok=True)
        if not self._mirror.shares_code:
            for file, source in (asked.frozen or {}).items():
                Path(file).parent.mkdir(parents=True, exist_ok=True)
                Path(file).write_bytes(source.encode("utf-8", "surrogateescape"))
        self._is_at_work = True  # data may take hours, while the sweep waits for this answer
        said_s = 0.0

        def say(line: str) -> None:
            nonlocal said_s
            if time.monotonic() - said_s > _SAY_S:
                said_s = time.monotonic()
                self._dask_worker.log_event(self.name, {"line": line, "host": asked.host})

        try:
            if asked.data is not None:
                asked.data.bring(
                    say,
                    lambda: self._left is not None,
                    copy=None if self._mirror.shares_code else asked.cwd,
                )
            self._workload = asked
            self._worker = self._opened.enter_context(
                opened_worker(asked, places=self._places(asked), time_left=self._time)
            )
        except SweepError as error:
            return first_line(error)
        finally:
            self._is_at_work = False
        return ""

    def _changes(self, *, task: str) -> dict[str, Any]:
        """The files of a trial, and which of them home has sent; how far its cells are."""
        trial = self._trials.get(task)
        if trial is None:
            return {"files": {}, "known": {}, "cells": (0, 0)}
        found = files_of(trial.spec, with_folders=not self._mirror.shares_study)
        if not trial.is_over:
            ours = set(checkpoint_files(trial.spec.checkpoint_dir))
            settled_ns = int((time.time() - _SETTLED_S) * 1e9)
            found = {
                name: stamp
                for name, stamp in found.items()
                if not is_in_folder(name)
                or path_of(trial.spec, name) in ours
                or stamp[1] < settled_ns
            }
        cells = trial.running.cell, trial.running.cells
        return {"files": found, "known": trial.known, "cells": cells}

    def _read(self, *, task: str, name: str, offset: int) -> dict[str, Any]:
        """The next bytes of a file, and its stamp, which tells a new file of the same name."""
        path = path_of(self._trials[task].spec, name)
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            file.seek(offset)
            return {"data": file.read(PART_BYTES), "stamp": (found.st_size, found.st_mtime_ns)}

    def _stop(self, *, task: str, reason: str, message: str) -> None:
        if (trial := self._trials.get(task)) is not None:
            trial.running.stop(StopReason(reason), message)

    def _forget(self, *, task: str) -> None:
        """Remove the copies of a trial, all of whose files are at home."""
        trial = self._trials.pop(task, None)
        if trial is None:
            return
        for name in files_of(trial.spec, with_folders=False):
            remove(path_of(trial.spec, name))
        if not self._mirror.shares_study:
            remove(trial.spec.checkpoint_dir)
            remove(trial.spec.artifact_dir)

    def _end(self) -> list[str]:
        """Stop what runs, end all processes and remove the folder; what is known of all trials."""
        with self._closing:
            if self._left is None:
                self._left = []
                for trial in list(self._trials.values()):
                    trial.running.stop(StopReason.INTERRUPTED)
                while any(not trial.is_over for trial in list(self._trials.values())):
                    time.sleep(0.05)
                if self._worker is not None:
                    self._left = list(self._worker.findings)
                self._opened.close()
                shutil.rmtree(self._root, ignore_errors=True)
            return self._left

    # --- the task of a trial ----------------------------------------------------------------------

    def run(self, task: str, spec: TrialSpec, *, trials_left: int) -> bytes:
        """Run a trial to its end; how it has ended, as JSON."""
        if self._worker is None or self._left is not None:  # the sweep was taken for dead
            raise _GoneError
        there = self._mirror.spec(spec)

        def publish(point: Point) -> None:
            written = {**point.encode(), "source": str(point.source)}
            self._dask_worker.log_event(self.name, {"task": task, "point": written})

        running = RunningTrial(publish, trials_left=trials_left)
        known = files_of(there, with_folders=not self._mirror.shares_study)
        trial = self._trials[task] = _Trial(spec=there, running=running, known=known)
        try:
            outcome = self._worker.run_trial(there, running)
            if outcome.reason is Reason.KERNEL_DIED:
                time.sleep(_DOUBT_S)
            if self._left is not None:  # the Dask worker ends, and has stopped the trial
                raise _GoneError
            if outcome.state is TrialState.STOPPED and running.pid is not None:
                _wait_for_end(running.pid, self._time.left_s())
            return json.dumps(self._for_home(outcome)).encode()
        finally:
            trial.is_over = True

    def _for_home(self, outcome: TrialOutcome) -> dict[str, Any]:
        """An outcome whose message has the paths of home, with the record of where it ran."""
        assert self._workload is not None
        message = outcome.message.replace(str(self._root), "")
        environment = None
        if outcome.environment:
            file = self._workload.paths.environment(outcome.environment)
            environment = json.loads(file.read_bytes())
        return {"outcome": asdict(replace(outcome, message=message)), "environment": environment}


def run_trial(key: str, task: str, payload: bytes) -> bytes:
    """Run a trial as a task of Dask. Raises nothing, whatever happens to it.

    Args:
        key: of the sweep.
        task: the name of the task.
        payload: pickled, the trial's spec and how many trials had not begun.

    Returns:
        as JSON, the `outcome` and the `environment`; or the `error` for which there is none; or
        nothing, where the worker does not belong to the sweep any more.
    """
    try:
        plugin = get_worker().plugins.get(key)
        if not isinstance(plugin, TrialsOnWorker):
            raise _GoneError
        spec, trials_left = pickle.loads(payload)
        return plugin.run(task, spec, trials_left=trials_left)
    except _GoneError:
        return b"{}"
    except BaseException as error:  # noqa: BLE001  the thread is Dask's, and the trial has to end
        _log.exception("the task %s", task)
        return json.dumps({"error": f"{type(error).__name__}: {first_line(error)}"}).encode()


class _GoneError(Exception):
    """This worker does not belong to the sweep any more."""


def _wait_for_end(pid: int, left_s: float | None) -> None:
    """Wait for the end of a kernel, which may still write a checkpoint."""
    end_by_s = time.monotonic() + min(_LATE_S, _LATE_S if left_s is None else left_s / 3)
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end_by_s:
        time.sleep(0.05)


def _has(sign: tuple[str, str] | None, *, to_write: bool = False) -> bool:
    """Whether a file of home is here, so that its folder lies on a disk of both."""
    if sign is None:
        return False
    file, text = Path(sign[0]), sign[1]
    try:
        is_same = file.read_text("utf-8") == text
    except (OSError, ValueError):
        return False
    return is_same and (not to_write or os.access(file.parent, os.W_OK))
