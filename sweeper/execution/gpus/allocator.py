"""Hand each trial its share of a GPU, in turn, and watch how much of it the trial takes."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager

from ...trials import GpuNeed, GpuUse, RunningTrial, TrialSpec
from ..machine.ledger import Claim, Ledger, StoppedWaiting, Turn, closed_for
from .driver import Gpu, GpuDriver
from .environment import kernel_environment
from .loads import GpuLoad, load_of
from .measures.ends import ExpectedEnds
from .measures.pace import Pace
from .policy import FewestTrials, GpuPolicy, Waiting, WaitingTrials, next_to_go
from .present import chosen_gpus, installed_driver
from .shares import Estimates, Lease, Part, Share, lease_on, loads_soon, part_of, taken_by

_log = logging.getLogger(__name__)

#: How long a trial whose need is not known must not have grown before others may join it.
_SETTLED_S = 10.0
#: How long such a trial may take nothing of its GPU before it counts as one that does not use it.
_UNUSED_S = 60.0
#: How long to watch how fast a trial steps among so many, where that decides how many there are.
_WINDOW_S = 20.0
#: How long a trial waits before other sweeps of the machine let it go first.
_PATIENCE_S = 60.0
#: How often to look at the memory of running trials, and at the claims of other sweeps.
_LOOK_S = 1.0


class GpuAllocator:
    """Gives each trial a share of a GPU, the one that has waited longest first.

    Where that one needs more than is free now, or others pack clearly better, those may go before
    it a few times. A trial whose need nobody knows begins on an empty GPU; others join it
    when its memory has not grown for a while, or when it has not used the GPU for a minute.

    Args:
        gpus: those that trials may use; empty on a machine without any.
        threads: that each kernel computes with.
        driver: knows how much of their memory is in use; default: NVIDIA's.
        ledger: the claims of all sweeps of the machine.
        policy: which GPU a trial gets.
        per_trial: how many GPUs each trial gets; more than one are its own.
        keeps_spare: whether a part of each GPU stays free; not where users state what fits.
        holds_back: whether trials wait, although their memory fits, where fewer at once get more
            done; not where users say how many run at once.
        hidden: whether kernels must not see GPUs that are not in `gpus`, such as those of a
            machine whose driver cannot be asked.
        look_s: how often to look at the memory of running trials.
        settled_s: how long a trial must not have grown before others join it.
        unused_s: how long it may take nothing of its GPU before it counts as one that takes none;
            and how long all trials may wait before that is reported.
        window_s: how long to watch how fast a trial steps among so many.
        patience_s: how long a trial waits before other sweeps of the machine let it go first.
    """

    def __init__(
        self,
        gpus: Sequence[Gpu],
        *,
        threads: int,
        driver: GpuDriver | None = None,
        ledger: Ledger | None = None,
        policy: GpuPolicy | None = None,
        per_trial: int = 1,
        keeps_spare: bool = True,
        holds_back: bool = False,
        hidden: bool = False,
        look_s: float = _LOOK_S,
        settled_s: float = _SETTLED_S,
        unused_s: float = _UNUSED_S,
        window_s: float = _WINDOW_S,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._gpus = list(gpus)
        self._threads = threads
        self._driver = driver or installed_driver()
        self._ledger: Ledger | None = ledger or Ledger()
        self._policy = policy or FewestTrials()
        self._per_trial = per_trial
        self._keeps_spare = keeps_spare
        self._hidden = hidden
        self._paces = {g.name: Pace(window_s=window_s) for g in gpus if holds_back}
        self._look_s, self._unused_s = look_s, unused_s
        #: The names of GPUs that take no trial now; whoever removes one ends a share afterwards.
        self.closed: Set[str] = frozenset()
        self._queue = WaitingTrials()
        self._shares: list[Share] = []
        self._estimates = Estimates(settled_s=settled_s, unused_s=unused_s)
        self._ends = ExpectedEnds()
        self._changed = threading.Condition()
        self._turn = Turn(patience_s)
        self._is_watching = False
        self._has_reported = False

    @classmethod
    def find(
        cls,
        wanted: str | Sequence[int],
        *,
        threads: int,
        memory_bytes: int | None = None,
        per_trial: int = 1,
        holds_back: bool = False,
        driver: GpuDriver | None = None,
    ) -> GpuAllocator:
        """The GPUs of this machine that a parameters file asks for.

        Args:
            wanted: `"auto"` for all, `"none"`, or their numbers: in nvidia-smi's order, or in
                that of CUDA_VISIBLE_DEVICES where it is set.
            threads: that each kernel computes with.
            memory_bytes: of a GPU, that each trial takes as users state it; None if they do not.
            per_trial: how many GPUs each trial gets.
            holds_back: whether fewer trials run at once than fit where those get more done.
            driver: knows the GPUs; default: NVIDIA's.

        Raises:
            SettingsError: a number is asked for that this machine does not have, a GPU is too
                small for a single trial, or there are too few for one.
        """
        if wanted == "none":
            return cls((), threads=threads, hidden=True)
        driver = driver or installed_driver()
        return cls(
            chosen_gpus(wanted, driver, memory_bytes=memory_bytes, per_trial=per_trial),
            threads=threads,
            driver=driver,
            per_trial=per_trial,
            keeps_spare=memory_bytes is None,
            holds_back=holds_back and per_trial == 1,
        )

    @property
    def gpus(self) -> list[str]:
        """The GPUs that trials run on, as CUDA_VISIBLE_DEVICES names them."""
        return [gpu.name for gpu in self._gpus]

    @property
    def devices(self) -> list[Gpu]:
        """The GPUs that trials run on."""
        return list(self._gpus)

    @property
    def env(self) -> dict[str, str]:
        """What all kernels find in their environment, before they import anything."""
        return kernel_environment(self._threads, has_gpus=bool(self._gpus), is_hidden=self._hidden)

    @property
    def findings(self) -> list[str]:
        """What users should know of how GPUs were shared, one sentence each."""
        return [pace.finding for pace in self._paces.values() if pace.finding]

    @property
    def waiting(self) -> int:
        """How many trials wait for a share."""
        return len(self._queue)

    @contextmanager
    def allocate(self, spec: TrialSpec, running: RunningTrial) -> Iterator[Lease]:
        """A share for one trial, given back at the end of the block.

        Args:
            running: the same trial as it runs: a stop ends the wait at once, and the time that the
                trial waits does not count as its own.

        Raises:
            StoppedWaiting: the trial was stopped before it had a share.
        """
        if not self._gpus:
            yield Lease(gpu=None, env={})
            return
        share = self._take(spec, running)
        try:
            yield share.lease
        finally:
            self._give_back(share)

    def learn(self, peak_bytes: int) -> None:
        """Expect of other trials, whose need nobody knows, what one took that ran to its end."""
        with self._changed:
            self._estimates.learn(peak_bytes)
            for share in self._shares:
                self._claim_expected(share)
            self._changed.notify_all()

    def use_of(self, lease: Lease) -> GpuUse:
        """What a trial has taken of its GPUs until now."""
        with self._changed:
            for gpu in self._gpus:
                if gpu.name in (lease.gpu or "").split(","):
                    self._measure(gpu)
            shares = lease.busy_shares
            busy_share = round(sum(shares) / len(shares), 4) if shares else None
            return GpuUse(peak_bytes=lease.peak_bytes, busy_share=busy_share)

    # --- who gets a share ---------------------------------------------------------------------

    def _take(self, spec: TrialSpec, running: RunningTrial) -> Share:
        with self._changed:
            waiting = self._queue.add(spec, running)
        running.on_stop(self._wake)
        try:
            with running.waiting(), self._changed:
                while not running.stop_reason:
                    share = self._claim(waiting) if waiting in self._queue.asking() else None
                    if share is not None:
                        self._queue.passed_by(waiting)
                        self._shares.append(share)
                        self._begin_to_watch()
                        return share
                    self._changed.wait(self._look_s)
                    self._report_wait(running)
                raise StoppedWaiting
        finally:
            running.on_stop(None)
            with self._changed:
                if self._queue.first is waiting:
                    self._turn.end()
                self._queue.remove(waiting)
                self._changed.notify_all()  # the next trial is the first now

    def _report_wait(self, running: RunningTrial) -> None:
        """Warn once that all trials wait, which only others on the machine can end."""
        if not self._shares and not self._has_reported and running.waited_s > self._unused_s:
            self._has_reported = True
            _log.warning(
                "trials wait because other programs or sweeps use the memory of %s; end them, or "
                "choose other GPUs with resources.gpus",
                ", ".join(self.gpus),
            )

    def _give_back(self, share: Share) -> None:
        with self._changed:
            now_s = time.monotonic()
            self._ends.learn(share.running, began_s=share.began_s, now_s=now_s)
            for part in share.parts:
                self._measure(part.gpu)
                if part.gpu.name in self._paces:
                    n_trials = len(self._on(part.gpu))
                    self._paces[part.gpu.name].ended(share.running, n_trials, now_s)
            self._shares.remove(share)
            for part in share.parts:
                if part.held is not None:
                    part.held.release()
            self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _claim(self, waiting: Waiting) -> Share | None:
        """A share for a trial, if there is one now."""
        # What each one needs is computed before other sweeps have to wait at the gate.
        asking = [(other, self._need_of(other)) for other in self._queue.asking()]
        if self._ledger is not None:
            try:
                with self._ledger.gate():
                    claims = self._ledger.claims()
                    return self._claim_beside(waiting, asking, claims, self._ledger)
            except OSError as error:
                self._ledger = None
                _log.warning(
                    "other sweeps of this machine are not considered when GPUs are shared: %s",
                    error,
                )
        return self._claim_beside(waiting, asking, self._own_claims(), None)

    def _own_claims(self) -> list[Claim]:
        return [part.claim for share in self._shares for part in share.parts]

    def _claim_beside(
        self,
        waiting: Waiting,
        asking: Sequence[tuple[Waiting, GpuNeed]],
        claims: Sequence[Claim],
        ledger: Ledger | None,
    ) -> Share | None:
        all_loads = [
            load_of(gpu, self._driver, claims, keeps_spare=self._keeps_spare) for gpu in self._gpus
        ]
        of_others = closed_for(self._queue.first.since_s, claims)
        loads = [
            load for load in all_loads if load.name not in of_others and self._is_open(load.gpu)
        ]
        # Where fewer trials at once get more done, memory that stays free is no loss.
        fills = all(pace.limit == math.inf for pace in self._paces.values())
        soon = loads_soon(loads, self._shares, self._ends)
        found = next_to_go(self._policy, asking, loads, self._per_trial, fills=fills, soon=soon)
        need = next(need for other, need in asking if other is waiting)
        if found is None and ledger is not None and self._queue.first is waiting:
            self._ask_for_turn(need, all_loads, ledger)
        if found is None or found[0] is not waiting:  # another one is about to ask
            return None
        chosen = found[1]
        parts = [part_of(load, need, ledger, self._used_bytes(load.gpu)) for load in chosen]
        return Share(
            running=waiting.running,
            lease=lease_on(chosen, need),
            parts=parts,
            has_settled=need.memory_bytes is not None,
        )

    def _is_open(self, gpu: Gpu) -> bool:
        pace = self._paces.get(gpu.name)
        return gpu.name not in self.closed and (pace is None or len(self._on(gpu)) < pace.limit)

    def _ask_for_turn(self, need: GpuNeed, loads: Sequence[GpuLoad], ledger: Ledger) -> None:
        """Have other sweeps make room on the GPU with the fewest trials, where that can help."""
        could = [load for load in loads if load.could_hold(need)]
        if could:
            name = min(could, key=lambda load: load.n_trials).name
            self._turn.ask(ledger, name, since_s=self._queue.first.since_s)
        else:
            self._turn.end()

    def _need_of(self, waiting: Waiting) -> GpuNeed:
        if self._per_trial > 1:
            return GpuNeed(is_alone=True)
        predicted = waiting.predicted
        if predicted == GpuNeed():
            return GpuNeed(memory_bytes=self._estimates.expected_bytes, is_estimate=True)
        return predicted

    # --- how much each trial takes ------------------------------------------------------------

    def _begin_to_watch(self) -> None:
        if not self._is_watching and any(gpu.uuid is not None for gpu in self._gpus):
            self._is_watching = True
            threading.Thread(target=self._watch, name="gpu memory", daemon=True).start()

    def _watch(self) -> None:
        """Look at the memory of all shares, until there are none."""
        with self._changed:
            while self._shares:
                for gpu in self._gpus:
                    self._look_at(gpu)
                end_s = time.monotonic() + self._look_s
                while self._shares and (left_s := end_s - time.monotonic()) > 0:
                    self._changed.wait(left_s)
            self._is_watching = False

    def _look_at(self, gpu: Gpu) -> None:
        found = self._on(gpu)
        busy_share = self._measure(gpu) if found else None
        if gpu.name in self._paces:
            running = [share.running for share, _ in found]
            self._paces[gpu.name].look(running, time.monotonic(), busy_share=busy_share)

    def _measure(self, gpu: Gpu) -> float | None:
        """See what its trials take of a GPU, and how busy it is, where that is known."""
        if gpu.uuid is None:
            return None
        taken = list(taken_by(self._on(gpu), self._driver, gpu.uuid))
        for share, used_bytes in taken:
            self._estimates.note(share, used_bytes)
            self._claim_expected(share)
        busy_share = self._driver.busy_share(gpu.uuid)
        for share, _ in taken:
            if busy_share is not None:
                share.lease.busy_shares.append(busy_share)
        return busy_share

    def _claim_expected(self, share: Share) -> None:
        """Claim for a trial what it is expected to take by now."""
        expected = self._estimates.to_claim(share)
        for part in share.parts:
            if expected is not None and part.claim_bytes(expected):
                self._changed.notify_all()

    def _on(self, gpu: Gpu) -> list[tuple[Share, Part]]:
        return [(s, part) for s in self._shares for part in s.parts if part.gpu is gpu]

    def _used_bytes(self, gpu: Gpu) -> int | None:
        return None if gpu.uuid is None else self._driver.used_bytes(gpu.uuid)
