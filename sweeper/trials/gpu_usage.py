"""What the GPUs of a sweep did in all, and what an executed notebook keeps of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from .records import GpuSample, GpuUse

#: In the metadata of an executed notebook: the samples, and what names of `GpuUse` begin with.
_SAMPLES, _PREFIX = "gpu_samples", "gpu_"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTotal:
    """What one GPU of a sweep did while trials of the sweep had shares of it; None if unknown.

    Attributes:
        held_s: for how long at least one trial had a share.
        busy_share: of that time, in which the GPU worked for anybody.
        sm_share: of its processors, that worked on average in that time (SM activity).
        energy_j: that it took in that time.
    """

    name: str
    held_s: float
    busy_share: float | None = None
    sm_share: float | None = None
    energy_j: float | None = None


def total_of(gpus: Sequence[GpuTotal]) -> GpuTotal | None:
    """All GPUs of a sweep as one; None where there is none."""
    if not gpus:
        return None
    energies = [gpu.energy_j for gpu in gpus if gpu.energy_j is not None]
    return GpuTotal(
        name="",
        held_s=sum(gpu.held_s for gpu in gpus),
        busy_share=_mean([(gpu.busy_share, gpu.held_s) for gpu in gpus]),
        sm_share=_mean([(gpu.sm_share, gpu.held_s) for gpu in gpus]),
        energy_j=sum(energies) if energies else None,
    )


def _mean(weighted: Sequence[tuple[float | None, float]]) -> float | None:
    known = [(value, weight) for value, weight in weighted if value is not None and weight]
    weights = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / weights if known else None


# --- in the metadata of an executed notebook ---------------------------------------------------


def to_metadata(use: GpuUse, samples: Sequence[GpuSample]) -> dict[str, Any]:
    """What an executed notebook keeps of both, without what is not known."""
    known = {f"{_PREFIX}{name}": value for name, value in asdict(use).items() if value is not None}
    if not use.was_short:
        del known[f"{_PREFIX}was_short"]
    if samples:
        names = [field.name for field in fields(GpuSample)]
        columns = {name: [getattr(one, name) for one in samples] for name in names}
        known[_SAMPLES] = {
            name: values for name, values in columns.items() if values != [None] * len(values)
        }
    return known


def use_in(metadata: Mapping[str, Any]) -> GpuUse | None:
    """What a trial took of its GPU, as its executed notebook states it; None if it does not.

    Raises:
        TypeError: the metadata was edited by hand.
    """
    names = [field.name for field in fields(GpuUse)]
    found = {n: metadata[f"{_PREFIX}{n}"] for n in names if f"{_PREFIX}{n}" in metadata}
    return GpuUse(**found) if found else None


def samples_in(metadata: Mapping[str, Any]) -> list[GpuSample]:
    """The samples of a trial in its executed notebook; empty where it has none.

    Raises:
        TypeError, ValueError: the metadata was edited by hand.
    """
    columns = metadata.get(_SAMPLES, {})
    rows = zip(*columns.values(), strict=True)
    return [GpuSample(**dict(zip(columns, row, strict=True))) for row in rows]
