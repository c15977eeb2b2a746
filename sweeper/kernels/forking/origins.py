"""How kernels can come to be: started, or forked from a process that is ahead of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .sharing import SharedRun


class Way(StrEnum):
    """How a kernel comes to be."""

    STARTED = "started"
    FORKED = "forked"  # with the notebook's libraries imported
    SHARED = "shared"  # forked after leading cells that have run once for all trials


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelOrigin:
    """How one kernel comes to be.

    Attributes:
        shared: the cells after which the kernel is forked; None unless `way` is SHARED.
        reason: why the kernel is started, in words; empty for a forked one.
    """

    way: Way = Way.STARTED
    shared: SharedRun | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What kernels can be forked from now.

    Attributes:
        is_settled: whether the offer will stay so; False while libraries are imported or cells run.
        can_fork: whether there is a zygote that forks kernels.
        shared: the leading cells that have run; None when there are none.
        import_s: how long the imports took that a forked kernel does not repeat.
        has_acting_imports: whether imports have effects that each forked kernel has to repeat.
        obstacle: why no kernel can be forked, with the remedy if there is one; empty if one can.
        is_lasting: whether the obstacle stays, in all of the sweep.
    """

    is_settled: bool = False
    can_fork: bool = False
    shared: SharedRun | None = None
    import_s: float = 0.0
    has_acting_imports: bool = False
    obstacle: str = ""
    is_lasting: bool = False
