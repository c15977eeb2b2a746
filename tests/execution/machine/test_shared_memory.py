"""Shared memory that is too small for the workers of DataLoaders: noticed before and after."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sweeper.execution.machine.shared_memory import advice, remedy


def run_in_small(megabytes: int, *command: str) -> str:
    """What a command prints where shared memory is a real tmpfs of a few megabytes."""
    mount = f"mount -t tmpfs -o size={megabytes}m tmpfs /dev/shm"
    inside = ["unshare", "-rm", "sh", "-c", f'{mount} && exec "$@"', "sh", *command]
    try:
        probe = subprocess.run([*inside[:5], mount], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("no unshare")
    if probe.returncode:
        pytest.skip("this machine lets nobody mount a tmpfs of their own")
    done = subprocess.run(inside, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def advice_in_small(megabytes: int, jobs: int) -> str:
    module = "sweeper.execution.machine.shared_memory"
    code = f"from {module} import advice\nprint(advice(4, {jobs}), end='')"
    return run_in_small(megabytes, sys.executable, "-c", code)


def test_where_it_is_small_the_remedy_comes_before_the_first_trial() -> None:
    text = advice_in_small(64, 8)
    assert "/dev/shm has 67 MB free" in text
    assert "8 trials at once" in text
    assert "--shm-size=8g or --ipc=host" in text


def test_dockers_default_is_too_small_for_a_single_trial() -> None:
    assert "a trial may need more" in advice_in_small(64, 1)
    assert advice_in_small(300, 1) == ""


def test_a_system_without_the_place_gets_no_advice(tmp_path: Path) -> None:
    assert advice(4, 1000, tmp_path / "nowhere") == ""


def test_only_notebooks_with_workers_are_concerned() -> None:
    everything = 10**9  # trials need more than any machine has
    assert advice(2, everything)
    assert advice(0, everything) == ""


@pytest.mark.parametrize(
    "message",
    [
        "RuntimeError: DataLoader worker (pid 313) is killed by signal: Bus error. It is possible "
        "that dataloader's workers are out of shared memory.",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient "
        "shared memory (shm).",
        "RuntimeError: unable to write to file </torch_18_2_0>: No space left on device (28)",
        "OSError: [Errno 28] No space left on device: '/psm_1234'",
    ],
)
def test_a_trial_that_had_too_little_learns_of_the_remedy(message: str) -> None:
    assert "--shm-size=1g or --ipc=host" in remedy(message)


def test_a_kernel_that_ends_with_a_bus_error_had_too_little() -> None:
    assert "--shm-size" in remedy("the kernel died: killed by signal 7", -7)


@pytest.mark.parametrize(
    "message",
    [
        "OutOfResources: out of resource: shared memory, Required: 163840",  # a GPU's
        "OSError: [Errno 28] No space left on device: '/data/model.pt'",
        "RuntimeError: DataLoader worker (pid 313) is killed by signal: Killed.",
    ],
)
def test_other_errors_have_other_remedies(message: str) -> None:
    assert remedy(message, -9) == ""


@pytest.mark.slow  # it imports torch
def test_the_error_of_a_real_loader_is_recognised() -> None:
    pytest.importorskip("torch")
    code = """
import torch
from torch.utils.data import DataLoader
data = torch.zeros(64, 512 * 1024)
for batch in DataLoader(data, batch_size=8, num_workers=2):
    pass
"""
    error = run_in_small(2, sys.executable, "-c", code).rstrip().splitlines()[-1]
    assert "--shm-size" in remedy(error), error
