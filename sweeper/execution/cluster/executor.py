"""Trials on the workers of a Dask cluster, which may come late and may be lost."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from ...errors import SettingsError
from ...settings.machines import Cluster
from ...study_folder.patience import Patience, patience_with_disk
from ...trials import Reason, RunningTrial, TrialOutcome, TrialSpec, display_path
from ..executor import TrialSource
from ..machine.capacity import read_jobs
from ..workload import Workload
from .crew import Crew
from .dask_cluster import CallError, DaskCluster
from .link import WorkerLink
from .messages import Times, lost_outcome

_log = logging.getLogger(__name__)

#: How often the scheduler is asked for its workers.
_LOOK_S = 1.0
#: Workers that come within this time need no line about the wait.
_SOON_S = 5.0
#: How long the first worker waits for others that are there and have not answered yet.
_SETTLE_S = 10.0
#: How long a scheduler may stay away before the sweep ends. Its workers end themselves without it.
_SCHEDULER_AWAY_S = 30.0
#: How often a cluster is asked for its workers again: jobs end, and Dask notices after 15 s.
_SCALE_AGAIN_S = 30.0
#: How long the workers' processes have to end when the trials have.
_END_S = 30.0


class ClusterExecutor:
    """Runs trials on the workers of a Dask cluster. Made by `open`, ended by `run` or `close`.

    Args:
        most: how many trials run at once at most; None for as many as the workers have slots.
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
        self._patience: Patience = patience_with_disk(
            f"the outputs in {display_path(workload.paths.root)}"
        )
        self._crew = Crew(workload, cluster, patience=self._patience, own_folders=own_folders)
        self._change = threading.Condition()
        #: The links that slots use, once for each trial that runs there.
        self._used: list[WorkerLink] = []
        self._slots: list[threading.Thread] = []
        self._is_over = False
        self._error: BaseException | None = None

    @classmethod
    def open(
        cls,
        workload: Workload,
        settings: Cluster,
        jobs: int | str | None,
        *,
        own_folders: bool = False,
        cluster: DaskCluster | None = None,
    ) -> ClusterExecutor:
        """Connect to a cluster, or start one, and wait for a first worker that can run trials.

        Args:
            jobs: trials at once at most; None or `"auto"` for as many as the workers have slots.
            cluster: one that is open already; default: the one that the settings state.
            own_folders: whether each worker is to have a copy of the notebook's folder and of the
                checkpoints also where it has the same disk.

        Raises:
            SettingsError: there is no such cluster, or none of its workers can run trials.
        """
        most = None
        if jobs not in (None, "auto"):
            most = read_jobs(jobs, workload.settings.resources.threads).count
        executor = cls(
            workload,
            DaskCluster.open(settings) if cluster is None else cluster,
            settings=settings,
            most=most,
            own_folders=own_folders,
        )
        try:
            executor._scale(workload.settings.study.trials)
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
        offered = sum(link.slots for link in self._crew.links())
        if self._most is not None and self._workload.settings.study.order == "fixed":
            return self._most
        return max(1, offered if self._most is None else min(self._most, offered or self._most))

    @property
    def description(self) -> str:
        """Where the trials run."""
        links = self._crew.links()
        hosts = {link.host for link in links}
        workers = "1 worker" if len(links) == 1 else f"{len(links)} workers"
        on = f" on {len(hosts)} hosts" if len(hosts) > 1 else ""
        return f"{workers}{on} of {self._cluster.place}"

    def close(self) -> None:
        """End what was started on the workers, and the cluster that this sweep has started."""
        self._crew.close()
        self._cluster.close()

    def run(self, source: TrialSource) -> Sequence[str]:
        """Keep the slots of all workers busy until there are no more trials."""
        self._patience.begin(source.patience_s)
        self._crew.begin(source)
        findings: list[str] = []
        try:
            self._watch(source)
        except BaseException:
            source.stop("an interruption")
            raise
        finally:
            for slot in self._slots:
                slot.join()
            left_s = source.left_s()
            patience_s = _END_S if left_s is None else min(_END_S, left_s / 3)
            for found in self._crew.end(patience_s=patience_s):
                findings += [text for text in found if text not in findings]
            self.close()
        if self._error is not None:
            raise self._error
        return [*findings, *self._crew.findings]

    # --- workers ----------------------------------------------------------------------------------

    def _wait_for_worker(self) -> None:
        """Wait until a worker can run trials.

        Raises:
            SettingsError: none can, or none has come in time.
        """
        began_s = time.monotonic()
        announced = ""
        while not self._crew.links():
            try:
                present = self._crew.look()
            except CallError as error:
                raise SettingsError(f"{self._cluster.place}: {error}") from error
            refused, waited_s = self._crew.refused, time.monotonic() - began_s
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
            self._crew.changed.wait(_LOOK_S)
            self._crew.changed.clear()
        # Those that are there by now count for the number of trials at once.
        self._crew.settle(timeout_s=_SETTLE_S)

    def _are_all_refused(self, present: int) -> bool:
        """Whether all workers that there are were refused, and no others are to be expected."""
        refused = self._crew.refused
        return bool(refused) and len(refused) >= present and self._settings.class_ is None

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

    def _watch(self, source: TrialSource) -> None:
        """Use workers as they come, and notice those that go, until all slots have ended."""
        answered_s = used_s = scaled_s = time.monotonic()
        times, present = Times.of(source), 0
        while True:
            now_s = time.monotonic()
            try:
                present = self._crew.look()
                answered_s = now_s
            except CallError as error:
                if now_s - answered_s > _SCHEDULER_AWAY_S:
                    source.stop(f"the Dask scheduler, which does not answer: {error}")
                    self._crew.lose_all()
            self._start_slots(source)
            if not any(slot.is_alive() for slot in self._slots) and (
                self._is_over or source.is_closed()
            ):
                return
            if now_s - scaled_s > _SCALE_AGAIN_S and not self._is_over:
                scaled_s = now_s
                self._cluster.scale_again()
            if self._crew.links():
                used_s = now_s
            elif self._are_all_refused(present):
                source.stop(self._refusal(self._crew.refused))
            elif now_s - used_s > self._settings.wait:
                source.stop(f"the loss of all workers; none has come for {self._settings.wait:g} s")
            if (new := Times.of(source)) != times:
                times = new
                self._crew.set_times(new)
            self._crew.changed.wait(_LOOK_S)
            self._crew.changed.clear()

    def _scale(self, trials: int) -> None:
        """Ask the cluster for as many workers as so many trials need."""
        if self._settings.class_ is not None:
            at_once = trials if self._most is None else min(trials, self._most)
            self._cluster.scale(max(self._settings.min, min(self._settings.max, at_once)))

    # --- slots ------------------------------------------------------------------------------------

    def _start_slots(self, source: TrialSource) -> None:
        """Start a thread for each slot that the workers offer and none serves."""
        if self._is_over or source.is_closed():
            return
        alive = [slot for slot in self._slots if slot.is_alive()]
        offered = sum(link.slots for link in self._crew.ready())
        wanted = offered if self._most is None else min(self._most, offered)
        for _ in range(wanted - len(alive)):
            slot = threading.Thread(
                target=self._serve, args=[source], name="cluster slot", daemon=True
            )
            alive.append(slot)
            slot.start()
        self._slots = alive

    def _serve(self, source: TrialSource) -> None:
        """Run trials in one slot, on whichever worker has a free place."""
        try:
            link = self._take(source)
            while link is not None:
                trial = source.next_trial()
                if trial is None:
                    self._note_end(link)
                    return
                link = self._run(source, link, *trial)
        except BaseException as error:  # noqa: BLE001  `run` raises it
            self._error = self._error or error
            source.stop("an error of a slot")

    def _run(
        self, source: TrialSource, link: WorkerLink, spec: TrialSpec, running: RunningTrial
    ) -> WorkerLink | None:
        """Run a trial; the worker for the slot's next one, None where there is none."""
        now: WorkerLink | None = link
        if link.is_lost:  # while the trial was waited for
            now = self._exchange(source, link)
        outcome = lost_outcome(link.host) if now is None else now.run_trial(spec, running)
        had_checkpoints = spec.checkpoint_dir.exists()
        self._finish(source, spec, outcome)
        if now is not None and had_checkpoints and not spec.checkpoint_dir.exists():
            now.forget_checkpoints(spec)
        if now is not None and now.is_lost:
            return self._exchange(source, now)
        return now

    def _finish(self, source: TrialSource, spec: TrialSpec, outcome: TrialOutcome) -> None:
        source.finish_trial(spec, outcome)
        if outcome.reason is Reason.WORKER_LOST:
            with self._change:
                self._is_over = False  # it is run again
            self._crew.recall()
            self._scale(self._workload.settings.study.trials)

    def _take(self, source: TrialSource) -> WorkerLink | None:
        """A worker with a free place, as soon as there is one; None where no more are needed."""
        with self._change:
            while True:
                ready = self._crew.ready()
                free = [link for link in ready if self._used.count(link) < link.slots]
                if free:
                    # The worker with the fewest trials, so that they spread over the machines.
                    link = min(free, key=lambda link: self._used.count(link) / link.slots)
                    self._used.append(link)
                    return link
                if self._is_over or source.is_closed():
                    return None
                self._change.wait(_LOOK_S)

    def _exchange(self, source: TrialSource, link: WorkerLink) -> WorkerLink | None:
        """Another worker instead of one that is lost."""
        with self._change:
            self._used.remove(link)
        return self._take(source)

    def _note_end(self, link: WorkerLink) -> None:
        """There are no more trials: the slot ends, and workers that run none may go."""
        with self._change:
            self._used.remove(link)
            self._is_over = True
            is_idle = link not in self._used
            self._change.notify_all()
        if is_idle and self._settings.class_ is not None:
            self._crew.release(link, least=self._settings.min)
