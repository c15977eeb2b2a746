"""The executor of a coordinator that leads: trials on its machine and on all that join it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from ...errors import SettingsError, StorageAwayError, first_line
from ...execution.cluster.executor import ClusterExecutor
from ...execution.cluster.members.member import Member
from ...execution.cluster.members.own_scheduler import OwnScheduler
from ...execution.executor import TrialSource
from ...execution.workload import Workload
from ...settings.machines import Cluster
from ...study.coordinators.leadership import Leadership
from ...study_folder.patience import Patience
from ...trials import GpuTotal

_COMPLETE, _STOPPED = "the study has all its trials", "it was stopped there"
#: How often to look at the worker of this machine.
_LOOK_S = 5.0
#: How often to look whether it has joined.
_JOINING_S = 0.1

_log = logging.getLogger(__name__)


class SharedExecutor:
    """Runs trials on the machines of all coordinators. Made by `open`, ended by `run` or `close`.

    Args:
        member: the worker of this machine, the first to join.
        leadership: where the others find the scheduler, as soon as trials run.
        slots: of the worker.
    """

    def __init__(
        self,
        cluster: ClusterExecutor,
        *,
        scheduler: OwnScheduler,
        member: Member,
        leadership: Leadership,
        slots: int,
    ) -> None:
        self._cluster = cluster
        self._scheduler = scheduler
        self._member = member
        self._leadership = leadership
        self._slots = slots
        self._ended = threading.Event()

    @classmethod
    def open(
        cls, workload: Workload, *, leadership: Leadership, host: str, slots: int
    ) -> SharedExecutor:
        """Start a scheduler and a worker on this machine.

        Args:
            host: the address at which other machines reach this one.
            slots: how many trials run on this machine at once.

        Raises:
            SettingsError: Dask is not installed, or this machine cannot be reached at the address.
        """
        scheduler = OwnScheduler.open(host)
        with ExitStack() as opened:
            opened.callback(scheduler.close)
            member = _member_of(scheduler, slots)
            opened.callback(member.close)
            _wait_until_joined(member, scheduler.address, host)
            cluster = ClusterExecutor.open(
                workload, Cluster(url=scheduler.address), None, cluster=scheduler.cluster
            )
            opened.pop_all()
        return cls(cluster, scheduler=scheduler, member=member, leadership=leadership, slots=slots)

    @property
    def jobs(self) -> int:
        """How many trials run at once; it grows with each machine that joins."""
        return self._cluster.jobs

    @property
    def description(self) -> str:
        """Where the trials run."""
        return self._cluster.description

    @property
    def gpu_totals(self) -> Sequence[GpuTotal]:
        """What each GPU of the machines did, once the trials have ended."""
        return self._cluster.gpu_totals

    def run(self, source: TrialSource) -> Sequence[str]:
        """Keep the slots of all machines busy until there are no more trials.

        The study is held when this is called, so that no other coordinator leads meanwhile. The
        others end as well when the sweep has ended; where the machine is taken away, one of them
        leads instead.
        """
        if source.is_closed():  # before anything began: the study is for the others to go on with
            return ()
        patience = Patience(
            self._leadership.place, may_pass=lambda error: isinstance(error, StorageAwayError)
        )
        patience.begin(source.patience_s)
        scheduler = self._scheduler
        patience.insist(
            lambda: self._leadership.announce(
                address=scheduler.address, security=scheduler.security
            )
        )
        keeping = threading.Thread(
            target=self._keep_member, args=[source], name="own worker", daemon=True
        )
        keeping.start()
        try:
            findings = self._cluster.run(source)
        finally:
            self._ended.set()
            keeping.join()
        if source.left_s() is None:
            why = _STOPPED if source.is_closed() else _COMPLETE
            with suppress(StorageAwayError):  # for so long that another one leads by now
                patience.insist(lambda: self._leadership.announce_end(why))
        return findings

    def close(self) -> None:
        """End the scheduler and the worker of this machine."""
        self._cluster.close()  # with the scheduler, which is this cluster's
        self._member.close()

    def _keep_member(self, source: TrialSource) -> None:
        """Start the worker of this machine again when it has ended before the sweep."""
        while not self._ended.wait(_LOOK_S):
            is_ending = source.is_closed() or self._scheduler.cluster.is_closed
            if is_ending or not self._member.has_ended():
                continue
            self._member.close()
            try:
                self._member = _member_of(self._scheduler, self._slots)
            except OSError as error:
                _log.warning(
                    "the worker of this machine has ended, and no other one can be started: %s; "
                    "it is tried again",
                    first_line(error),
                )
            else:
                _log.warning("the worker of this machine has ended; another one was started")


def _member_of(scheduler: OwnScheduler, slots: int) -> Member:
    return Member(address=scheduler.address, security=scheduler.security, slots=slots)


def _wait_until_joined(member: Member, address: str, host: str) -> None:
    """Wait for a worker of this machine, which ends by itself when it cannot join.

    Raises:
        SettingsError: it cannot.
    """
    while not member.has_joined:
        if member.has_ended(_JOINING_S) and not member.has_joined:
            raise SettingsError(
                f"--shared {host}: this machine cannot reach its own scheduler at {address}: "
                f"{member.failure}; give an address at which it and the others reach it"
            )
