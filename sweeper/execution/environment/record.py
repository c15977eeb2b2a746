"""Find out where the trials of a sweep run, which takes 0.03 s before the first of them."""

from __future__ import annotations

import json
import logging
import platform
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..driver import Gpu
from ..machine.capacity import usable_cores
from ..nvml import driver_version, model_of
from .git import git_state

_log = logging.getLogger(__name__)

_PROBE = Path(__file__).parent / "probe.py"
_PROBE_LIMIT_S = 10.0


class TrialEnvironment:
    """Where the trials of one worker run; looked at once. Safe to use from several threads.

    Args:
        look: finds it out and keeps it, and returns the name under which it is kept; None where
            nobody wants to know.
    """

    def __init__(self, look: Callable[[], str] | None = None) -> None:
        self._look = look
        self._lock = threading.Lock()
        self._name = ""

    def name(self) -> str:
        """The name under which it is kept; empty where it is not known. The first call looks."""
        with self._lock:
            if self._look is not None:
                look, self._look = self._look, None
                try:
                    self._name = look()
                except Exception as error:  # noqa: BLE001  trials do not depend on it
                    _log.info("the environment of the trials is not known: %s", error)
            return self._name


def environment_of(
    *,
    interpreter: Sequence[str],
    env: Mapping[str, str],
    folder: Path,
    threads: int,
    gpus: Sequence[Gpu],
    files: Iterable[str] = (),
) -> dict[str, Any]:
    """Describe this machine and the Python of its kernels; what is not known is left out.

    Args:
        interpreter: the Python that runs the kernels, and its options; empty where it is not known.
        env: of the kernels.
        folder: of the research notebook, whose git commit it is.
        threads: with which each kernel computes.
        gpus: that trials may use.
        files: of the trials' code, by their paths relative to `folder`, whose changes are kept.

    Returns:
        `python` (`implementation`, `version`, `executable`, `packages` with their versions by
        name), `platform`, `cpu`, `cores`, `threads`, `gpus` (their models), `gpu_driver` and `git`
        (`commit`, `branch`, `is_dirty`, `diff`).
    """
    models = [model for gpu in gpus if (model := model_of(gpu)) is not None]
    found = {
        "python": python_of(interpreter, env),
        "platform": platform.platform(),
        "cpu": _cpu_model(),
        "cores": usable_cores(),
        "threads": threads,
        "gpus": models or None,
        "gpu_driver": driver_version() if models else None,
        "git": git_state(folder, env, files),
    }
    return {name: value for name, value in found.items() if value is not None}


def environment_facts(environment: Mapping[str, Any]) -> dict[str, str]:
    """What of an environment can change results, as text by its name for people.

    Args:
        environment: as `environment_of` returns it.
    """
    names = {
        "cpu": "the processor",
        "gpus": "the GPU",
        "gpu_driver": "the driver of the GPU",
        "platform": "the system",
    }
    known = {words: environment[name] for name, words in names.items() if name in environment}
    facts = {
        words: ", ".join(fact) if isinstance(fact, list) else str(fact)
        for words, fact in known.items()
    }
    if (python := environment.get("python")) is not None:
        facts |= {"Python": python["version"], **python["packages"]}
    return facts


def python_of(
    interpreter: Sequence[str], env: Mapping[str, str], modules: Sequence[str] = ()
) -> dict[str, Any] | None:
    """Describe a Python: `implementation`, `version`, `executable`, `packages` and `missing`.

    Args:
        interpreter: that Python, and its options.
        env: for its process.
        modules: those of them that it cannot import are `missing`.

    Returns:
        None where it does not answer.
    """
    if not interpreter:
        return None
    try:
        done = subprocess.run(
            [*interpreter, str(_PROBE), *modules],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_LIMIT_S,
            check=True,
        )
        python: dict[str, Any] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        _log.info("%s does not list its packages: %s", interpreter[0], error)
        return None
    return python


def _cpu_model() -> str | None:
    """The name of the processor; None where the system does not give it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return platform.processor() or None
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, None)
