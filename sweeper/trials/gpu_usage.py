"""What an executed notebook keeps of what its trial took of a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from .records import GpuUse

#: The names in the metadata are those of `GpuUse` behind this.
_PREFIX = "gpu_"


def to_metadata(use: GpuUse) -> dict[str, Any]:
    """What is known of a trial's use of its GPU, for the metadata of its executed notebook."""
    known = {f"{_PREFIX}{name}": value for name, value in asdict(use).items() if value is not None}
    if not use.was_short:
        del known[f"{_PREFIX}was_short"]
    return known


def use_in(metadata: Mapping[str, Any]) -> GpuUse | None:
    """What a trial took of its GPU, as its executed notebook states it; None if it does not."""
    names = [field.name for field in fields(GpuUse)]
    found = {n: metadata[f"{_PREFIX}{n}"] for n in names if f"{_PREFIX}{n}" in metadata}
    return GpuUse(**found) if found else None
