"""Describe this machine for a bug report: versions, kernels, GPUs and limits."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..errors import SweepError
from ..execution.environment import python_of
from ..kernels import (
    check_kernel,
    choose_kernel,
    installed_kernels,
    interpreter_of,
    obstacle_of_system,
)
from ..machine.capacity import available_bytes, usable_cores
from ..machine.gpus import present_gpus
from ..machine.nvml import GpuError, Nvml, driver_version

#: Libraries on whose versions the behaviour of a sweep depends.
_LIBRARIES = ("optuna", "papermill", "nbclient", "jupyter_client", "ipykernel", "mlflow", "dask")
#: Packages of a kernel that a bug report should state, because they change how trials run.
_IN_KERNELS = ("ipykernel", "notebook-hpo", "torch", "tensorflow", "jax", "scikit-learn")
_GB = 1e9


def description() -> Iterator[tuple[str, str]]:
    """Yield what a bug report should state about this machine and the installed packages.

    Yields:
        A subject, such as `Python` or `GPUs`, and one line of text about it.
    """
    yield "notebook-hpo", f"{_version('notebook-hpo')} in {Path(__file__).parents[1]}"
    yield "Python", f"{platform.python_version()}, {sys.executable}"
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if name in os.environ:
            yield name, os.environ[name]
    yield "libraries", _versions({name: _version(name) for name in _LIBRARIES})
    for name in installed_kernels():
        yield f"kernel {name}", _kernel(name)
    yield "a notebook here", _kernel_here()
    obstacle = obstacle_of_system()
    yield "forked kernels", "possible" if obstacle is None else obstacle.reason
    yield "GPUs", _gpus()
    yield "system", platform.platform()
    yield "processors", f"{usable_cores()} of {os.cpu_count()} can be used"
    free_bytes = available_bytes()
    yield "memory", "unknown" if free_bytes is None else f"{free_bytes / _GB:.1f} GB are free"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield "open files", f"at most {soft}, can be raised to {hard}"
    for subject, folder in {
        "this folder": Path.cwd(),
        "TMPDIR": Path(tempfile.gettempdir()),
    }.items():
        yield subject, f"{folder}: {shutil.disk_usage(folder).free / _GB:.1f} GB are free"
    yield "terminal", f"{os.environ.get('TERM', 'none')}, encoding {sys.stdout.encoding}"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _versions(found: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name} {number}" for name, number in found.items() if number is not None)


def _kernel_here() -> str:
    """Return which kernel runs a notebook here with the kernel name `python3`, or why none does."""
    try:
        chosen = choose_kernel(
            None, named="python3", is_python=True, folder=Path.cwd(), notebook="doctor"
        )
    except SweepError as error:
        return str(error)
    if not chosen.reason:
        return f"kernel {chosen.name}"
    return f"{_kernel(chosen.name)} ({chosen.reason})"


def _kernel(name: str) -> str:
    """Return which interpreter runs a kernel, with its packages, or why none runs it."""
    try:
        check_kernel(name, asked_by="doctor")
        interpreter = interpreter_of(name)
    except SweepError as error:
        return str(error)
    python = python_of(interpreter, os.environ)
    if python is None:
        return f"{' '.join(interpreter) or 'its program'} does not answer as Python"
    packages = _versions({package: python["packages"].get(package) for package in _IN_KERNELS})
    return f"{python['executable']}, Python {python['version']}, {packages or 'no ipykernel'}"


def _gpus() -> str:
    try:
        gpus = present_gpus(Nvml())
    except GpuError as error:
        return f"none can be used: {error}"
    found = [f"{gpu.model} ({gpu.memory_bytes / _GB:.0f} GB)" for gpu in gpus]
    return f"{', '.join(found)}; driver {driver_version()}" if found else "none"
