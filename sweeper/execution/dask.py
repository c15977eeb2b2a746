"""Trials on the workers of a Dask cluster, which may come late and may be lost: one task for each.

How trials run there is `dask_worker`'s business, how a cluster is reached `dask_cluster`'s.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

from ..errors import BrokenError, SettingsError
from ..kernels import check_kernel
from ..settings.machines import Cluster
from ..study_folder.patience import patience_with_disk
from ..trials import Reason, RunningTrial, TrialOutcome, TrialSpec, display_path
from .acceptance import imported_modules, kernel_python
from .capacity import read_jobs
from .dask_cluster import CallError, DaskCluster, DaskWorker
from .dask_files import travelling_files
from .dask_member import LostError, Member, lost_outcome
from .executor import TrialSource
from .workload import Workload

_log = logging.getLogger(__name__)

#: How often the scheduler is asked for its workers.
_LOOK_S = 1.0
#: How often workers hear from the sweep at least: after 60 s without a call they take it for dead.
_SIGN_OF_LIFE_S = 10.0
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
#: A worker that fails so often before it has run a trial is not used.
_MOST_FAILURES = 3
#: The most names that the line about files that do not travel has.
_MOST_NAMES = 3


class DaskExecutor:
    """Runs trials on the workers of a Dask cluster. Made by `open`, ended by `run` or `close`.

    Args:
        most: how many trials run at once at most; None for as many as the workers have threads.
        own_folders: as in `open`.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: DaskCluster,
        *,
        settings: Cluster,
        most: int | None,
        own_folders: bool,
    ) -> None:
        self._workload = workload
        self._cluster = cluster
        self._settings = settings
        self._most = most
        self._own_folders = own_folders
        self._patience = patience_with_disk(f"the outputs in {display_path(workload.paths.root)}")
        self._modules = imported_modules(workload)
        self._python = kernel_python(workload.kernel_name, self._modules)
        self._key = f"notebook-hpo-{token_hex(4)}"
        #: Guards what follows; notified whenever a worker or a slot changes.
        self._change = threading.Condition(threading.RLock())
        self._members: dict[DaskWorker, Member] = {}
        self._refused: dict[DaskWorker, str] = {}
        self._released: set[DaskWorker] = set()
        self._failures: Counter[DaskWorker] = Counter()
        self._told: set[str] = set()
        self._source: TrialSource | None = None
        self._slots: list[threading.Thread] = []
        self._is_over = self._is_away = False
        self._error: BaseException | None = None
        self._findings: list[str] = []
        self._travelling: Sequence[Path] | None = None
        cluster.subscribe(self._key, self._take_event)

    @classmethod
    def open(
        cls,
        workload: Workload,
        settings: Cluster,
        jobs: int | str | None,
        *,
        own_folders: bool = False,
    ) -> DaskExecutor:
        """Connect to a cluster, or start one, and wait for a first worker that can run trials.

        Args:
            jobs: trials at once at most; None or `"auto"` for as many as the workers have threads.
            own_folders: whether each worker is to have a copy of the notebook's folder and of the
                checkpoints also where it has the same disk.

        Raises:
            KernelError: this machine lacks the notebook's kernel, which workers are compared with.
            SettingsError: there is no such cluster, or none of its workers can run trials.
        """
        check_kernel(workload.kernel_name, asked_by=workload.notebook.display_name)
        most = None
        if jobs not in (None, "auto"):
            most = read_jobs(jobs, workload.settings.resources.threads).count
        executor = cls(
            workload,
            DaskCluster.open(settings),
            settings=settings,
            most=most,
            own_folders=own_folders,
        )
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
        self._end(members, _END_S)
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
        except BrokenError as error:
            source.stop(str(error))
            for member in self._usable():
                member.lose()
            raise
        except BaseException:
            source.stop("an interruption")
            raise
        finally:
            for slot in self._slots:
                slot.join()
            left_s = source.left_s()
            self._end(self._usable(), _END_S if left_s is None else min(_END_S, left_s / 3))
            self.close()
        if self._error is not None:
            raise self._error
        return self._findings

    # --- workers ----------------------------------------------------------------------------------

    def _usable(self) -> list[Member]:
        """The workers that can run trials, or will when the sweep begins."""
        with self._change:
            return [it for it in self._members.values() if it.is_accepted and not it.is_lost]

    def _wait_for_worker(self) -> None:
        """Wait until a worker can run trials, and a moment for others that are there.

        Raises:
            SettingsError: none can, or none has come in time.
        """
        began_s = time.monotonic()
        announced = ""
        while True:
            try:
                present = self._look()
            except CallError as error:
                raise SettingsError(f"{self._cluster.place}: {error}") from error
            waited_s = time.monotonic() - began_s
            with self._change:
                is_coming = any(not it.is_accepted for it in self._members.values())
            if self._usable() and (not is_coming or waited_s > _SETTLE_S):
                return
            refused = list(self._refused.values())
            if self._are_all_refused(present) or waited_s > self._settings.wait:
                raise SettingsError(self._refusal(refused) if refused else self._nobody())
            news = refused[0] if refused else ("" if present else "there is no worker yet")
            if news and news != announced and waited_s > _SOON_S:
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
        refused = len(self._refused)
        return refused > 0 and refused >= present and self._settings.class_ is None

    def _refusal(self, refused: Sequence[str]) -> str:
        more = len(refused) - 1
        others = f" ({more} other workers likewise)" if more > 0 else ""
        return (
            f"{self._cluster.place}: no worker can run these trials: {refused[0]}{others}; give "
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
            CallError: the scheduler does not answer.
        """
        present = self._cluster.workers()
        with self._change:
            for worker, member in list(self._members.items()):
                if worker not in present:
                    member.lose()
                if member.is_lost and not member.used:
                    del self._members[worker]
            for worker in [worker for worker in self._refused if worker not in present]:
                del self._refused[worker]
            known = {*self._members, *self._refused, *self._released}
            for worker in {worker for worker, is_running in present.items() if is_running} - known:
                member = self._members[worker] = Member(
                    self._cluster, worker, key=self._key, patience=self._patience
                )
                threading.Thread(
                    target=self._welcome, args=[member], name="cluster worker", daemon=True
                ).start()
        return len(present)

    def _welcome(self, member: Member) -> None:
        """Accept a worker that has come and make it ready for trials, or refuse it."""
        worker = member.worker
        try:
            why = member.look(self._workload, self._modules, self._python)
            if not why:
                with self._change:
                    member.is_accepted = True
                    self._change.notify_all()
                    while self._source is None and not member.is_lost:
                        self._change.wait(_LOOK_S)
                if self._source is None:
                    return
                member.share(self._signs())
                files = () if member.shares_code else self._files()
                why = member.open(self._workload, files, self._source)
        except LostError as error:  # it is looked at again while it is there
            _log.info("%s: %s", worker.address, error)
            self._failures[worker] += 1
            why = str(error) if self._failures[worker] >= _MOST_FAILURES else ""
            member.lose()
        if why:
            self._refuse(member, why)
        with self._change:
            member.is_ready = not member.is_lost
            self._change.notify_all()

    def _refuse(self, member: Member, why: str) -> None:
        """Keep a worker from being used; a line says it of the first with the same reason."""
        worker = member.worker
        place = f"worker {worker.address}" + (f" ({member.host})" if member.host else "")
        with self._change:
            is_waited_for = self._source is None and not self._usable()
            if why not in self._told and not is_waited_for:
                _log.warning("%s: %s; it is not used", place, why)
            self._told.add(why)
            self._refused[worker] = f"{place}: {why}"
        self._end([member], _END_S)

    def _signs(self) -> dict[str, tuple[str, str] | None]:
        """Files by which a worker recognises that it has a disk of home's."""
        files = {
            "code_sign": self._workload.notebook.path,
            "study_sign": self._workload.paths.owner,
        }
        signs: dict[str, tuple[str, str] | None] = dict.fromkeys(files)
        if not self._own_folders:
            for name, file in files.items():
                with suppress(OSError, ValueError):
                    signs[name] = str(file), file.read_text("utf-8")
        return signs

    def _files(self) -> Sequence[Path]:
        """The files beside the notebook that travel; a line names once what is too large."""
        with self._change:
            if self._travelling is None:
                self._travelling, left_behind = travelling_files(self._workload)
                largest = sorted(left_behind, reverse=True)
                names = ", ".join(
                    f"{os.path.relpath(path, self._workload.cwd)} ({size / 1e6:.0f} MB)"
                    for size, path in largest[:_MOST_NAMES]
                )
                more = len(largest) - _MOST_NAMES
                if largest:
                    _log.warning(
                        "large files do not travel to workers: %s%s; put data on a disk that the "
                        "workers have, and name it in the notebook by its absolute path",
                        names,
                        f" and {more} more" if more > 0 else "",
                    )
        return self._travelling

    def _take_event(self, event: Mapping[str, Any]) -> None:
        """Take what a worker has logged: a point of a trial, or how far it is with its data."""
        if "line" in event:
            _log.warning("worker %s: %s", event["host"], event["line"])
        for member in self._usable():
            member.publish(event)

    def _end(self, members: Sequence[Member], limit_s: float) -> None:
        """End the processes on workers, and keep what each of them knows of its trials."""
        addresses = [member.worker.address for member in members if not member.is_lost]
        for member in members:
            member.lose()
        if not addresses:
            return
        try:
            answers = self._cluster.ask_all(addresses, self._key, act="end", timeout_s=limit_s)
            self._cluster.ask_all(addresses, "plugin-remove", name=self._key)
        except CallError as error:  # the workers end by themselves, as after the sweep's death
            _log.info("%s: %s", self._cluster.place, error)
            return
        with self._change:
            for findings in answers.values():
                new = [str(text) for text in findings]
                self._findings += [text for text in new if text not in self._findings]

    # --- the sweep --------------------------------------------------------------------------------

    def _watch(self, source: TrialSource) -> None:
        """Use workers as they come, and notice those that go, until all slots have ended.

        Raises:
            BrokenError: the scheduler or all workers stay away.
        """
        answered_s = used_s = scaled_s = told_s = time.monotonic()
        times, present = _times(source), 0
        while True:
            now_s = time.monotonic()
            try:
                present = self._look()
                answered_s, self._is_away = now_s, False
            except CallError as error:
                self._wait_for_scheduler(source, now_s - answered_s, error)
            self._start_slots(source)
            if not any(slot.is_alive() for slot in self._slots) and (
                self._is_over or source.is_closed()
            ):
                return
            if now_s - scaled_s > _SCALE_AGAIN_S and not self._is_over:
                scaled_s = now_s
                self._cluster.scale_again()
            if self._usable() or answered_s < now_s:
                used_s = now_s
            elif self._are_all_refused(present):
                raise BrokenError(self._refusal(list(self._refused.values())))
            elif now_s - used_s > self._settings.wait:
                raise BrokenError(
                    f"{self._cluster.place}: all workers are lost, and none has come for "
                    f"{self._settings.wait:g} s (cluster: wait); the same command goes on"
                )
            if (new := _times(source)) != times or now_s - told_s > _SIGN_OF_LIFE_S:
                times, told_s = new, now_s
                self._tell(times)
            self._pause()

    def _wait_for_scheduler(self, source: TrialSource, away_s: float, error: CallError) -> None:
        """Wait for a scheduler that does not answer, as long as for a storage.

        Raises:
            BrokenError: it has been away for too long.
        """
        limit_s = max(_SCHEDULER_AWAY_S, source.patience_s())
        if not self._is_away:
            self._is_away = True
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

    def _tell(self, times: Mapping[str, Any]) -> None:
        """Tell all workers how long the sweep still has; a sign of life as well."""
        addresses = [member.worker.address for member in self._usable()]
        try:
            self._cluster.ask_all(
                addresses, self._key, timeout_s=_SIGN_OF_LIFE_S, act="times", **times
            )
        except CallError as error:
            _log.info("%s: %s", self._cluster.place, error)

    def _scale(self) -> None:
        """Ask the cluster for as many workers as the trials need."""
        if self._settings.class_ is not None:
            trials = self._workload.settings.study.trials
            at_once = trials if self._most is None else min(trials, self._most)
            self._cluster.scale(min(self._settings.max, at_once))

    # --- slots ------------------------------------------------------------------------------------

    def _start_slots(self, source: TrialSource) -> None:
        """Start a thread for each slot that the workers offer and none serves."""
        if self._is_over or source.is_closed():
            return
        alive = [slot for slot in self._slots if slot.is_alive()]
        offered = sum(member.slots for member in self._usable() if member.is_ready)
        wanted = offered if self._most is None else min(self._most, offered)
        for _ in range(wanted - len(alive)):
            slot = threading.Thread(
                target=self._serve, args=[source], name="cluster slot", daemon=True
            )
            alive.append(slot)
            slot.start()
        self._slots = alive

    def _serve(self, source: TrialSource) -> None:
        """Run trials in one slot, each on whichever worker has a free thread."""
        try:
            while (member := self._take(source)) is not None:
                trial = source.next_trial()
                if trial is None:
                    self._note_end(member)
                    return
                outcome = self._run(source, member, *trial)
                source.finish_trial(trial[0], outcome)
                if outcome.reason is Reason.WORKER_LOST:  # it is run again
                    with self._change:
                        self._is_over = False
                        self._released.clear()
                    self._scale()
        except BaseException as error:  # noqa: BLE001  `run` raises it
            self._error = self._error or error
            source.stop("an error of a slot")

    def _run(
        self, source: TrialSource, member: Member, spec: TrialSpec, running: RunningTrial
    ) -> TrialOutcome:
        """Run a trial, on another worker where this one was lost while the trial was waited for."""
        now: Member | None = member
        if member.is_lost:
            self._give_back(member)
            now = self._take(source)
        if now is None:
            return lost_outcome(member.host)
        try:
            return now.run_trial(spec, running, pace_s=max(_LOOK_S, len(self._slots) / 50))
        finally:
            self._give_back(now)

    def _take(self, source: TrialSource) -> Member | None:
        """A worker with a free thread, as soon as there is one; None where no more are needed."""
        with self._change:
            while True:
                ready = [member for member in self._usable() if member.is_ready]
                free = [member for member in ready if member.used < member.slots]
                if free:
                    # The worker with the fewest trials, so that they spread over the machines.
                    member = min(free, key=lambda member: member.used / member.slots)
                    member.used += 1
                    return member
                if self._is_over or source.is_closed() or self._error is not None:
                    return None
                self._change.wait(_LOOK_S)

    def _give_back(self, member: Member) -> None:
        with self._change:
            member.used -= 1
            self._change.notify_all()

    def _note_end(self, member: Member) -> None:
        """There are no more trials: the slot ends, and a worker that runs none may go."""
        self._give_back(member)
        with self._change:
            self._is_over = True
            if member.used or member.is_lost or self._settings.class_ is None:
                return
            self._released.add(member.worker)
            self._members.pop(member.worker, None)
        self._end([member], _END_S)
        self._cluster.dismiss(member.worker)


def _times(source: TrialSource) -> Mapping[str, Any]:
    return {"patience_s": source.patience_s(), "left_s": source.left_s()}
