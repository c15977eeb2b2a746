"""Run trials inside a Dask worker: a plugin for each sweep, and one Dask task per call.

The plugin opens an `execution.worker.Worker`, which runs the trials. A worker sends only JSON and
the bytes of a trial's files to the sweep. `files` defines the names of the files.
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
from ..trials import Points, RunningTrial, TrialSpec
from .files import PART_BYTES, Mirror, files_of, kernel_python, path_of, stamp_of

if TYPE_CHECKING:
    from distributed import Worker as DaskWorker

_log = logging.getLogger(__name__)

#: Seconds to wait for a disk that is full or unavailable (chosen, not measured).
_PATIENCE_S = 300.0


def carry_out(payload: bytes) -> bytes:
    """Call a method of `TrialsOnWorker` for a sweep, in a thread of Dask. Raise no exception.

    Args:
        payload: Pickled dict of built-in types, so that any version of this package can read it:
            `version`, the version of this package on the sweep's machine; `key`, the name of the
            sweep; `act`, the name of a method of `TrialsOnWorker`; and `arguments` for the method.

    Returns:
        One line of JSON with the dict that the method has returned. If the dict has `data`, these
        bytes come after the line instead. After an error, the line is an object with only `error`,
        the message. The line is `null` if this worker no longer belongs to the sweep.
    """
    try:
        asked = pickle.loads(payload)
        if asked["version"] != version("notebook-hpo"):
            there = version("notebook-hpo")
            raise SweepError(
                f"the sweep runs notebook-hpo {asked['version']}, and this worker {there}; "
                "install the same version on both"
            )
        worker: Any = get_worker()
        key = asked["key"]
        if asked["act"] == "begin":
            root = tempfile.mkdtemp(prefix="notebook-hpo-", dir=worker.local_directory)
            session = worker.get_current_task()
            begun = TrialsOnWorker(worker, key, session=session, root=Path(root))
            adding = worker.plugin_add(begun, key)
            asyncio.run_coroutine_threadsafe(adding, worker.loop.asyncio_loop).result()
        plugin = worker.plugins.get(key)
        if plugin is None or plugin.is_over:
            return b"null"
        act = getattr(plugin, asked["act"])
        answer = dict(act(**asked["arguments"]) or {})
        if plugin.is_over:  # The sweep has ended during the call.
            return b"null"
        data: bytes = answer.pop("data", b"")
        return json.dumps(answer).encode() + b"\n" + data
    except SweepError as error:
        return json.dumps({"error": first_line(error)}).encode()
    except BaseException as error:  # noqa: BLE001  the task must end, whatever was raised in it
        _log.exception("a call of a sweep")
        return json.dumps({"error": f"{type(error).__name__}: {first_line(error)}"}).encode()


class TrialsOnWorker(WorkerPlugin):
    """Runs the trials of one sweep in this Dask worker's process and threads.

    Calls that take long leave Dask's pool of threads (`secede`), so that other calls find a thread.

    Args:
        worker: The Dask worker.
        key: Name of the sweep. It is also the name of the plugin, and of the topic of its events:
            values that trials have reported, and lines for the user.
        session: Key of the Dask task that made this object, whose result the sweep holds. When the
            sweep releases the result or loses its connection, Dask frees the task. Then all trials
            here end.
        root: Private folder of the sweep on this worker.

    Attributes:
        is_over: Whether this worker no longer belongs to the sweep.
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
        """End the sweep's trials here, because the Dask worker is ending or the sweep has ended."""
        await asyncio.to_thread(self.end)

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        """End the trials when Dask has freed the task `session`, even while `begin` still runs."""
        if key == self._session and finish == "forgotten":
            self._removal = asyncio.ensure_future(self._dask_worker.plugin_remove(self.name))

    def patience_s(self) -> float:
        """Return how many seconds to wait for a disk that is full or unavailable.

        The answer is 0 once this worker no longer belongs to the sweep.
        """
        return 0.0 if self.is_over else _PATIENCE_S

    def left_s(self) -> float | None:
        """Return None, for no limit. The sweep itself limits its wait for this worker's end."""
        return None

    def check_held(self) -> None:
        """Do nothing. The sweep's machine checks whether another sweep has taken over the study."""

    # --- calls of the sweep -----------------------------------------------------------------------

    def begin(self, *, workload: bytes) -> dict[str, Any]:
        """Check that this machine has the kernel and the GPUs for the trials.

        Args:
            workload: Pickled `Workload`.

        Returns:
            The `host`, this machine's name, and `python`, the Python of the notebook's kernel.

        Raises:
            SweepError: This machine lacks the kernel or the GPUs.
        """
        asked = self._workload = pickle.loads(workload)
        check_kernel(asked.kernel_name, asked_by="the notebook")
        self._places()
        self._mirror.link_folder(asked)
        return {"host": socket.gethostname(), "python": kernel_python(asked.kernel_name)}

    def write(self, *, path: str, offset: int, data: bytes, changed_ns: int) -> None:
        """Write one part of this worker's copy of a file. The parts arrive in order.

        Args:
            path: Path of the file on the sweep's machine.
            offset: Number of bytes that come before this part.
            data: Bytes of this part.
            changed_ns: Time of the file's last change on the sweep's machine.
        """
        place = self._mirror.copy(Path(path))
        place.parent.mkdir(parents=True, exist_ok=True)
        with open(place, "r+b" if offset else "wb") as file:
            file.seek(offset)
            file.write(data)
        # Keep the time of the last change. Otherwise, the sweep would fetch the file as a new one.
        os.utime(place, ns=(changed_ns, changed_ns))

    def open(self, *, folder: bytes) -> dict[str, Any]:
        """Prepare this worker for trials. The longest part is to fetch their data.

        Args:
            folder: Pickled `NotebookFolder`.

        Returns:
            The `environment`: the record of the interpreter, packages and machine that run the
            trials, or None if it is not known.

        Raises:
            SweepError: The data cannot be fetched, or the worker cannot be opened.
        """
        secede()  # type: ignore[no-untyped-call]
        workload = self._mirror.workload(self._workload, host=socket.gethostname())
        self._workload = workload
        self._mirror.lay_out(workload, pickle.loads(folder))
        if workload.data is not None:
            workload.data.bring(self._say, lambda: self.is_over, copy=workload.cwd)
        with self._closing:
            if self.is_over:
                return {}
            worker = opened_worker(workload, places=self._places(), time_left=self)
            self._worker = self._opened.enter_context(worker)
        name = self._worker.environment
        if not name:
            return {"environment": None}
        record = workload.paths.environment(name).read_bytes()
        return {"environment": json.loads(record)}

    def run(self, *, task: str, spec: bytes, trials_left: int) -> dict[str, Any]:
        """Run a trial until it ends.

        Args:
            task: Name of the trial in all calls.
            spec: Pickled `TrialSpec`.
            trials_left: Number of trials of the sweep that have not begun.

        Returns:
            The `outcome`, and the `findings`: remarks for users about how this worker has run
            trials so far.
        """
        secede()  # type: ignore[no-untyped-call]
        there = self._mirror.spec(pickle.loads(spec))

        def publish(point: Point) -> None:
            event = {"task": task, "point": point.encode()}
            self._dask_worker.log_event(self.name, event)

        running = RunningTrial(Points(publish), trials_left=trials_left)
        self._trials[task] = there, running
        if self.is_over:
            running.control.stop(StopReason.INTERRUPTED)
        try:
            outcome = self._worker.run_trial(there, running)
            # A path on the worker is the path on the sweep's machine, with the folder of the copies
            # in front. Remove this folder, so that the message has the paths that the user knows.
            message = outcome.message.replace(str(self._mirror.root), "")
            outcome = replace(outcome, message=message)
            return {"outcome": asdict(outcome), "findings": list(self._worker.findings)}
        finally:
            running.control.end()

    def follow(self, *, task: str, stop: Sequence[str] | None) -> dict[str, Any]:
        """Return the files of a trial and which cell runs, and pass a stop on to the trial.

        The sweep calls this again and again.

        Args:
            task: Name of the trial.
            stop: Reason for stopping the trial, and the message for people. None if it continues.

        Returns:
            The `files`, as `files_of` returns them, and `cells`: the number of the cell that runs,
            and the number of all cells. Empty if the trial does not run yet.
        """
        if task not in self._trials:
            return {}
        spec, running = self._trials[task]
        if stop is not None:
            running.control.stop(StopReason(stop[0]), stop[1])
        cells = running.points.cell, running.points.cells
        return {"files": files_of(spec), "cells": cells}

    def read(self, *, task: str, name: str, offset: int, stamp: Sequence[int]) -> Mapping[str, Any]:
        """Read the next bytes of a file, or nothing if the file has changed.

        Args:
            task: Name of the trial.
            name: Name of the file.
            offset: Number of bytes to skip.
            stamp: Size and time of the last change of the file when the sweep began to read it.

        Returns:
            The bytes under `data`. Empty if the file has changed or is gone.
        """
        spec, _ = self._trials[task]
        with suppress(FileNotFoundError), open(path_of(spec, name), "rb") as file:
            if stamp_of(os.fstat(file.fileno())) == tuple(stamp):
                file.seek(offset)
                return {"data": file.read(PART_BYTES)}
        return {}

    def forget(self, *, task: str) -> None:
        """Remove a trial's files from this worker, after the end of each attempt at the trial."""
        if task in self._trials:
            spec, _ = self._trials.pop(task)
            spec.notebook.unlink(missing_ok=True)
            shutil.rmtree(spec.checkpoint_dir, ignore_errors=True)
            shutil.rmtree(spec.artifact_dir, ignore_errors=True)

    def end(self) -> None:
        """Stop the sweep's trials here, end their processes, and remove the folder `root`."""
        self.is_over = True
        for _, running in list(self._trials.values()):
            running.control.stop(StopReason.INTERRUPTED)
        for _, running in list(self._trials.values()):
            running.control.wait_for_rest()
        with self._closing:
            self._opened.close()
        shutil.rmtree(self._mirror.root, ignore_errors=True)

    # --- events and resources ---------------------------------------------------------------------

    def _say(self, line: str) -> None:
        event = {"line": line, "host": socket.gethostname()}
        self._dask_worker.log_event(self.name, event)

    def _places(self) -> Places:
        # Assume at least two trials, because another worker may use the same GPUs.
        jobs = max(2, self._dask_worker.state.nthreads)
        settings = self._workload.settings
        has_neighbours = settings.cluster is not None and settings.cluster.local_workers > 1
        return Places.of_machine(settings.resources, jobs=jobs, shares_machine=has_neighbours)
