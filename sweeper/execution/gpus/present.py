"""The GPUs that this process may use, from the driver's own tool. Never initialises CUDA."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

from ...errors import SettingsError


def present_gpus(*, is_memory_asked: bool) -> dict[str, int | None]:
    """The GPUs that this process may use and their memory in bytes, from the driver's own tool.

    A number in CUDA_VISIBLE_DEVICES stays one: CUDA counts the fastest GPU first where
    CUDA_DEVICE_ORDER does not say otherwise, and the tool counts by their places on the bus.
    """
    installed = _installed_gpus()
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None or not installed:
        return dict(installed)
    visible: dict[str, int | None] = {}
    for name in (part.strip() for part in allowed.split(",")):
        if name.lstrip("-").isdigit():
            if not 0 <= int(name) < len(installed):
                break  # as in CUDA: a number that does not exist hides those after it
            if is_memory_asked:
                visible[name] = _memory_of_number(int(name), list(installed.values()))
            else:
                visible[name] = None
        elif name:
            # CUDA takes the beginning of a name, too. Parts of a GPU (MIG) are not in the list.
            begins = (total for uuid, total in installed.items() if uuid.startswith(name))
            visible[name] = next(begins, None)
    return visible


def _installed_gpus() -> dict[str, int | None]:
    """All GPUs of the machine by UUID, in the order of their places on the bus."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    try:
        asked = subprocess.run(
            [tool, "--query-gpu=uuid,memory.total", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = [line.partition(",") for line in asked.stdout.splitlines()]
    # The tool prints warnings among the lines, or instead of them that there is no GPU.
    return {uuid.strip(): _read_memory(text) for uuid, _, text in lines if uuid.startswith("GPU-")}


def _read_memory(text: str) -> int | None:
    """A GPU's memory as the tool prints it, in bytes; None where that is no number."""
    try:
        return int(text) * 1024**2
    except ValueError:
        pass
    # A GPU without memory of its own (GB10, Jetson) takes the machine's.
    is_shared = text.strip() in ("[N/A]", "[Not Supported]")
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if is_shared else None


def _memory_of_number(number: int, totals: Sequence[int | None]) -> int | None:
    """Memory of the GPU that CUDA calls by a number."""
    if len(set(totals)) == 1 or os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return totals[number]
    raise SettingsError(
        f"resources.gpu_memory: the GPUs of this machine differ, and which of them is number "
        f"{number} of CUDA_VISIBLE_DEVICES, only CUDA knows, which counts the fastest first; set "
        "CUDA_DEVICE_ORDER=PCI_BUS_ID as well, or give the UUIDs that `nvidia-smi -L` lists"
    )
