"""What runs inside a Dask worker: a plugin that opens a worker of ours, and one task per trial.

What is sent to the sweep is JSON and the bytes of a trial's own files, by names of `dask_files`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import pickle
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed import WorkerPlugin, get_worker

from ..errors import SweepError, first_line
from ..kernels import check_kernel
from ..notebook_api.messages import Point, StopReason
from ..trials import Reason, RunningTrial, TrialOutcome, TrialSpec
from .dask_files import (
    PART_BYTES,
    Mirror,
    files_of,
    kernel_python,
    own_version,
    path_of,
    stamp_of,
)
from .places import Places
from .worker import Worker, opened_worker
from .workload import Workload

if TYPE_CHECKING:
    from distributed import Worker as DaskWorker

_log = logging.getLogger(__name__)

#: How often a line says how far this worker is with the data of the trials.
_SAY_S = 30.0
#: Whoever ends a Dask worker may end its kernels first, as the end of a SLURM job does: a trial
#: whose kernel has died lost its worker, unless this process still runs after so long.
_DOUBT_S = 2.0


def carry_out(payload: bytes) -> bytes:
    """Carry out a task of a sweep, in a thread of Dask's. Raises nothing, whatever happens.

    Args:
        payload: pickled, and of built-in types, so that any version can read it: the `version` of
            this package at home, the `key` of the sweep, the `task` that is the name of a method
            below, and its `arguments`.

    Returns:
        as JSON, the answer of the method; or the `error` for which there is none; or null, where
        this worker does not belong to the sweep any more.
    """
    try:
        asked = pickle.loads(payload)
        if asked["version"] != own_version():
            raise SweepError(f"notebook-hpo: {asked['version']} here, {own_version()} there")
        worker: Any = get_worker()
        key = asked["key"]
        if asked["task"] == "begin":
            root = tempfile.mkdtemp(prefix="notebook-hpo-", dir=worker.local_directory)
            begun = TrialsOnWorker(key, session=worker.get_current_task(), root=Path(root))
            adding = worker.plugin_add(begun, key)
            asyncio.run_coroutine_threadsafe(adding, worker.loop.asyncio_loop).result()
        if (plugin := worker.plugins.get(key)) is None:
            raise _OverError
        return json.dumps(getattr(plugin, asked["task"])(**asked["arguments"])).encode()
    except _OverError:
        return b"null"
    except SweepError as error:
        return json.dumps({"error": first_line(error)}).encode()
    except BaseException as error:  # noqa: BLE001  the thread is Dask's, and the task has to end
        _log.exception("a task of a sweep")
        return json.dumps({"error": f"{type(error).__name__}: {first_line(error)}"}).encode()


class _OverError(Exception):
    """This worker does not belong to the sweep any more."""


@dataclass(slots=True, kw_only=True)
class _Trial:
    """A trial that runs here, or has ended and is not forgotten yet; its spec has paths of here."""

    spec: TrialSpec
    running: RunningTrial
    is_over: bool = False


class TrialsOnWorker(WorkerPlugin):
    """Runs the trials of one sweep in this Dask worker's process and threads.

    It is the `TimeLeft` of its trials, as home has sent it last: at the beginning, or with a stop.

    Args:
        key: of the sweep, the name of the plugin, of its calls and of the topic of its points.
        session: the task whose result the sweep holds. Dask frees it when the sweep lets go of it
            or has lost its connection, and then everything here ends.
        root: a private folder.
    """

    def __init__(self, key: str, *, session: str, root: Path) -> None:
        self.name = key
        self._session = session
        self._mirror = Mirror(root=root.resolve())
        self._patience_s, self._end_by_s = 0.0, math.inf
        self._workload: Workload
        self._worker: Worker
        self._opened = ExitStack()
        self._trials: dict[str, _Trial] = {}
        self._closing = threading.Lock()
        self._is_over = False

    def setup(self, worker: DaskWorker) -> None:
        """Answer calls of the sweep."""
        self._dask_worker = worker
        worker.handlers[self.name] = self.answer

    async def teardown(self, worker: DaskWorker) -> None:
        """End everything: the Dask worker ends, or the sweep has."""
        worker.handlers.pop(self.name, None)
        await asyncio.to_thread(self._end)

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        """End everything when Dask has freed the session."""
        is_ours = self._dask_worker.plugins.get(self.name) is self
        if key == self._session and finish == "released" and is_ours:
            self._removal = asyncio.ensure_future(self._dask_worker.plugin_remove(self.name))

    def patience_s(self) -> float:
        """How long to wait for a disk that is full or away, in seconds."""
        return self._patience_s

    def left_s(self) -> float | None:
        """How long the sweep still has, in seconds; None for as long as it takes."""
        return None if self._end_by_s == math.inf else max(0.0, self._end_by_s - time.monotonic())

    def _note_times(self, *, patience_s: float, left_s: float | None) -> None:
        self._patience_s = patience_s
        self._end_by_s = math.inf if left_s is None else time.monotonic() + left_s

    # --- calls of the sweep while all threads may be busy -----------------------------------------

    async def answer(self, act: str, **arguments: Any) -> Any:
        """Carry out a call of the sweep; neither its arguments nor its answer are pickled.

        Args:
            act: the name of a method below.
        """
        acts: dict[str, Callable[..., Any]] = {
            "share": self._share,
            "write": self._write,
            "changes": self._changes,
            "read": self._read,
            "stop": self._stop,
            "forget": self._forget,
        }
        return await asyncio.to_thread(partial(acts[act], **arguments))

    def _share(self, *, owner: str, text: str) -> bool:
        """Whether home's own folders are here: the owner file of the study, with the same text."""
        file = Path(owner)
        try:
            is_shared = file.read_text("utf-8") == text and os.access(file.parent, os.W_OK)
        except (OSError, ValueError):
            is_shared = False
        self._mirror = replace(self._mirror, is_shared=is_shared)
        return is_shared

    def _write(self, *, path: str, offset: int, data: bytes, changed_ns: int) -> None:
        place = self._mirror.copy(Path(path))
        place.parent.mkdir(parents=True, exist_ok=True)
        with open(place, "r+b" if offset else "wb") as file:
            file.seek(offset)
            file.write(data)
        os.utime(place, ns=(changed_ns, changed_ns))  # home knows it by its stamp

    def _changes(self, *, task: str) -> dict[str, Any]:
        """The files of a trial and how far its cells are; nothing before it runs."""
        trial = self._trials.get(task)
        if trial is None:
            return {}
        files = files_of(trial.spec, with_folders=not self._mirror.is_shared)
        return {"files": files, "cells": (trial.running.cell, trial.running.cells)}

    def _read(self, *, task: str, name: str, offset: int, stamp: Sequence[int]) -> bytes:
        """The next bytes of a file; nothing where it has changed since it had this stamp."""
        with open(path_of(self._trials[task].spec, name), "rb") as file:
            if stamp_of(os.fstat(file.fileno())) != tuple(stamp):
                return b""
            file.seek(offset)
            return file.read(PART_BYTES)

    def _stop(self, *, task: str, reason: str, message: str, **times: Any) -> bool:
        """Stop a trial; False before it runs."""
        self._note_times(**times)
        if (trial := self._trials.get(task)) is not None:
            trial.running.stop(StopReason(reason), message)
        return trial is not None

    def _forget(self, *, task: str) -> None:
        """Remove the copies of a trial, all of whose files are at home."""
        trial = self._trials.pop(task, None)
        if trial is None:
            return
        trial.spec.notebook.unlink(missing_ok=True)
        if not self._mirror.is_shared:
            shutil.rmtree(trial.spec.checkpoint_dir, ignore_errors=True)
            shutil.rmtree(trial.spec.artifact_dir, ignore_errors=True)

    # --- tasks of the sweep -----------------------------------------------------------------------

    def begin(self, *, workload: bytes, modules: Sequence[str]) -> dict[str, Any]:
        """What this machine has of what a sweep asks for.

        Args:
            workload: pickled.
            modules: that its notebook imports.

        Raises:
            SweepError: it lacks the kernel, or GPUs.
        """
        asked = self._workload = pickle.loads(workload)
        check_kernel(asked.kernel_name, asked_by="the notebook")
        self._places()
        return {
            "host": socket.gethostname(),
            "python": kernel_python(asked.kernel_name, modules),
        }

    def open(self, *, patience_s: float, left_s: float | None) -> dict[str, Any]:
        """Make ready for trials, which takes as long as their data does.

        Raises:
            SweepError: that cannot be.
        """
        self._note_times(patience_s=patience_s, left_s=left_s)
        asked = self._mirror.workload(self._workload, host=socket.gethostname())
        self._workload = asked
        asked.cwd.mkdir(parents=True, exist_ok=True)
        if not self._mirror.is_shared:
            for file, source in (asked.frozen or {}).items():
                Path(file).parent.mkdir(parents=True, exist_ok=True)
                Path(file).write_bytes(source.encode("utf-8", "surrogateescape"))
        said_s = 0.0

        def say(line: str) -> None:
            nonlocal said_s
            if time.monotonic() - said_s > _SAY_S:
                said_s = time.monotonic()
                self._dask_worker.log_event(self.name, {"line": line, "host": asked.host})

        if asked.data is not None:
            asked.data.bring(
                say,
                lambda: self._is_over,
                copy=None if self._mirror.is_shared else asked.cwd,
            )
        with self._closing:
            self._refuse_when_over()
            self._worker = self._opened.enter_context(
                opened_worker(asked, places=self._places(), time_left=self)
            )
        return {}

    def run(self, *, task: str, spec: bytes, trials_left: int) -> dict[str, Any]:
        """Run a trial to its end.

        Args:
            task: its name in all calls.
            spec: pickled.
            trials_left: how many trials had not begun.

        Returns:
            the `outcome`; the `environment`, which is the record of where it ran; and the
            `findings` so far.
        """
        self._refuse_when_over()
        there = self._mirror.spec(pickle.loads(spec))

        def publish(point: Point) -> None:
            written = {**point.encode(), "source": str(point.source)}
            self._dask_worker.log_event(self.name, {"task": task, "point": written})

        running = RunningTrial(publish, trials_left=trials_left)
        trial = self._trials[task] = _Trial(spec=there, running=running)
        try:
            outcome = self._worker.run_trial(there, running)
            if outcome.reason is Reason.KERNEL_DIED:
                time.sleep(_DOUBT_S)
            self._refuse_when_over()
            return {**self._for_home(outcome), "findings": list(self._worker.findings)}
        finally:
            trial.is_over = True

    def _refuse_when_over(self) -> None:
        if self._is_over:
            raise _OverError

    def _for_home(self, outcome: TrialOutcome) -> dict[str, Any]:
        """An outcome whose message has the paths of home, with the record of where it ran."""
        message = outcome.message.replace(str(self._mirror.root), "")
        environment = None
        if outcome.environment:
            file = self._workload.paths.environment(outcome.environment)
            environment = json.loads(file.read_bytes())
        return {"outcome": asdict(replace(outcome, message=message)), "environment": environment}

    def _places(self) -> Places:
        jobs = max(2, self._dask_worker.state.nthreads)  # other workers may be beside this one
        return Places.of_machine(self._workload.settings.resources, jobs=jobs)

    def _end(self) -> None:
        """Stop what runs, end all processes and remove the folder."""
        self._is_over = True
        for trial in list(self._trials.values()):
            trial.running.stop(StopReason.INTERRUPTED)
        while any(not trial.is_over for trial in list(self._trials.values())):
            time.sleep(0.05)
        with self._closing:
            self._opened.close()
        shutil.rmtree(self._mirror.root, ignore_errors=True)
