"""How busy GPUs were and what they drew, added up over the time in which trials held them.

Time is exact; what a GPU did is known from readings, each of which stands for the time since the
one before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, overload

from ....trials import GpuSample, GpuTotal, GpuUse
from ..driver import Gpu, GpuActivity, GpuDriver

#: How far back a reading counts at most: a look that came late says little about long before it.
_REACH_S = 10.0
#: How many samples of each GPU a trial keeps.
_MOST_SAMPLES = 60


class _Reading(NamedTuple):
    """What a look at a GPU found; None if unknown."""

    activity: GpuActivity
    used_bytes: int | None


@dataclass(slots=True)
class _Sum:
    """A value times the seconds for which it was known."""

    total: float = 0.0
    known_s: float = 0.0

    def add(self, value: float | None, seconds: float) -> None:
        if value is not None:
            self.total += value * seconds
            self.known_s += seconds

    def merge(self, other: _Sum) -> None:
        self.total += other.total
        self.known_s += other.known_s

    @property
    def mean(self) -> float | None:
        return self.total / self.known_s if self.known_s else None

    @property
    def known(self) -> float | None:
        return self.total if self.known_s else None


@dataclass(slots=True)
class _Sums:
    """Everything that is known of a GPU, over some time."""

    seconds: float = 0.0
    busy_share: _Sum = field(default_factory=_Sum)
    sm_share: _Sum = field(default_factory=_Sum)
    used_bytes: _Sum = field(default_factory=_Sum)
    power_w: _Sum = field(default_factory=_Sum)

    def add(self, reading: _Reading, seconds: float) -> None:
        self.seconds += seconds
        self.busy_share.add(reading.activity.busy_share, seconds)
        self.sm_share.add(reading.activity.sm_share, seconds)
        self.used_bytes.add(reading.used_bytes, seconds)
        self.power_w.add(reading.activity.power_w, seconds)

    def merge(self, other: _Sums) -> None:
        self.seconds += other.seconds
        self.busy_share.merge(other.busy_share)
        self.sm_share.merge(other.sm_share)
        self.used_bytes.merge(other.used_bytes)
        self.power_w.merge(other.power_w)


class _Samples:
    """Evenly spaced means, of which there are never many: when there are, two become one."""

    def __init__(self, width_s: float) -> None:
        self._width_s = width_s
        #: The end of each, on the wall clock, and its values.
        self._rows: list[tuple[float, _Sums]] = []

    def add(self, reading: _Reading, seconds: float, *, at_s: float) -> None:
        if not self._rows or self._rows[-1][1].seconds >= self._width_s:
            if len(self._rows) == _MOST_SAMPLES:
                self._halve()
            self._rows.append((at_s, _Sums()))
        sums = self._rows[-1][1]
        sums.add(reading, seconds)
        self._rows[-1] = at_s, sums

    def _halve(self) -> None:
        pairs = zip(self._rows[::2], self._rows[1::2], strict=True)
        merged = []
        for (_, first), (at_s, second) in pairs:
            first.merge(second)
            merged.append((at_s, first))
        self._rows = merged
        self._width_s *= 2

    def listed(self, gpu: int) -> list[GpuSample]:
        return [
            GpuSample(
                at_s=round(at_s, 3),
                gpu=gpu,
                busy_share=_rounded(sums.busy_share.mean, 4),
                sm_share=_rounded(sums.sm_share.mean, 4),
                used_bytes=_rounded(sums.used_bytes.mean, None),
                power_w=_rounded(sums.power_w.mean, 1),
            )
            for at_s, sums in self._rows
        ]


class Holding:
    """What the GPUs of one trial did while the trial had a share of them."""

    def __init__(self, gpus: Sequence[Gpu] = (), *, width_s: float = 1.0) -> None:
        self.gpus = gpus
        self._held_s = 0.0
        self._samples = {gpu.name: _Samples(width_s) for gpu in gpus}
        self._sums = _Sums()
        self._energy, self._memory = _Sum(), _Sum()

    def use(self, peak_bytes: int) -> GpuUse:
        """What the trial took, beside the most memory, which is `peak_bytes`."""
        return GpuUse(
            peak_bytes=peak_bytes,
            held_s=round(self._held_s, 3),
            busy_share=_rounded(self._sums.busy_share.mean, 4),
            sm_share=_rounded(self._sums.sm_share.mean, 4),
            mean_bytes=_rounded(self._memory.mean, None),
            energy_j=_rounded(self._energy.known, 1),
        )

    def samples(self) -> list[GpuSample]:
        """The course of it, of one GPU after the other, as the trial counts them."""
        names = [gpu.name for gpu in self.gpus]
        return [s for number, name in enumerate(names) for s in self._samples[name].listed(number)]

    def hold(self, seconds: float) -> None:
        """Count time with a share of one of the GPUs."""
        self._held_s += seconds

    def note(self, gpu: Gpu, reading: _Reading, seconds: float, n: int, *, at_s: float) -> None:
        """Count what a GPU did for so many seconds, in which it had `n` trials."""
        self._sums.add(reading, seconds)
        self._samples[gpu.name].add(reading, seconds, at_s=at_s)
        power_w = reading.activity.power_w
        self._energy.add(None if power_w is None else power_w / n, seconds)

    def note_memory(self, used_bytes: int, seconds: float) -> None:
        """Count memory that the trial itself held; nothing where it held none or nobody knows."""
        self._memory.add(used_bytes or None, seconds)


class _Meter:
    """Adds up what one GPU does while it is held."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.held_s = 0.0
        self.sums = _Sums()
        self.holders: list[Holding] = []
        self._since_s = 0.0
        #: Time since the last reading, and who held the GPU then.
        self._unread: list[tuple[float, tuple[Holding, ...]]] = []

    def settle(self, now_s: float) -> None:
        """Count the time until now for those who hold the GPU; call it before they change."""
        seconds, self._since_s = now_s - self._since_s, now_s
        if not self.holders:
            return
        self.held_s += seconds
        for holding in self.holders:
            holding.hold(seconds)
        if self.gpu.uuid is not None:  # else nobody can read it
            self._unread.append((seconds, tuple(self.holders)))

    def read(self, reading: _Reading, used_by: Mapping[Holding, int], *, at_s: float) -> None:
        """Count what the GPU did since the last reading; settle it first."""
        left_s = _REACH_S
        for unread_s, holders in reversed(self._unread):
            seconds = min(unread_s, left_s)
            left_s -= seconds
            if seconds <= 0:
                continue
            self.sums.add(reading, seconds)
            for holding in holders:
                holding.note(self.gpu, reading, seconds, len(holders), at_s=at_s)
                holding.note_memory(used_by.get(holding, 0), seconds)
        self._unread.clear()

    def total(self) -> GpuTotal:
        return GpuTotal(
            name=self.gpu.name,
            held_s=self.held_s,
            busy_share=self.sums.busy_share.mean,
            sm_share=self.sums.sm_share.mean,
            energy_j=self.sums.power_w.known,
        )


class GpuUsage:
    """What the GPUs of a sweep did, in all and for each trial; call it with one lock held.

    Args:
        gpus: of the sweep.
        driver: knows what they do.
        width_s: the time between two samples of a trial, as long as it is short.
        clock: never goes back, in seconds.
    """

    def __init__(
        self,
        gpus: Sequence[Gpu],
        driver: GpuDriver,
        *,
        width_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._driver = driver
        self._meters = {gpu.name: _Meter(gpu) for gpu in gpus}
        self._width_s = width_s
        self._clock = clock

    def begin(self, gpus: Sequence[Gpu]) -> Holding:
        """A trial has a share of these GPUs from now on."""
        holding = Holding(gpus, width_s=self._width_s)
        for gpu in gpus:
            meter = self._meters[gpu.name]
            if gpu.uuid is not None and not meter.holders:
                self._driver.activity(gpu.uuid)  # what it did until now belongs to no trial
            meter.settle(self._clock())
            meter.holders.append(holding)
        return holding

    def end(self, holding: Holding) -> None:
        """It has given its share back."""
        for gpu in holding.gpus:
            meter = self._meters[gpu.name]
            meter.settle(self._clock())
            meter.holders.remove(holding)

    def look(self, gpu: Gpu, used_by: Mapping[Holding, int]) -> GpuActivity:
        """See what a GPU has done since the last call, or since trials began to hold it.

        Args:
            used_by: the memory that trials hold, as far as it is known.
        """
        if gpu.uuid is None:
            return GpuActivity()
        used_bytes = self._driver.used_bytes(gpu.uuid)
        reading = _Reading(self._driver.activity(gpu.uuid), used_bytes)
        meter = self._meters[gpu.name]
        meter.settle(self._clock())
        meter.read(reading, used_by, at_s=time.time())
        return reading.activity

    def totals(self) -> list[GpuTotal]:
        """What each GPU did until now."""
        for meter in self._meters.values():
            meter.settle(self._clock())
        return [meter.total() for meter in self._meters.values()]


@overload
def _rounded(value: float | None, digits: int) -> float | None: ...
@overload
def _rounded(value: float | None, digits: None) -> int | None: ...
def _rounded(value: float | None, digits: int | None) -> float | None:
    """A number as it is stored and read: no clock and no sensor is more exact."""
    return None if value is None else round(value, digits)
