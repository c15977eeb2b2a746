"""What runs inside a Dask worker: a plugin that opens a worker of ours, and one task per call.

What is sent to the sweep is JSON and the bytes of a trial's own files, by names of `dask_files`.
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
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed import WorkerPlugin, get_worker, secede

from ..errors import SweepError, first_line
from ..execution.worker import Worker, opened_worker
from ..execution.workload import Workload
from ..kernels import check_kernel
from ..machine.places import Places
from ..notebook_api.messages import Point, StopReason
from ..trials import Points, Reason, RunningTrial, TrialSpec
from .files import PART_BYTES, Mirror, files_of, kernel_python, path_of, stamp_of

if TYPE_CHECKING:
    from distributed import Worker as DaskWorker

_log = logging.getLogger(__name__)

#: Whoever ends a Dask worker may end its kernels first, as the end of a SLURM job does: a trial
#: whose kernel has died lost its worker, unless this process still runs after so long.
_DOUBT_S = 2.0
#: How long to wait for a disk that is full or away.
_PATIENCE_S = 300.0


def carry_out(payload: bytes) -> bytes:
    """Carry out a call of a sweep, in a thread of Dask's. Raises nothing, whatever happens.

    Args:
        payload: pickled, and of built-in types, so that any version can read it: the `version` of
            this package at home, the `key` of the sweep, the `act` that is the name of a method
            below, and its `arguments`.

    Returns:
        a line of JSON, which is the answer of the method, or the `error` for which there is none,
        or null where this worker does not belong to the sweep any more; then the bytes of `data`
        in the answer.
    """
    try:
        asked = pickle.loads(payload)
        if asked["version"] != version("notebook-hpo"):
            there = version("notebook-hpo")
            raise SweepError(f"notebook-hpo: {asked['version']} here, {there} there")
        worker: Any = get_worker()
        key = asked["key"]
        if asked["act"] == "begin":
            root = tempfile.mkdtemp(prefix="notebook-hpo-", dir=worker.local_directory)
            session = worker.get_current_task()
            begun = TrialsOnWorker(worker, key, session=session, root=Path(root))
            adding = worker.plugin_add(begun, key)
            asyncio.run_coroutine_threadsafe(adding, worker.loop.asyncio_loop).result()
        plugin, answer = worker.plugins.get(key), {}
        if plugin is not None and not plugin.is_over:
            answer = dict(getattr(plugin, asked["act"])(**asked["arguments"]) or {})
        if plugin is None or plugin.is_over:
            return b"null"
        data: bytes = answer.pop("data", b"")
        return json.dumps(answer).encode() + b"\n" + data
    except SweepError as error:
        return json.dumps({"error": first_line(error)}).encode()
    except BaseException as error:  # noqa: BLE001  the thread is Dask's, and the task has to end
        _log.exception("a call of a sweep")
        return json.dumps({"error": f"{type(error).__name__}: {first_line(error)}"}).encode()


class TrialsOnWorker(WorkerPlugin):
    """Runs the trials of one sweep in this Dask worker's process and threads.

    What lasts leaves Dask's pool of threads (`secede`), so that other calls find a thread.

    Args:
        key: of the sweep, the name of the plugin and of the topic of its points.
        session: the task whose result the sweep holds. Dask frees it when the sweep lets go of it
            or has lost its connection, and then everything here ends.
        root: a private folder.

    Attributes:
        is_over: whether this worker does not belong to the sweep any more.
    """

    def __init__(self, worker: DaskWorker, key: str, *, session: str, root: Path) -> None:
        self.name = key
        self._dask_worker = worker
        self._session = session
        self._mirror = Mirror(root=root.resolve())
        self._workload: Workload
        self._worker: Worker
        self._opened = ExitStack()
        self._trials: dict[str, tuple[TrialSpec, RunningTrial]] = {}
        self._closing = threading.Lock()
        self.is_over = False

    async def teardown(self, worker: DaskWorker) -> None:
        """End everything: the Dask worker ends, or the sweep has."""
        await asyncio.to_thread(self.end)

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        """End everything when Dask forgets the session, if only while it still began."""
        if key == self._session and finish == "forgotten":
            self._removal = asyncio.ensure_future(self._dask_worker.plugin_remove(self.name))

    def patience_s(self) -> float:
        """How long to wait for a disk that is full or away, in seconds."""
        return 0.0 if self.is_over else _PATIENCE_S

    def left_s(self) -> float | None:
        """As long as it takes: home does not wait for what ends here."""
        return None

    # --- calls of the sweep -----------------------------------------------------------------------

    def begin(self, *, workload: bytes) -> dict[str, Any]:
        """What this machine has of what a sweep asks for.

        Args:
            workload: pickled.

        Raises:
            SweepError: it lacks the kernel, or GPUs.
        """
        asked = self._workload = pickle.loads(workload)
        check_kernel(asked.kernel_name, asked_by="the notebook")
        self._places()
        return {"host": socket.gethostname(), "python": kernel_python(asked.kernel_name)}

    def write(self, *, path: str, offset: int, data: bytes, changed_ns: int) -> None:
        """Write a part of a file of home, at the end of those before."""
        place = self._mirror.copy(Path(path))
        place.parent.mkdir(parents=True, exist_ok=True)
        with open(place, "r+b" if offset else "wb") as file:
            file.seek(offset)
            file.write(data)
        os.utime(place, ns=(changed_ns, changed_ns))  # home knows it by its stamp

    def open(self, *, linked: Sequence[str]) -> dict[str, Any]:
        """Make ready for trials, which takes as long as their data does.

        Args:
            linked: large files of home, in whose place those with the same paths here are used.

        Returns:
            the `environment`, which is the record of where trials run; None where it is not known.

        Raises:
            SweepError: that cannot be.
        """
        secede()  # type: ignore[no-untyped-call]
        asked = self._mirror.workload(self._workload, host=socket.gethostname())
        self._workload = asked
        asked.cwd.mkdir(parents=True, exist_ok=True)
        for file, source in asked.frozen.items():
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            Path(file).write_bytes(source.encode("utf-8", "surrogateescape"))
        for path in map(Path, linked):
            self._mirror.copy(path).parent.mkdir(parents=True, exist_ok=True)
            self._mirror.copy(path).symlink_to(path)
        if asked.data is not None:
            asked.data.bring(self._say, lambda: self.is_over, copy=asked.cwd)
        with self._closing:
            if self.is_over:
                return {}
            self._worker = self._opened.enter_context(
                opened_worker(asked, places=self._places(), time_left=self)
            )
        name = self._worker.environment
        record = asked.paths.environment(name).read_bytes() if name else b"null"
        return {"environment": json.loads(record)}

    def run(self, *, task: str, spec: bytes, trials_left: int) -> dict[str, Any]:
        """Run a trial to its end.

        Args:
            task: its name in all calls.
            spec: pickled.
            trials_left: how many trials had not begun.

        Returns:
            the `outcome`, and the `findings` so far.
        """
        secede()  # type: ignore[no-untyped-call]
        there = self._mirror.spec(pickle.loads(spec))

        def publish(point: Point) -> None:
            self._dask_worker.log_event(self.name, {"task": task, "point": point.encode()})

        running = RunningTrial(Points(publish), trials_left=trials_left)
        self._trials[task] = there, running
        if self.is_over:
            running.control.stop(StopReason.INTERRUPTED)
        try:
            outcome = self._worker.run_trial(there, running)
            if outcome.reason is Reason.KERNEL_DIED:
                time.sleep(_DOUBT_S)
            message = outcome.message.replace(str(self._mirror.root), "")  # home's own paths
            outcome = replace(outcome, message=message)
            return {"outcome": asdict(outcome), "findings": list(self._worker.findings)}
        finally:
            running.control.end()

    def follow(self, *, task: str, stop: Sequence[str] | None) -> dict[str, Any]:
        """The files of a trial and how far its cells are; nothing before it runs.

        Args:
            stop: why the trial is to stop, and the message for people; None where it goes on. Home
                calls again and again.
        """
        if task not in self._trials:
            return {}
        spec, running = self._trials[task]
        if stop is not None:
            running.control.stop(StopReason(stop[0]), stop[1])
        return {"files": files_of(spec), "cells": (running.points.cell, running.points.cells)}

    def read(self, *, task: str, name: str, offset: int, stamp: Sequence[int]) -> Mapping[str, Any]:
        """The next bytes of a file; none where it has changed since it had this stamp."""
        spec, _ = self._trials[task]
        with suppress(FileNotFoundError), open(path_of(spec, name), "rb") as file:
            if stamp_of(os.fstat(file.fileno())) == tuple(stamp):
                file.seek(offset)
                return {"data": file.read(PART_BYTES)}
        return {}

    def forget(self, *, task: str) -> None:
        """Remove the copies of a trial, all of whose files are at home."""
        if task in self._trials:
            spec, _ = self._trials.pop(task)
            spec.notebook.unlink(missing_ok=True)
            shutil.rmtree(spec.checkpoint_dir, ignore_errors=True)
            shutil.rmtree(spec.artifact_dir, ignore_errors=True)

    def end(self) -> None:
        """Stop what runs, end all processes and remove the folder."""
        self.is_over = True
        for _, running in list(self._trials.values()):
            running.control.stop(StopReason.INTERRUPTED)
        for _, running in list(self._trials.values()):
            running.control.wait_for_rest()
        with self._closing:
            self._opened.close()
        shutil.rmtree(self._mirror.root, ignore_errors=True)

    # ----------------------------------------------------------------------------------------------

    def _say(self, line: str) -> None:
        self._dask_worker.log_event(self.name, {"line": line, "host": socket.gethostname()})

    def _places(self) -> Places:
        jobs = max(2, self._dask_worker.state.nthreads)  # other workers may be beside this one
        return Places.of_machine(self._workload.settings.resources, jobs=jobs)
