"""Test which GPUs a sweep may use, according to the driver and the environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gpu_drivers import StatedDriver

from sweeper.errors import SettingsError
from sweeper.machine.gpus import chosen_gpus
from sweeper.settings.machines import Resources


@pytest.fixture(autouse=True)
def nobody_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


TWO = StatedDriver("GPU-a", "GPU-b")


def wanted(gpus: str | list[int] = "auto", **stated: Any) -> Resources:
    return Resources.model_validate({"gpus": gpus, **stated})


def found(gpus: str | list[int], **stated: Any) -> list[str]:
    return [gpu.uuid for gpu in chosen_gpus(wanted(gpus, **stated), TWO)]


def test_the_setting_gpus_selects_all_gpus_by_auto_and_those_in_a_list_in_its_order() -> None:
    assert found("auto") == ["GPU-a", "GPU-b"]
    assert found([1, 0]) == ["GPU-b", "GPU-a"]


@pytest.mark.parametrize(("driver", "there"), [(TWO, "0, 1"), (StatedDriver(), "no NVIDIA GPU")])
def test_the_message_about_an_unknown_gpu_lists_the_existing_ones(
    driver: StatedDriver, there: str
) -> None:
    with pytest.raises(
        SettingsError, match=rf"resources\.gpus: this machine has no GPU 2; it has: {there}$"
    ):
        chosen_gpus(wanted([2, 0]), driver)
    assert chosen_gpus(wanted(), driver) == driver.gpus


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [
        ("1", ["GPU-b"]),
        (" 1 , 0 ", ["GPU-b", "GPU-a"]),
        ("GPU-b", ["GPU-b"]),
        ("MIG-x,GPU-a", []),
        ("", []),
        ("-1", []),
        ("0,-1,1", ["GPU-a"]),  # CUDA ignores all entries after an index that does not exist
    ],
)
def test_only_gpus_listed_in_cuda_visible_devices_are_used(
    monkeypatch: pytest.MonkeyPatch, visible: str, gpus: list[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert found("auto") == gpus


def test_a_number_in_cuda_visible_devices_means_the_same_gpu_although_another_gpu_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = StatedDriver("GPU-0", "GPU-1", "MIG-2", "GPU-3")
    del driver.gpus[1]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,2")
    assert [gpu.uuid for gpu in chosen_gpus(wanted(), driver)] == ["GPU-3", "MIG-2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3")
    assert chosen_gpus(wanted(), driver) == []


def test_without_cuda_visible_devices_gpu_numbers_in_settings_are_those_of_nvidia_smi() -> None:
    driver = StatedDriver("GPU-0", "MIG-1", "MIG-2", "GPU-2")
    parts = [replace(gpu, number=1) for gpu in driver.gpus[1:3]]
    driver.gpus = [*parts, replace(driver.gpus[3], number=2)]  # GPU 0 has failed
    chosen = chosen_gpus(wanted([2, 1]), driver)
    assert [gpu.uuid for gpu in chosen] == ["GPU-2", "MIG-1", "MIG-2"]
    with pytest.raises(SettingsError, match=r"has no GPU 0; it has: 1, 2$"):
        chosen_gpus(wanted([0]), driver)


def test_with_cuda_visible_devices_gpu_numbers_in_settings_are_positions_in_that_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert found([0]) == ["GPU-b"]
    with pytest.raises(SettingsError, match="has no GPU 2"):
        found([2])


def test_a_stated_memory_per_trial_above_that_of_a_gpu_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"resources\.gpu_memory.*42\.9 GB"):
        found("auto", gpu_memory="50GB")


def test_more_gpus_per_trial_than_the_machine_has_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"gpus_per_trial: a trial needs 3 GPUs; .* has only 2"):
        found("auto", gpus_per_trial=3)
    with pytest.raises(SettingsError, match="needs 2 GPUs; the sweep has only 1"):
        found([1], gpus_per_trial=2)
    none = chosen_gpus(wanted(gpus_per_trial=3), StatedDriver())
    assert none == [], "without any GPU, the notebook may run on the CPU"


def test_a_trial_with_several_mig_parts_is_refused() -> None:
    driver = StatedDriver("GPU-a", "MIG-b", "MIG-c")
    with pytest.raises(SettingsError, match=r"gpus_per_trial: MIG-b is a part of a GPU \(MIG\)"):
        chosen_gpus(wanted([1, 2], gpus_per_trial=2), driver)


# --- NVIDIA's library ----------------------------------------------------------------------------

#: A library that answers as NVIDIA's would on a machine with four GPUs: a usual one, one that is
#: split into two parts (MIG) although three are possible, one that shares the machine's memory, and
#: one that is broken.
NVML = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef struct { int number, part; } device;
static device whole[4] = {{0, -1}, {1, -1}, {2, -1}, {3, -1}};
static device parts[3] = {{1, 0}, {1, 1}, {1, 2}};
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory;
typedef struct { unsigned pid; unsigned long long bytes; unsigned a, b; } process;
int nvmlInitWithFlags(unsigned f) { return 0; }
const char *nvmlErrorString(int code) { return "an error of the driver"; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 4; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned n, device **d) {
    *d = &whole[n]; return n == 3 ? 15 : 0;
}
int nvmlDeviceGetUUID(device *d, char *text, unsigned length) {
    if (d->part < 0) snprintf(text, length, "GPU-%d", d->number);
    else snprintf(text, length, "MIG-%d", d->part);
    return 0;
}
int nvmlDeviceGetName(device *d, char *text, unsigned length) {
    snprintf(text, length, "H%d", d->number); return 0;
}
int nvmlDeviceGetMigMode(device *d, unsigned *now, unsigned *later) {
    *now = *later = d->number == 1; return d->number == 2 ? 3 : 0;
}
int nvmlDeviceGetMaxMigDeviceCount(device *d, unsigned *n) { *n = 3; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(device *d, unsigned n, device **part) {
    *part = &parts[n]; return n == 2 ? 6 : 0;
}
int nvmlDeviceGetMemoryInfo_v2(device *d, memory *m) {
    m->total = 1100 + d->number; m->reserved = 100; m->used = 10; m->free = m->total - 110;
    return d->number == 2 ? 3 : m->version == 0x2000028 ? 0 : 25;
}
int nvmlDeviceGetComputeRunningProcesses_v3(device *d, unsigned *n, process *found) {
    if (d->number) { *n = 0; return 0; }
    if (*n < 2) { *n = 2; return 7; }
    *n = 2;
    found[0] = (process){4711, 7, 0, 0};
    found[1] = (process){4712, ~0ULL, 0, 0};
    return 0;
}
int nvmlDeviceGetComputeMode(device *d, unsigned *mode) {
    *mode = d->number == 2 ? 3 : 0; return d->part < 0 ? 0 : 3;
}
typedef struct { unsigned gpu, memory; } utilization;
int nvmlDeviceGetUtilizationRates(device *d, utilization *u) {
    u->gpu = 75; u->memory = 10; return d->part < 0 ? 0 : 3;
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(device *d, unsigned *n, process *found) {
    if (d->number) return 3;
    if (*n < 1) { *n = 1; return 7; }
    *n = 1;
    found[0] = (process){4713, 9, 0, 0};
    return 0;
}
"""
ASK = """
from sweeper.machine.nvml import Nvml
nvml = Nvml()
for gpu in nvml.installed():
    print(gpu.number, gpu.uuid, gpu.model, gpu.memory_bytes, gpu.is_exclusive)
    print(nvml.used_bytes(gpu.uuid), dict(nvml.used_by(gpu.uuid)), nvml.busy_share(gpu.uuid))
"""


def compiled(library: Path, source: str) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    command = [compiler, "-shared", "-fPIC", "-w", "-x", "c", "-", "-o", str(library)]
    subprocess.run([*command, f"-Wl,-soname,{library.name}"], input=source, text=True, check=True)


def asked_of(library_folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", ASK],
        env={**os.environ, "LD_LIBRARY_PATH": str(library_folder)},
        capture_output=True,
        text=True,
        check=True,
    )


def test_nvml_lists_whole_gpus_and_mig_parts(tmp_path: Path) -> None:
    compiled(tmp_path / "libnvidia-ml.so.1", NVML)
    asked = asked_of(tmp_path)
    machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert asked.stdout.splitlines() == [
        "0 GPU-0 H0 1000 False",
        "10 {4711: 7, 4713: 9} 0.75",
        "1 MIG-0 H1 1001 False",
        "10 {} None",
        "1 MIG-1 H1 1001 False",
        "10 {} None",
        f"2 GPU-2 H2 {machine_bytes} True",
        "None {} 0.75",
    ]
    assert "GPU 3 cannot be used: GPU is lost" in asked.stderr


def test_an_old_driver_counts_the_memory_that_it_reserves_as_used(tmp_path: Path) -> None:
    old = NVML.replace("nvmlDeviceGetMemoryInfo_v2(", "nvmlDeviceGetMemoryInfo(").replace(
        "unsigned version; unsigned long long total, reserved, free, used;",
        "unsigned long long total, free, used;",
    )
    old = re.sub(r"m->reserved = \d+; |m->version == 0x2000028 \? 0 : 25", "", old)
    old = old.replace("return d->number == 2 ? 3 : ;", "return d->number == 2 ? 3 : 0;")
    compiled(tmp_path / "libnvidia-ml.so.1", old)
    assert asked_of(tmp_path).stdout.splitlines()[:2] == [
        "0 GPU-0 H0 1100 False",
        "10 {4711: 7, 4713: 9} 0.75",
    ]


def test_a_machine_without_a_driver_has_no_gpus() -> None:
    asked = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    assert asked.stderr == ""
    if not shutil.which("nvidia-smi"):
        assert asked.stdout == ""
