"""NVIDIA's Multi-Process Service: trials on one GPU compute at the same time, not in turns.

Each sweep has a daemon of its own for each GPU, in its private folder: it ends with its sweep, and
a fault of a trial stays within it.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ..guard import LAST, MARK_VARIABLE
from .nvml import Gpu

_log = logging.getLogger(__name__)

_CONTROL = "nvidia-cuda-mps-control"
_PIPES, _LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
#: Where CUDA looks for a daemon if nobody says anything else.
_USUAL_PLACE = "/tmp/nvidia-mps"
#: How long a daemon may take to start, and to answer.
_LIMIT_S = 30.0
_TURNS = "trials on one GPU then take turns, so small models gain little from sharing it"


def why_not(gpus: Sequence[Gpu], *, jobs: int, per_trial: int) -> str:
    """Why MPS is not used, and what that costs; empty where it is.

    Args:
        gpus: those that trials may use.
        jobs: how many trials run at once.
        per_trial: how many GPUs each trial gets.
    """
    place = os.environ.get(_PIPES, _USUAL_PLACE)
    if not gpus or jobs == 1 or per_trial > 1:
        return "no two trials share a GPU of NVIDIA's, so this costs nothing"
    if any(gpu.is_part for gpu in gpus):
        return f"trials run on parts of a GPU (MIG); {_TURNS}"
    if shutil.which(_CONTROL) is None:
        return (
            f"{_CONTROL} is not on the PATH, with which NVIDIA's driver comes (in Debian and "
            f"Ubuntu as nvidia-compute-utils), and the image of a container, too; {_TURNS}"
        )
    if Path(place).exists() and _ask("get_server_list", {}) is not None:
        return (
            f"a daemon of MPS runs already, in {place}, and kernels use that one as it is; a fault "
            "of one trial may then fail others. Stop it, and the sweep starts its own"
        )
    return ""


class Mps:
    """The daemons of one sweep, and which trials attach to them."""

    def __init__(self) -> None:
        self._daemons: dict[str, Mapping[str, str]] = {}  # the environment of each, by its GPU

    def start(self, gpus: Sequence[Gpu], *, folder: Path, token: str) -> None:
        """Start a daemon for each GPU; trials on one whose daemon does not start do without.

        Args:
            folder: the sweep's private folder; a short path.
            token: the beginning of the marks of the sweep's processes.
        """
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_MPS_")}
        inherited[MARK_VARIABLE] = f"{token}.mps{LAST}"
        for number, gpu in enumerate(gpus):
            logs = folder / f"mps{number}" / "log"
            logs.mkdir(parents=True)
            env = {_PIPES: str(logs.parent), _LOGS: str(logs), "CUDA_VISIBLE_DEVICES": gpu.uuid}
            with open(logs / "start", "w+b") as said:  # no pipe: the daemon may keep it open
                try:
                    subprocess.run(
                        [_CONTROL, "-d"],
                        stdin=subprocess.DEVNULL,
                        stdout=said,
                        stderr=said,
                        env={**inherited, **env},
                        timeout=_LIMIT_S,
                        check=True,
                        start_new_session=True,  # a Ctrl-C must not end it; the guard does
                    )
                    self._daemons[gpu.uuid] = env
                except (OSError, subprocess.SubprocessError) as error:
                    said.seek(0)
                    why = said.read().decode(errors="replace").strip() or error
                    message = "resources.mps: MPS does not start on %s (%s); %s"
                    _log.warning(message, gpu.uuid, why, _TURNS)

    def close(self) -> None:
        """End the daemons, when the kernels have ended; the guard ends one that does not."""
        for env in self._daemons.values():
            _ask("quit", env)

    def env_of(self, gpu: Gpu, *, is_alone: bool) -> Mapping[str, str]:
        """What a trial's kernel finds in its environment, so that it attaches to the daemon.

        Args:
            is_alone: whether the trial has its GPU for itself: it does without MPS and shows
                whether a fault is its own, unless the GPU only takes one process.
        """
        does_without = is_alone and not gpu.is_exclusive
        return {} if does_without else self._daemons.get(gpu.uuid, {})


def _ask(command: str, env: Mapping[str, str]) -> str | None:
    """A daemon's answer; None where there is no daemon."""
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            [_CONTROL],
            input=f"{command}\n",
            capture_output=True,
            text=True,
            env={**os.environ, **env},
            timeout=_LIMIT_S,
            check=True,
        ).stdout
    return None
