"""Describe the environment of trials: interpreter, packages, machine, GPUs and git commit.

This takes 0.03 s before the first trial. The description is stored in a file, which each executed
notebook names.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..machine.capacity import usable_cores
from ..machine.nvml import Gpu, driver_version

_log = logging.getLogger(__name__)

_PROBE = Path(__file__).parent / "python_probe.py"
#: Longest time in seconds for each process that describes the environment (chosen). Listing
#: hundreds of packages on a network disk takes more than 10 s.
_LIMIT_S = 30.0
#: Parts of an environment, in addition to its Python and packages, that can change results. The
#: values are their names for users.
_FACTS = {
    "cpu": "the processor",
    "gpus": "the GPU",
    "gpu_driver": "the driver of the GPU",
    "platform": "the system",
    "threads": "the number of CPU threads",
}


def environment_of(
    *,
    interpreter: Sequence[str],
    env: Mapping[str, str],
    folder: Path,
    threads: int,
    gpus: Sequence[Gpu],
) -> dict[str, Any]:
    """Describe this machine and the Python of its kernels. Unknown parts are left out.

    Args:
        interpreter: Command of the Python that runs the kernels, with options. Empty if unknown.
        env: Environment variables of the kernels.
        folder: Folder of the research notebook, whose git commit is recorded.
        threads: Number of threads that each kernel uses.
        gpus: GPUs that trials may use.

    Returns:
        `python` (`implementation`, `version`, `executable`, and `packages`: versions by name),
        `platform`, `cpu`, `cores`, `threads`, `gpus` (their models), `gpu_driver` and `git`
        (`commit`, `is_dirty`).
    """
    models = [gpu.model for gpu in gpus if gpu.model]
    found = {
        "python": python_of(interpreter, env),
        "platform": platform.platform(),
        "cpu": _cpu_model(),
        "cores": usable_cores(),
        "threads": threads,
        "gpus": models or None,
        "gpu_driver": driver_version() if models else None,
        "git": git_state(folder, env),
    }
    return {name: value for name, value in found.items() if value is not None}


def environment_facts(environment: Mapping[str, Any]) -> dict[str, str]:
    """Return the parts of an environment that can change results, as text, by name.

    Args:
        environment: Environment in the form of `environment_of`.
    """
    facts = {}
    for name, words in _FACTS.items():
        if name in environment:
            value = environment[name]
            facts[words] = ", ".join(value) if isinstance(value, list) else str(value)
    python = environment.get("python")
    if python is not None:
        facts |= {"Python": python["version"], **python["packages"]}
    return facts


def python_of(interpreter: Sequence[str], env: Mapping[str, str]) -> dict[str, Any] | None:
    """Describe a Python interpreter: `implementation`, `version`, `executable` and `packages`.

    Args:
        interpreter: Command of the interpreter, with options.
        env: Environment variables of its process.

    Returns:
        The description, or None if the interpreter does not answer.
    """
    said = _output([*interpreter, str(_PROBE)], env) if interpreter else None
    if said is None:
        return None
    try:
        python: dict[str, Any] = json.loads(said)
    except ValueError:
        return None
    return python


def git_state(folder: Path, env: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the git commit, and whether tracked files differ from it.

    Return None if the folder is in no repository, if there is no commit, or if git is missing.

    Args:
        folder: Folder in the repository.
        env: Environment variables of git's process.
    """
    env = {**env, "GIT_OPTIONAL_LOCKS": "0"}  # Do not lock the index: the user may run git too.
    command = ("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    described = _output(command, env, folder)
    if not described:
        return None
    commit, _, dirty = described.strip().partition("-")
    return {"commit": commit, "is_dirty": bool(dirty)}


def _output(
    command: Sequence[str], env: Mapping[str, str], folder: Path | None = None
) -> str | None:
    """Return a command's output. None if the command is missing, fails, or takes over 30 s."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LIMIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        _log.info("%s gave no answer; the environment is recorded without it", " ".join(command))
        return None
    return done.stdout.decode("utf-8", "replace")


def _cpu_model() -> str | None:
    """Return the model of the processor. None if the system does not state it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return platform.processor() or None
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return None
