"""One of the coordinators of a study: it leads, or runs trials for the one that does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from ...errors import (
    HeldError,
    HeldStudyError,
    SettingsError,
    StorageAwayError,
    StudyError,
    SweepError,
)
from ...execution.cluster.members.own_scheduler import reachable_address
from ...execution.machine.capacity import read_jobs
from ...execution.workload import Workload, loader_workers
from ...notebooks import ResearchNotebook
from ...notebooks.fingerprint import fingerprint_of
from ...settings import Settings
from ...settings.addresses import Address
from ...study import Study
from ...study.coordinators.leadership import Leader, Leadership
from ..inputs.settled import as_settled
from ..resume_checks import refuse_changes

if TYPE_CHECKING:
    from ...execution.cluster.members.member import Member
    from ..sweep import Sweep
    from .shared_executor import SharedExecutor

#: How often to look who leads: while nobody does, and while trials run for a leader.
_LOOK_S, _LOOK_WHILE_SERVING_S = 0.5, 5.0
#: How long to wait before a leader is called again that could not be reached.
_CALL_AGAIN_S = 5.0
#: How long the leader may take from the end of its scheduler to the end of its sweep.
_ENDING_S = 8.0
#: How long to wait without a word for a leader that holds the study to announce itself.
_QUIET_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Why a coordinator has nothing more to do.

    Attributes:
        leader: the process that has led the study last; empty where none was followed.
        why: the leader's sweep has ended, or who has stopped this process.
        is_stopped: whether this process alone was stopped.
    """

    leader: str = ""
    why: str
    is_stopped: bool = False


class Coordinator:
    """A process that sweeps a study together with others. Made by `of`, ended by `close`.

    Args:
        slots: how many trials run on this machine at once.
        host: the address at which other machines reach this one.
        timeout_s: how long it sweeps, whoever leads; None for as long as it takes.
        check: refuses a study whose trials were made of something else than this process has.
        on_news: called with each line for people.
    """

    def __init__(
        self,
        leadership: Leadership,
        *,
        slots: int,
        host: str,
        timeout_s: float | None,
        check: Callable[[], None],
        on_news: Callable[[str], None],
    ) -> None:
        self._leadership = leadership
        self._slots = slots
        self._host = host
        self._end_by_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._check = check
        self._on_news = on_news
        self._stopped_by = ""
        #: Wakes a wait. A signal may arrive while its own thread holds the lock of an Event; a
        #: SimpleQueue has none.
        self._stops: SimpleQueue[str] = SimpleQueue()
        self._sweep: Sweep | None = None
        self._last_news = ""

    @classmethod
    def of(
        cls,
        settings: Settings,
        *,
        notebook: ResearchNotebook,
        storage: str | None,
        tracking_uri: str | None,
        jobs: str | None,
        host: str,
        timeout_s: float | None,
        kernel: str | None,
        allow_changes: bool,
        on_news: Callable[[str], None],
    ) -> Coordinator:
        """Check what several machines need to sweep one study.

        Args:
            tracking_uri: of MLflow; None where it is a file beside the outputs.
            jobs: trials at once on this machine.
            host: the address at which other machines reach this one; empty for the one on the way
                to the storage.

        Raises:
            SettingsError: something is missing, with the remedy.
            StudyError: the storage cannot be opened.
        """
        if settings.cluster is not None:
            raise SettingsError(
                "--shared and a cluster exclude each other: with --shared each machine brings its "
                "own slots (-j); leave --cluster and the section cluster out"
            )
        if settings.study.order == "fixed":
            raise SettingsError(
                "--shared and study.order: fixed exclude each other: a fixed order depends on how "
                "many trials run at once, which changes with each machine that joins; leave one out"
            )
        if storage is None:
            raise SettingsError(
                "--shared needs --storage postgresql://…: a server that all machines reach holds "
                "the study"
            )
        if tracking_uri is None and settings.sync is None:
            raise SettingsError(
                "--shared needs --tracking-uri (or MLFLOW_TRACKING_URI) with a server that all "
                "machines reach: another machine that leads would not find MLflow's runs in a file "
                "on this one"
            )
        workers = loader_workers(notebook.code, settings.fixed)
        slots = read_jobs(jobs or 1, settings.resources.threads, workers=workers).count
        towards = Address.of(storage).host
        address = host or reachable_address(towards)
        leadership = Leadership(storage, settings.name)

        def check() -> None:
            if allow_changes:
                return
            made_of = fingerprint_of(notebook, settings, kernel_name=kernel or notebook.kernel_name)
            sources = f"{notebook.display_name} and {settings.file or 'the settings'}"
            study = Study.load(leadership.storage, settings.name)
            refuse_changes(study, as_settled(made_of, settings, study), sources=sources)

        return cls(
            leadership,
            slots=slots,
            host=address,
            timeout_s=timeout_s,
            check=check,
            on_news=on_news,
        )

    @property
    def left_s(self) -> float | None:
        """How long it may still sweep, in seconds; None for as long as it takes."""
        return None if self._end_by_s is None else max(1.0, self._end_by_s - time.monotonic())

    def stop(self, by: str, *, now: bool = False) -> None:
        """Stop the sweep that this process leads, or leave the study to the others.

        These run again what runs here: trials cannot come to their end without the leader. Safe to
        call from any thread and from a signal handler.

        Args:
            by: who stops it, for people.
            now: whether trials of an own sweep are stopped as well.
        """
        self._stopped_by = self._stopped_by or by
        self._stops.put(by)
        if self._sweep is not None:
            self._sweep.stop(by, now=now)

    def preempt(self, by: str) -> None:
        """End the sweep that this process leads within the grace time, or leave the study."""
        self._stopped_by = self._stopped_by or by
        self._stops.put(by)
        if self._sweep is not None:
            self._sweep.preempt(by)

    @contextmanager
    def leading(self, sweep: Sweep) -> Iterator[bool]:
        """Have `stop` and `preempt` reach a sweep while the block runs it.

        Yields:
            whether it may run: not where this process was stopped while it was built.
        """
        self._sweep = sweep
        try:
            yield not self._stopped_by
        finally:
            self._sweep = None

    def close(self) -> None:
        """Close the connection to the storage."""
        self._leadership.close()

    def executor(self, workload: Workload) -> SharedExecutor:
        """Where trials run while this process leads."""
        from .shared_executor import SharedExecutor

        return SharedExecutor.open(
            workload, leadership=self._leadership, host=self._host, slots=self._slots
        )

    def follow(self) -> Ended | None:
        """Run trials for whoever leads the study, until nobody does.

        Returns:
            None where this process may lead now; else why there is nothing more to do.

        Raises:
            HeldStudyError: a sweep without `--shared` has the study.
            StudyError: the study's trials were made of something else than this process has, or the
                leader cannot use this machine, as its packages have other versions.
        """
        followed: Leader | None = None
        while not self._must_leave():
            try:
                leader = self._leader_to_follow(followed)
            except StorageAwayError as error:
                self._tell(f"{error}; it is tried again")
                self._wait(_CALL_AGAIN_S)
                continue
            if self._must_leave():
                break
            if leader is None:
                if followed is not None:
                    self._tell(f"{followed.process} is gone; this machine may lead the study now")
                return None
            if leader.ended:
                return Ended(leader=leader.process, why=leader.ended)
            followed = leader
            self._serve(leader)
        leads = "" if followed is None else followed.process
        return Ended(leader=leads, why=self._stopped_by, is_stopped=True)

    def wait_for_holder(self, error: SweepError) -> None:
        """Wait a moment after another process was faster to lead, or a dead one seems to.

        Args:
            error: with which this process was refused.
        """
        try:
            is_led = self._leadership.holder() is not None
        except StorageAwayError:  # `follow` says so
            return
        if is_led:
            self._tell("another machine leads")
        elif isinstance(error, HeldError):  # its text may count seconds
            what = "the study" if isinstance(error, HeldStudyError) else "its remote copy (sync)"
            self._tell(f"{error.held_by} still holds {what}; this machine waits until it is free")
        else:
            self._tell(str(error))
        self._wait(_LOOK_S if is_led else _CALL_AGAIN_S)

    def _leader_to_follow(self, followed: Leader | None) -> Leader | None:
        """The coordinator that leads, as soon as it has announced itself; None for nobody.

        The one that was followed last is returned once more when its sweep has ended for all.

        Raises:
            StorageAwayError: the storage does not answer.
            HeldStudyError: a sweep without `--shared` has the study.
            StudyError: the study's trials were made of something else than this process has.
        """
        began_s = time.monotonic()
        while not self._must_leave():
            holder, leader = self._leadership.holder(), self._leadership.leader()
            if leader is not None and leader.ended and _is_same(leader, followed):
                return leader
            if holder is None:
                return None
            if not holder.is_shared:
                raise HeldStudyError(self._leadership.refusal(holder), held_by=holder.process)
            if leader is not None and leader.token == holder.token and not leader.ended:
                if not _is_same(leader, followed):
                    self._check()
                    return leader
                # A sweep that ends takes its scheduler along, and says so a moment later.
                if time.monotonic() - began_s > _ENDING_S:
                    return leader
            if time.monotonic() - began_s > _QUIET_S:
                self._tell(
                    f"{holder.process} begins to lead the study, or ends its sweep; this machine "
                    "waits for it"
                )
            self._wait(_LOOK_S)
        return None

    def _serve(self, leader: Leader) -> None:
        """Run trials for a leader, until it is gone or this process is stopped."""
        from ...execution.cluster.members.member import Member

        member = Member(address=leader.address, security=leader.security, slots=self._slots)
        try:
            has_ended = self._watch(member, leader)
        finally:
            member.close()
        if member.refusal:
            raise StudyError(
                f"{leader.process}, which leads the study, cannot use this machine: "
                f"{member.refusal}; put that right, and call this again"
            )
        if has_ended and member.failure and not self._has_ended(leader):
            self._tell(
                f"{leader.process}, which leads the study, cannot be reached at {leader.address}: "
                f"{member.failure}; it is tried again. Machines of a study need to reach each "
                "other: start each with --shared ADDRESS where the others use another address"
            )
            self._wait(_CALL_AGAIN_S)

    def _has_ended(self, leader: Leader) -> bool:
        """Whether the sweep of a leader has ended for all."""
        try:
            latest = self._leadership.leader()
        except StorageAwayError:  # `follow` says so
            return True
        return latest is not None and latest.token == leader.token and bool(latest.ended)

    def _watch(self, member: Member, leader: Leader) -> bool:
        """Watch the worker and the leader; whether the worker has ended by itself."""
        looked_s = time.monotonic()
        while not member.has_ended(_LOOK_S):
            if self._must_leave():
                return False
            if member.refusal:
                return False
            if member.has_joined:
                self._tell(
                    f"{leader.process} leads the study; this machine runs its trials, "
                    f"{self._slots} at once"
                )
            if time.monotonic() - looked_s < _LOOK_WHILE_SERVING_S:
                continue
            looked_s = time.monotonic()
            try:
                holder = self._leadership.holder()
            except StorageAwayError:  # trials go on, as those of the leader do
                continue
            # Nobody holds the study for a moment when the server was restarted. A leader that is
            # gone has taken its scheduler along, and that ends the worker.
            if holder is not None and holder.token != leader.token:
                return False
        return True

    def _must_leave(self) -> bool:
        if self._end_by_s is not None and time.monotonic() > self._end_by_s:
            self.stop("--timeout")
        return bool(self._stopped_by)

    def _wait(self, limit_s: float) -> None:
        """Wait for a time, or until this process is stopped."""
        if not self._stopped_by:
            with suppress(Empty):
                self._stops.get(timeout=limit_s)

    def _tell(self, line: str) -> None:
        """Give a line to people, unless it was the last one."""
        if line != self._last_news:
            self._last_news = line
            self._on_news(line)


def _is_same(leader: Leader, followed: Leader | None) -> bool:
    """Whether a leader is the one that was followed before."""
    return followed is not None and leader.token == followed.token
