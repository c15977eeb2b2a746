"""How long a sweep would take, what it would cost, and what memory and disk it would need."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...execution.machine.capacity import available_bytes, usable_cores
from ...settings import Settings
from .probes import Measured, Role

#: Each slot's first trial has a started kernel, and so has the one that is prepared meanwhile.
_STARTED_PER_SLOT = 2
#: What a command takes besides its trials: until the first cell runs, and after the last one until
#: MLflow has everything. Measured with the examples on two cores.
_COMMAND_S = 6.0
#: The quick runs with the params of the typical one.
_SAME = (Role.AGAIN, Role.OTHER_SEED)
#: A trial's notebook is kept as it is, in MLflow with its page, and for the comparison page.
_COPIES_OF_NOTEBOOK = 4
#: What a sweep has beside its notebooks: databases, a run in MLflow, a record in the study.
_BYTES_PER_TRIAL = 100_000
#: Of the memory that is free, so much is left to others.
_MEMORY_SHARE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepForecast:
    """What a whole sweep would take; None for what is not known.

    Attributes:
        trials: those that confirm the best ones included.
        at_once: how many trials run at once.
        memory_at_once: how many fit into this machine's memory.
        duration_s: of the command, if no trial is pruned.
        trial_s: of a trial on average.
        cost: in the currency of `cost.price_per_hour`.
        disk_bytes: for all outputs at most.
        confirming: how many of the trials run the best ones again on fresh seeds.
    """

    trials: int
    at_once: int
    memory_at_once: int | None
    duration_s: float
    trial_s: float
    cost: float | None
    disk_bytes: int
    confirming: int = 0

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        return asdict(self)


def make_forecast(settings: Settings, measured: Sequence[Measured], *, jobs: int) -> SweepForecast:
    """Extrapolate from probes that have all completed.

    Trials at other params take longer or shorter in the proportion that the quick runs show; those
    at full length, beside each other as in the sweep, give the seconds.
    """
    by_role = {it.probe.role: it for it in measured}
    typical = by_role[Role.TYPICAL]
    # Most trials of a sweep have forked kernels, which have booted and imported before.
    usual = [it for it in measured if _is_forked(it)] or list(measured)
    like_typical = [it for it in usual if it.probe.role in _SAME] or [by_role[Role.AGAIN]]
    quick_s = statistics.fmean(it.outcome.duration_s for it in like_typical)
    boot_s = max(0.0, typical.outcome.duration_s - quick_s)
    full = [it for it in measured if it.probe.role is Role.FULL]
    # Of a run at full length only the cells count, since how long a kernel boots depends on what
    # else the machine does. Those of its first run also import what a forked kernel has.
    quick_cells_s = statistics.fmean(it.cells_s for it in like_typical)
    import_s = max(0.0, typical.cells_s - quick_cells_s)
    longer_s = max((it.cells_s - import_s - quick_cells_s for it in full), default=0.0)
    full_s = quick_s + max(0.0, longer_s)
    # The proportion, too, is that of the cells, beside what every trial takes outside of them.
    outside_s = max(0.0, quick_s - quick_cells_s)
    varied = [it.cells_s for it in usual if it.probe.role in (*_SAME, Role.OTHER)]
    varied_s = outside_s + statistics.fmean(varied or [quick_cells_s])
    ratio = varied_s / max(quick_s, 1e-9)
    trial_s = full_s * ratio
    trials, confirm = settings.study.trials, settings.confirm
    confirming = 0 if confirm is None else min(confirm.best, trials) * confirm.seeds
    trials += confirming
    at_once = min(jobs, trials)
    # Kernels are started until one has shown what to fork, and one trial is run again as proof.
    is_forked = any(map(_is_forked, measured))
    n_started = min(trials, _STARTED_PER_SLOT * at_once + 1) if is_forked else trials
    n_runs = trials + is_forked
    # A started kernel keeps a core busy while it boots.
    booting_s = n_started * boot_s / min(at_once, usable_cores())
    duration_s = _COMMAND_S + n_runs * trial_s / at_once + booting_s
    memory = max((it.memory_bytes or 0 for it in measured), default=0)
    free = available_bytes()
    price = None if settings.cost is None else settings.cost.price_per_hour
    notebook_bytes = max(it.notebook_bytes for it in measured)
    checkpoint_bytes = max(it.checkpoint_bytes for it in measured)
    return SweepForecast(
        trials=trials,
        confirming=confirming,
        at_once=at_once,
        memory_at_once=int(_MEMORY_SHARE * free / memory) if free and memory else None,
        duration_s=duration_s,
        trial_s=trial_s,
        cost=None if price is None else price * duration_s / 3600,
        disk_bytes=trials * (_COPIES_OF_NOTEBOOK * notebook_bytes + _BYTES_PER_TRIAL)
        + trials * checkpoint_bytes,
    )


def _is_forked(it: Measured) -> bool:
    return it.outcome.kernel is not None and it.outcome.kernel.is_forked
