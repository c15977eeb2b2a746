"""Trials on the workers of a Dask cluster, which may come late and may be lost: one task for each.

How trials run there is `dask_worker`'s business, how a cluster is reached `dask_cluster`'s.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any

from ..errors import BrokenError, SettingsError
from ..kernels import check_kernel
from ..settings.machines import Cluster
from ..study_folder.patience import patience_with_disk
from ..trials import Reason, display_path
from .acceptance import imported_modules, kernel_python
from .capacity import read_jobs
from .dask_cluster import DaskCluster, DaskWorker, LostError
from .dask_files import travelling_files
from .dask_member import Member, RefusedError
from .executor import TrialSource
from .workload import Workload

_log = logging.getLogger(__name__)

#: How often the scheduler is asked for its workers.
_LOOK_S = 1.0
#: Workers that come within this time need no line about the wait.
_SOON_S = 5.0
#: How long the first worker waits for others that are there and have not answered yet.
_SETTLE_S = 10.0
#: The shortest time that a scheduler may stay away before the sweep ends.
_SCHEDULER_AWAY_S = 30.0
#: How often a cluster is asked for its workers again: jobs end, and Dask notices after 15 s.
_SCALE_AGAIN_S = 30.0
#: How long the workers have to end their processes when the trials have ended.
_END_S = 30.0


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
        members = self._usable()
        hosts = {member.host for member in members}
        workers = "1 worker" if len(members) == 1 else f"{len(members)} workers"
        on = f" on {len(hosts)} hosts" if len(hosts) > 1 else ""
        return f"{workers}{on} of {self._cluster.place}"

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
        began_s, announced = time.monotonic(), ""
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
            news = refusals[0] if refusals else "there is no worker yet"
            if news != announced and waited_s > _SOON_S:
                announced = news
                _log.warning(
                    "%s: %s; the sweep waits for one up to %g s (cluster: wait)",
                    self._cluster.place,
                    news,
                    self._settings.wait,
                )
            self._pause()

    def _pause(self) -> None:
        with self._change:
            self._change.wait(_LOOK_S)

    def _are_all_refused(self, present: int) -> bool:
        """Whether all workers that there are were refused, and no others are to be expected."""
        return 0 < present <= len(self._refusals()) and self._settings.class_ is None

    def _refusal(self) -> str:
        first, *others = self._refusals()
        likewise = f" ({len(others)} other workers likewise)" if others else ""
        return (
            f"{self._cluster.place}: no worker can run these trials: {first}{likewise}; give "
            "the workers the versions, the kernel and the data of this machine, or start the sweep "
            "from an environment like theirs"
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
            is_waited_for = self._source is None and not self._usable()
            if why not in self._told and not is_waited_for:
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
                self._wait_for_scheduler(source, now_s - answered_s, error, is_new=not is_away)
                is_away = True
            self._start_slots(source)
            if not self._is_busy() and (self._is_over or source.is_closed()):
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

    def _wait_for_scheduler(
        self, source: TrialSource, away_s: float, error: LostError, *, is_new: bool
    ) -> None:
        """Wait for a scheduler that does not answer, as long as for a storage.

        Raises:
            BrokenError: it has been away for too long.
        """
        limit_s = max(_SCHEDULER_AWAY_S, source.patience_s())
        if is_new:
            _log.warning(
                "%s: the scheduler does not answer: %s; it is tried again for %g s",
                self._cluster.place,
                error,
                limit_s,
            )
        if away_s > limit_s:
            raise BrokenError(
                f"{self._cluster.place}: the Dask scheduler has not answered for {limit_s:g} s: "
                f"{error}; start it again, and the same command goes on"
            )

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

    def _is_busy(self) -> bool:
        with self._change:
            return any(member.used for member in self._members.values())

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
