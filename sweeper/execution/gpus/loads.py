"""How much of each GPU is free for another trial."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ...trials import GpuNeed
from ..machine.ledger import Claim
from .driver import Gpu, GpuDriver

#: What is left free on each GPU, because libraries choose other algorithms where memory is short.
_SPARE_BYTES = 1024**3
_SPARE_SHARE = 0.025
#: What the driver itself may take of a GPU that no program uses.
_DRIVER_SHARE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLoad:
    """How a GPU is used now.

    Attributes:
        gpu: the GPU.
        n_trials: how many trials have a share of it, those of other sweeps included.
        usable_bytes: how much memory a trial may claim that is alone; None if not known.
        free_bytes: how much another trial may claim now; None if not known.
        claimed_bytes: how much trials have claimed.
        is_closed: whether a trial is on it that has to be alone.
    """

    gpu: Gpu
    n_trials: int
    usable_bytes: int | None
    free_bytes: int | None
    claimed_bytes: int = 0
    is_closed: bool = False

    @property
    def name(self) -> str:
        """The GPU, as claims name it."""
        return self.gpu.uuid or self.gpu.name

    def could_hold(self, need: GpuNeed) -> bool:
        """Whether a trial would fit if no other trial were there."""
        if self.free_bytes is None or need.memory_bytes is None or need.is_alone:
            return True
        return need.memory_bytes <= max(0, self.free_bytes + self.claimed_bytes)

    @property
    def is_empty(self) -> bool:
        """Whether nobody has a share of it, and no other program takes part of its memory."""
        if self.free_bytes is None or self.usable_bytes is None:
            return self.n_trials == 0
        return self.n_trials == 0 and self.free_bytes >= (1 - _DRIVER_SHARE) * self.usable_bytes


def usable_bytes(gpu: Gpu, *, keeps_spare: bool) -> int | None:
    """How much memory of a GPU trials may claim in all; None where that is not known."""
    if gpu.memory_bytes is None or not keeps_spare:
        return gpu.memory_bytes
    return gpu.memory_bytes - max(_SPARE_BYTES, round(_SPARE_SHARE * gpu.memory_bytes))


def load_of(gpu: Gpu, driver: GpuDriver, claims: Sequence[Claim], *, keeps_spare: bool) -> GpuLoad:
    """How a GPU is used, by those that have claimed a part of it and by anybody else.

    Args:
        claims: on all GPUs of the machine.
        keeps_spare: whether a part of the GPU is to stay free.
    """
    ours = [c for c in claims if c.device == (gpu.uuid or gpu.name) and c.waits_since_s is None]
    usable = usable_bytes(gpu, keeps_spare=keeps_spare)
    free = None
    if usable is not None:
        used = None if gpu.uuid is None else driver.used_bytes(gpu.uuid)
        by_session = {} if gpu.uuid is None else used_by_session(driver.used_by(gpu.uuid))
        free = usable - sum(claim.memory_bytes for claim in ours)
        free -= _used_beyond_claims(used or 0, by_session, ours)
    return GpuLoad(
        gpu=gpu,
        n_trials=len(ours),
        usable_bytes=usable,
        free_bytes=free,
        claimed_bytes=sum(claim.memory_bytes for claim in ours),
        is_closed=any(claim.is_alone for claim in ours),
    )


def _used_beyond_claims(
    used_bytes: int, by_session: Mapping[int, int], claims: Sequence[Claim]
) -> int:
    """How much of a GPU is in use that no claim covers.

    In a container the driver's process ids are not ours. What nobody is known to use is then taken
    for that of the claims whose kernels are not seen to use anything.
    """
    # Session 0 is nobody's kernel: that of a claim without one, and of a process that was brought
    # into our container from outside.
    seen = [(c.memory_bytes, by_session.get(c.session, 0) if c.session else 0) for c in claims]
    above = sum(max(0, n_bytes - may_take) for may_take, n_bytes in seen)
    of_others = sum(by_session.values()) - sum(n_bytes for _, n_bytes in seen)
    of_nobody = max(0, used_bytes - sum(by_session.values()))
    unseen = sum(may_take for may_take, n_bytes in seen if not n_bytes)
    return above + of_others + max(0, of_nobody - unseen)


def used_by_session(used_by: Mapping[int, int]) -> dict[int, int]:
    """How many bytes each session has, by its leader: a kernel with all that it has started.

    Session 0 has the processes whose session began outside of our container.
    """
    sessions: dict[int, int] = {}
    for pid, n_bytes in used_by.items():
        with suppress(OSError):  # it has ended, or its id is that outside of our container
            session = os.getsid(pid)
            sessions[session] = sessions.get(session, 0) + n_bytes
    return sessions
