"""The executor of a coordinator that leads: trials on its machine and on all that join it."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import StorageAwayError
from ...execution.cluster.executor import ClusterExecutor
from ...execution.cluster.members.member import Member
from ...execution.cluster.members.own_scheduler import OwnScheduler
from ...execution.executor import TrialSource
from ...execution.workload import Workload
from ...settings.cluster import Cluster
from ...study.coordinators.leadership import Leadership
from ...study_folder.patience import Patience
from ...trials import GpuTotal

_COMPLETE, _STOPPED = "the study has all its trials", "it was stopped there"


class SharedExecutor:
    """Runs trials on the machines of all coordinators. Made by `open`, ended by `run` or `close`.

    Args:
        member: the worker of this machine, the first to join.
        leadership: where the others find the scheduler, as soon as trials run.
    """

    def __init__(
        self,
        cluster: ClusterExecutor,
        *,
        scheduler: OwnScheduler,
        member: Member,
        leadership: Leadership,
    ) -> None:
        self._cluster = cluster
        self._scheduler = scheduler
        self._member = member
        self._leadership = leadership

    @classmethod
    def open(
        cls, workload: Workload, *, leadership: Leadership, host: str, slots: int
    ) -> SharedExecutor:
        """Start a scheduler and a worker on this machine.

        Args:
            host: the address at which other machines reach this one.
            slots: how many trials run on this machine at once.

        Raises:
            SettingsError: Dask is not installed, or the machine has not this address.
        """
        scheduler = OwnScheduler.open(host)
        member = Member(address=scheduler.address, security=scheduler.security, slots=slots)
        try:
            cluster = ClusterExecutor.open(
                workload, Cluster(url=scheduler.address), None, cluster=scheduler.cluster
            )
        except BaseException:
            scheduler.close()
            member.close()
            raise
        return cls(cluster, scheduler=scheduler, member=member, leadership=leadership)

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
        findings = self._cluster.run(source)
        if source.left_s() is None:
            why = _STOPPED if source.is_closed() else _COMPLETE
            patience.insist(lambda: self._leadership.announce_end(why))
        return findings

    def close(self) -> None:
        """End the scheduler and the worker of this machine."""
        self._cluster.close()  # with the scheduler, which is this cluster's
        self._member.close()
