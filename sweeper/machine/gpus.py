"""The GPUs of a machine that a sweep may use.

This module does not initialise CUDA, whose context would use a few hundred MB of each GPU.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..errors import SettingsError
from ..settings.machines import Resources
from .nvml import CONTEXT_BYTES, Gpu, Nvml

#: On each GPU, at least this many bytes and at least this share of the memory are left free
#: (chosen, not measured). If memory is short, libraries choose other algorithms, which changes
#: results.
_SPARE_BYTES = 1024**3
_SPARE_SHARE = 0.025


def chosen_gpus(resources: Resources, driver: Nvml) -> list[Gpu]:
    """Return the GPUs of this machine that a parameters file asks for.

    Raises:
        SettingsError: This machine lacks a GPU that is asked for, or the GPUs do not fit the other
            settings in `resources`.
    """
    wanted, per_trial = resources.gpus, resources.gpus_per_trial
    memory_bytes = resources.claim_bytes
    present = present_gpus(driver)
    chosen = present
    if not isinstance(wanted, str):
        numbered = _by_number(present)
        missing = [number for number in wanted if number not in numbered]
        if missing:
            there = ", ".join(map(str, sorted(numbered))) or "no NVIDIA GPU"
            raise SettingsError(
                f"resources.gpus: this machine has no GPU {missing[0]}; it has: {there}"
            )
        chosen = [gpu for number in wanted for gpu in numbered[number]]
    for gpu in chosen:
        if gpu.is_part and per_trial > 1:
            raise SettingsError(
                f"resources.gpus_per_trial: {gpu.uuid} is a part of a GPU (MIG), and CUDA gives a "
                "process only one part; set gpus_per_trial to 1"
            )
        needed_bytes = CONTEXT_BYTES + (memory_bytes or 0)
        if memory_bytes and gpu.memory_bytes < needed_bytes:
            raise SettingsError(
                f"resources.gpu_memory: a trial needs {memory_bytes / 1e9:.1f} GB, and "
                f"{CONTEXT_BYTES / 1e9:.1f} GB for CUDA itself; {gpu.uuid} has only "
                f"{gpu.memory_bytes / 1e9:.1f} GB"
            )
    if chosen and len(chosen) < per_trial:
        raise SettingsError(
            f"resources.gpus_per_trial: a trial needs {per_trial} GPUs; the sweep has only "
            f"{len(chosen)}"
        )
    return chosen


def _by_number(present: Sequence[Gpu]) -> dict[int, list[Gpu]]:
    """Return GPUs by their numbers in a parameters file.

    The numbers are those of nvidia-smi, where all parts of a GPU have the same number. If
    CUDA_VISIBLE_DEVICES is set, they are positions in its list, from 0.
    """
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return {position: [gpu] for position, gpu in enumerate(present)}
    numbered: dict[int, list[Gpu]] = {}
    for gpu in present:
        numbered.setdefault(gpu.number, []).append(gpu)
    return numbered


def present_gpus(driver: Nvml) -> list[Gpu]:
    """Return the GPUs that this process may use, in the order of CUDA_VISIBLE_DEVICES if it is set.

    A number in CUDA_VISIBLE_DEVICES is the number of a GPU in nvidia-smi.
    """
    installed = driver.installed()
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None or not installed:
        return list(installed)
    visible: list[Gpu] = []
    for name in map(str.strip, allowed.split(",")):
        if not name:
            continue
        if name.lstrip("-").isdigit():
            found = [gpu for gpu in installed if gpu.number == int(name)]
        else:  # CUDA also accepts the beginning of a UUID.
            found = [gpu for gpu in installed if gpu.uuid.startswith(name)]
        if not found:
            break  # As in CUDA, a name that does not exist hides the GPUs after it.
        visible.append(found[0])
    return visible


def usable_bytes(gpu: Gpu, *, keeps_spare: bool) -> int:
    """Return how many bytes of a GPU's memory can be reserved for trials in all.

    Args:
        gpu: The GPU.
        keeps_spare: Whether a part of the memory is left free, because libraries choose other
            algorithms when memory is short.
    """
    spare_bytes = max(_SPARE_BYTES, round(_SPARE_SHARE * gpu.memory_bytes)) if keeps_spare else 0
    return gpu.memory_bytes - spare_bytes
