"""What running trials hold of GPUs, and what those are expected to take whose need nobody knew."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...trials import GpuNeed, RunningTrial, SettledMemory
from ..machine.ledger import Claim, HeldClaim, Ledger
from .driver import CONTEXT_BYTES, Gpu, GpuDriver
from .loads import GpuLoad, used_by_session
from .measures.ends import ExpectedEnds

#: What is added to what one trial took, for another one.
_SPREAD = 1.1
#: The part of its memory by which a trial may still grow that has just settled: with what is added
#: for another one, a quarter. It is half as much when the trial has not grown for twice as long.
_MAY_GROW = 0.14
#: A trial may take so many times what it is expected to: torch counts a share of the memory that
#: CUDA has, which is up to 4 % less than what NVML counts, and a trial that needs no more than the
#: one before must not run short, which may change its last bits.
_CAP = 1.05
#: Growth below this is none.
_STEADY = 1.02


@dataclass(slots=True)
class Lease:
    """A share of a GPU, held by a running trial.

    Attributes:
        gpu: as CUDA_VISIBLE_DEVICES names it, or them; None on a machine without one.
        env: what it adds to the environment of the trial's kernel.
        peak_bytes: the most memory that the trial was seen to take of it; 0 where none was seen.
        is_alone: whether nobody else had any of it when the trial began, and no other trial may.
        busy_shares: of the seconds since it began, in which its GPUs worked for anybody.
        memory_fraction: of its GPU's memory, that the trial should take at most, so that a wrong
            prediction costs no other trial its memory; None for all.
        need: what the trial was expected to need when it got its share.
    """

    gpu: str | None
    env: Mapping[str, str]
    peak_bytes: int = 0
    is_alone: bool = False
    busy_shares: list[float] = field(default_factory=list)
    memory_fraction: float | None = None
    need: GpuNeed = field(default_factory=GpuNeed)


def lease_on(loads: Sequence[GpuLoad], need: GpuNeed) -> Lease:
    """A lease on GPUs with these loads, for a trial that needs so much."""
    names = ",".join(load.gpu.name for load in loads)
    is_alone = need.is_alone and all(load.is_empty for load in loads)
    env = {"CUDA_VISIBLE_DEVICES": names}
    return Lease(
        gpu=names,
        env=env,
        is_alone=is_alone,
        memory_fraction=_memory_fraction(loads, need),
        need=need,
    )


def _memory_fraction(loads: Sequence[GpuLoad], need: GpuNeed) -> float | None:
    """What a trial is expected to take at most, of all; None where it may have all that is free."""
    total_bytes = loads[0].gpu.memory_bytes
    if len(loads) > 1 or need.is_alone or need.is_estimate:
        return None
    if need.memory_bytes is None or total_bytes is None:
        return None
    # A trial that took nothing may take little this time, and one too large is tried alone.
    of_libraries = need.memory_bytes - CONTEXT_BYTES
    share = _CAP * of_libraries / total_bytes
    return share if 0 < share < 1 else None


@dataclass(slots=True, kw_only=True)
class Part:
    """A trial's share of one GPU.

    Attributes:
        claim: what the machine's other sweeps see of it.
        held: the same, in the ledger; None where other sweeps cannot see it.
        used_before_bytes: of the GPU, when the trial was alone on it; None in company.
    """

    gpu: Gpu
    claim: Claim
    held: HeldClaim | None
    used_before_bytes: int | None

    def change(self, claim: Claim) -> None:
        """Claim something else."""
        self.claim = claim
        if self.held is not None:
            self.held.change(claim)

    def claim_bytes(self, memory_bytes: int) -> bool:
        """Claim so much from now on; whether that is news."""
        is_news = memory_bytes != self.claim.memory_bytes
        if is_news:
            self.change(replace(self.claim, memory_bytes=memory_bytes))
        return is_news


def part_of(load: GpuLoad, need: GpuNeed, ledger: Ledger | None, used_bytes: int | None) -> Part:
    """A trial's share of a GPU, with its claim; call it within the ledger's gate.

    Args:
        ledger: None where other sweeps cannot see the claim.
        used_bytes: of the GPU, by anybody; None where that is not known.
    """
    all_bytes = load.usable_bytes or 0
    claim = Claim(
        device=load.name,
        memory_bytes=all_bytes if need.memory_bytes is None else need.memory_bytes,
        is_alone=need.is_alone,
    )
    return Part(
        gpu=load.gpu,
        claim=claim,
        held=None if ledger is None else ledger.add(claim),
        used_before_bytes=used_bytes if load.n_trials == 0 else None,
    )


@dataclass(slots=True, kw_only=True)
class Share:
    """What the allocator knows of a lease.

    Attributes:
        parts: its GPUs.
        has_settled: whether others may join it.
        began_s: when the trial got it, on the monotonic clock.
        first_bytes: what it took when it had not grown for a while for the first time; None before.
        steady_since_s: since when the trial has not grown, or has its share.
    """

    running: RunningTrial
    lease: Lease
    parts: Sequence[Part]
    has_settled: bool
    began_s: float = field(default_factory=time.monotonic)
    first_bytes: int | None = None
    steady_since_s: float = field(default_factory=time.monotonic)

    @property
    def is_estimated(self) -> bool:
        """Whether no trial that had ended showed what this one takes, when it began."""
        need = self.lease.need
        return len(self.parts) == 1 and (need == GpuNeed() or need.is_estimate)


def loads_soon(
    loads: Sequence[GpuLoad], shares: Sequence[Share], ends: ExpectedEnds
) -> list[GpuLoad]:
    """The loads of GPUs once those trials have ended that are about to; empty where none is."""
    now_s = time.monotonic()
    ending = [
        part
        for share in shares
        if ends.is_about_to_end(share.running, began_s=share.began_s, now_s=now_s)
        for part in share.parts
    ]
    return [_without(load, ending) for load in loads] if ending else []


def _without(load: GpuLoad, ending: Sequence[Part]) -> GpuLoad:
    """A load when these parts of GPUs have been given back."""
    given_back = [part.claim.memory_bytes for part in ending if part.gpu is load.gpu]
    return replace(
        load,
        n_trials=load.n_trials - len(given_back),
        free_bytes=None if load.free_bytes is None else load.free_bytes + sum(given_back),
        claimed_bytes=load.claimed_bytes - sum(given_back),
    )


def taken_by(
    found: Sequence[tuple[Share, Part]], driver: GpuDriver, uuid: str
) -> Iterator[tuple[Share, int]]:
    """How much memory of a GPU each share that has a part of it takes now; 0 if nobody knows."""
    by_session = used_by_session(driver.used_by(uuid))
    for share, part in found:
        session = share.running.pid or 0
        if session != part.claim.session:
            part.change(replace(part.claim, session=session))
        used = by_session.get(session, 0) if session else 0
        if not used and len(found) == 1 and part.used_before_bytes is not None:
            # The driver may know processes by other ids, as it does in a container.
            used = max(0, (driver.used_bytes(uuid) or 0) - part.used_before_bytes)
        yield share, used


class Estimates:
    """What trials take whose need nobody knew when they began.

    Where the sweep is in the same process, it predicts that anew from what its running trials are
    seen to take (`RunningTrial.gpu_need`). Elsewhere the most that any trial takes counts.

    Args:
        settled_s: how long a trial must not have grown before others join it.
        unused_s: how long it may take nothing of its GPU before it counts as one that takes none.
    """

    def __init__(self, *, settled_s: float, unused_s: float) -> None:
        self._settled_s, self._unused_s = settled_s, unused_s
        #: The most that a trial has taken which ran to its end, and one that has stopped to grow.
        self._ended_peak_bytes = 0
        self._settled_peak_bytes: int | None = None
        self._settled_at_s = 0.0

    @property
    def expected_bytes(self) -> int | None:
        """What another trial may take; None as long as no trial has settled."""
        return None if self._settled_peak_bytes is None else self._above(self._settled_peak_bytes)

    def note(self, share: Share, used_bytes: int) -> None:
        """Learn how much a running trial takes now."""
        now_s, lease = time.monotonic(), share.lease
        if used_bytes > _STEADY * lease.peak_bytes:
            share.steady_since_s = now_s
        lease.peak_bytes = max(lease.peak_bytes, used_bytes)
        settled_s = self._settled_s if lease.peak_bytes else self._unused_s
        steady_s = now_s - share.steady_since_s
        if share.first_bytes is None and steady_s >= settled_s:
            share.first_bytes = lease.peak_bytes
        if share.first_bytes is not None:
            share.running.gpu_memory = SettledMemory(
                first_bytes=share.first_bytes,
                peak_bytes=lease.peak_bytes,
                may_grow=_may_grow(steady_s, settled_s),
            )
        if not share.has_settled and steady_s >= settled_s:
            share.has_settled = True
            self._settled_peak_bytes = max(self._settled_peak_bytes or 0, lease.peak_bytes)
            self._settled_at_s = now_s

    def learn(self, peak_bytes: int) -> None:
        """Learn how much a trial took that ran to its end."""
        self._ended_peak_bytes = max(self._ended_peak_bytes, peak_bytes)
        self._settled_peak_bytes = max(self._settled_peak_bytes or 0, peak_bytes)

    def to_claim(self, share: Share) -> int | None:
        """What a running trial has to claim now; None where its claim stays as it is.

        A claim that ended trials were behind only falls: the trial's libraries may not take more.
        """
        if share.running.gpu_need is not None:
            if not share.is_estimated and (share.lease.need.is_alone or not share.first_bytes):
                return None
            predicted = share.running.gpu_need().memory_bytes
            if predicted is None:
                return None
            by_now = max(share.lease.peak_bytes, predicted)
            claimed = share.parts[0].claim.memory_bytes
            return by_now if share.is_estimated else min(claimed, by_now)
        if not share.is_estimated or not share.has_settled:
            return None
        return self._above(max(share.lease.peak_bytes, self._settled_peak_bytes or 0))

    def _above(self, peak_bytes: int) -> int:
        """What a trial may come to take that has taken so much, or is like one that has."""
        if peak_bytes <= self._ended_peak_bytes:
            return round(_SPREAD * self._ended_peak_bytes)
        is_that_one = peak_bytes == self._settled_peak_bytes
        steady_s = time.monotonic() - self._settled_at_s if is_that_one else 0.0
        return round(_SPREAD * (1 + _may_grow(steady_s, self._settled_s)) * peak_bytes)


def _may_grow(steady_s: float, settled_s: float) -> float:
    """The part of its memory by which a trial may still grow that has not for so long.

    Args:
        settled_s: how long a trial must not have grown before others join it.
    """
    return _MAY_GROW * min(1.0, settled_s / max(steady_s, 1e-9))
