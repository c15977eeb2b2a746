"""Where the trials of a sweep run: interpreter, packages, machine, GPUs and git commit.

It takes 0.03 s before the first of them, and is kept for each.
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
#: How long each process may take; hundreds of packages on a network disk take more than 10 s.
_LIMIT_S = 30.0
#: What of an environment can change results, beside its Python, in words.
_FACTS = {
    "cpu": "the processor",
    "gpus": "the GPU",
    "gpu_driver": "the driver of the GPU",
    "platform": "the system",
}


def environment_of(
    *,
    interpreter: Sequence[str],
    env: Mapping[str, str],
    folder: Path,
    threads: int,
    gpus: Sequence[Gpu],
) -> dict[str, Any]:
    """Describe this machine and the Python of its kernels; what is not known is left out.

    Args:
        interpreter: the Python that runs the kernels, and its options; empty where it is not known.
        env: of the kernels.
        folder: of the research notebook, whose git commit it is.
        threads: with which each kernel computes.
        gpus: that trials may use.

    Returns:
        `python` (`implementation`, `version`, `executable`, `packages` with their versions by
        name), `platform`, `cpu`, `cores`, `threads`, `gpus` (their models), `gpu_driver` and `git`
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
    """What of an environment can change results, as text by its name for people.

    Args:
        environment: as `environment_of` returns it.
    """
    known = {words: environment[name] for name, words in _FACTS.items() if name in environment}
    facts = {words: ", ".join(it) if isinstance(it, list) else it for words, it in known.items()}
    if (python := environment.get("python")) is not None:
        facts |= {"Python": python["version"], **python["packages"]}
    return facts


def python_of(interpreter: Sequence[str], env: Mapping[str, str]) -> dict[str, Any] | None:
    """Describe a Python: `implementation`, `version`, `executable` and `packages`.

    Args:
        interpreter: that Python, and its options.
        env: for its process.

    Returns:
        None where it does not answer.
    """
    said = _output([*interpreter, str(_PROBE)], env) if interpreter else None
    try:
        python: dict[str, Any] | None = json.loads(said) if said else None
    except ValueError:
        return None
    return python


def git_state(folder: Path, env: Mapping[str, str]) -> dict[str, Any] | None:
    """The commit, and whether tracked files differ from it; None outside of a git repository.

    Args:
        env: for the process of git.
    """
    env = {**env, "GIT_OPTIONAL_LOCKS": "0"}  # the user's git may run now
    command = ("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    commit, _, dirty = (_output(command, env, folder) or "").strip().partition("-")
    return {"commit": commit, "is_dirty": bool(dirty)} if commit else None


def _output(
    command: Sequence[str], env: Mapping[str, str], folder: Path | None = None
) -> str | None:
    """What a command prints; None where it is not there, fails or takes too long."""
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
        _log.info("where trials run: nothing is known from %s", command[0])
        return None
    return done.stdout.decode("utf-8", "replace")


def _cpu_model() -> str | None:
    """The name of the processor; None where the system does not give it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return platform.processor() or None
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, None)
