"""The workers of a cluster that run trials: who has come, who is refused, who is gone."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from ...study_folder.patience import Patience
from ..executor import TimeLeft
from ..workload import Workload
from .acceptance import Acceptance, own_version
from .dask_cluster import CallError, DaskCluster, DaskWorker
from .link import LostError, WorkerLink
from .messages import Begin, Look, Times
from .relay import note_refusal
from .travelling_files import TravellingFiles

_log = logging.getLogger(__name__)

#: A worker that fails so often before it has run a trial is not used.
_MOST_FAILURES = 3
#: How long the process on a worker that is not needed has to end.
_RELEASE_S = 30.0
_PAUSE_S = 0.2
#: How long to wait at the end until the workers have removed everything.
_CLOSE_S = 10.0


class Crew:
    """The workers of a cluster that run the trials of a sweep. Safe to use from several threads.

    Args:
        own_folders: whether each worker has copies of files also where it has the same disk.

    Attributes:
        changed: set when a worker has come, was refused or is gone.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: DaskCluster,
        *,
        patience: Patience,
        own_folders: bool,
    ) -> None:
        self._workload = workload
        self._cluster = cluster
        self._patience = patience
        self._own_folders = own_folders
        self._acceptance = Acceptance(workload)
        self._files = TravellingFiles(workload)
        self._lock = threading.Lock()
        self._links: dict[DaskWorker, WorkerLink] = {}
        self._ended: list[WorkerLink] = []
        self._coming: set[DaskWorker] = set()
        self._refused: dict[DaskWorker, str] = {}
        self._reasons: Counter[str] = Counter()
        self._failures: Counter[DaskWorker] = Counter()
        self._released: set[DaskWorker] = set()
        self._left: list[Sequence[str]] = []
        self._time_left: TimeLeft | None = None
        self._ready: set[WorkerLink] = set()
        self.changed = threading.Event()

    @property
    def refused(self) -> Sequence[str]:
        """Why workers that are there cannot run trials, one sentence each."""
        with self._lock:
            return list(self._refused.values())

    @property
    def findings(self) -> Sequence[str]:
        """How many workers were not used and why, one sentence for each reason."""
        with self._lock:
            return [
                f"{'a worker was' if n == 1 else f'{n} workers were'} not used: {why}"
                for why, n in self._reasons.items()
            ]

    def links(self) -> Sequence[WorkerLink]:
        """The workers that can run trials."""
        with self._lock:
            return [link for link in self._links.values() if not link.is_lost]

    def ready(self) -> Sequence[WorkerLink]:
        """Those that trials can be sent to now."""
        return [link for link in self.links() if link in self._ready]

    def look(self) -> int:
        """Begin with workers that have come, and end with those that are gone.

        Returns:
            how many workers there are.

        Raises:
            CallError: the scheduler does not answer.
        """
        present = self._cluster.workers()
        with self._lock:
            gone = [link for worker, link in self._links.items() if worker not in present]
            for worker in [worker for worker, link in self._links.items() if link.is_lost]:
                self._ended.append(self._links.pop(worker))
            self._refused = {w: why for w, why in self._refused.items() if w in present}
            known = {*self._links, *self._refused, *self._coming, *self._released}
            new = {worker for worker, is_running in present.items() if is_running} - known
            self._coming |= new
        for link in gone:
            link.lose()
        for worker in new:
            self._in_thread(partial(self._welcome, worker))
        return len(present)

    def settle(self, *, timeout_s: float) -> None:
        """Wait until each worker that is there can run trials, or is refused."""
        deadline_s = time.monotonic() + timeout_s
        while self._coming and time.monotonic() < deadline_s:
            self.changed.wait(_PAUSE_S)
            self.changed.clear()

    def begin(self, time_left: TimeLeft) -> None:
        """Make the workers that are there ready for trials, and from now on those that come."""
        with self._lock:
            self._time_left = time_left
            links = list(self._links.values())
        for link in links:
            self._in_thread(partial(self._open, link))

    def set_times(self, times: Times) -> None:
        """Tell all workers how long the sweep still has."""
        for link in self.ready():
            link.set_times(times)

    def lose_all(self) -> None:
        """Give all workers up: the scheduler is gone."""
        for link in self.links():
            link.lose()

    def release(self, link: WorkerLink, *, least: int) -> None:
        """Give back a worker that is not needed any more, once its process has ended.

        Args:
            least: how many workers are to stay.
        """

        def end() -> None:
            self._close(link, _RELEASE_S)
            link.join(_CLOSE_S)
            self._cluster.dismiss(link.worker, least=least)

        with self._lock:
            self._released.add(link.worker)
        self._in_thread(end)

    def recall(self) -> None:
        """Use workers again that were not needed, as far as they are still there."""
        with self._lock:
            self._released.clear()

    def end(self, *, patience_s: float) -> Sequence[Sequence[str]]:
        """End the processes on all workers; what each of them knows of its trials."""
        for thread in [
            self._in_thread(partial(self._close, link, patience_s)) for link in self.links()
        ]:
            thread.join(patience_s)
        with self._lock:
            return list(self._left)

    def _close(self, link: WorkerLink, patience_s: float) -> None:
        left = link.close(patience_s=patience_s)
        with self._lock:
            self._left.append(left)

    def close(self) -> None:
        """End what is left on the workers."""
        with self._lock:
            links = [*self._links.values(), *self._ended]
        for link in links:
            link.lose()
        deadline_s = time.monotonic() + _CLOSE_S
        for link in links:
            link.join(max(0.0, deadline_s - time.monotonic()))

    def _in_thread(self, call: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=call, name="cluster worker", daemon=True)
        thread.start()
        return thread

    def _welcome(self, worker: DaskWorker) -> None:
        """Accept a worker that has come, or refuse it."""
        with self._coming_of(worker):
            link = WorkerLink(self._cluster, worker, patience=self._patience)
            try:
                why = self._obstacle(worker, link)
            except (CallError, LostError) as error:  # it is looked at again while it is there
                _log.info("%s: %s", worker.address, error)
                self._failures[worker] += 1
                if self._failures[worker] < _MOST_FAILURES:
                    return
                why = str(error)
            if why:
                link.lose()
                self._refuse(link, why)
                return
            with self._lock:
                self._links[worker] = link
                is_begun = self._time_left is not None
            if is_begun:
                self._open(link)

    @contextmanager
    def _coming_of(self, worker: DaskWorker) -> Iterator[None]:
        try:
            yield
        finally:
            with self._lock:
                self._coming.discard(worker)
            self.changed.set()

    def _obstacle(self, worker: DaskWorker, link: WorkerLink) -> str:
        """Why a worker cannot run trials; empty where it can.

        Raises:
            CallError, LostError: it does not answer.
        """
        probed = self._cluster.probe(worker.address)
        theirs, ours = probed["package"], own_version()
        link.host = probed["host"]
        if not theirs:
            return f"notebook-hpo is not installed; {ours} is needed there"
        if theirs != ours:
            return f"notebook-hpo: {ours} here, {theirs} there"
        looked = link.look(
            Look(
                kernel_name=self._acceptance.kernel_name,
                modules=self._acceptance.modules,
                resources=self._workload.settings.resources,
            )
        )
        return ", ".join(self._acceptance.differences(looked))

    def _refuse(self, link: WorkerLink, why: str) -> None:
        """Keep a worker from being used; a line says it of the first with the same reason."""
        place = f"worker {link.worker.address}" + (f" ({link.host})" if link.host else "")
        with self._lock:
            is_news = why not in self._reasons
            self._reasons[why] += 1
            self._refused[link.worker] = f"{place}: {why}"
            is_waited_for = self._time_left is None and not self._links
        if is_news and not is_waited_for:
            _log.warning("%s: %s; it is not used", place, why)
        with suppress(CallError):  # who looks at the worker learns it as well
            self._cluster.call(link.worker.address, note_refusal, why)

    def _open(self, link: WorkerLink) -> None:
        """Make a worker ready for trials."""
        assert self._time_left is not None
        begin = Begin(
            workload=self._workload,
            code_sign=self._sign(self._workload.notebook.path),
            checkpoints_sign=self._sign(self._workload.paths.owner),
        )
        try:
            obstacle = link.open(begin, self._files.parts, Times.of(self._time_left))
        except LostError as error:
            _log.info("%s: %s", link.worker.address, error)
        else:
            if obstacle:
                self._refuse(link, obstacle)
                link.lose()
            else:
                self._ready.add(link)
        self.changed.set()

    def _sign(self, file: Path) -> tuple[Path, str] | None:
        """A file by which a worker recognises that it has the same disk."""
        if self._own_folders:
            return None
        try:
            return file, file.read_text("utf-8")
        except (OSError, ValueError):
            return None
