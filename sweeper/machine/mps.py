"""NVIDIA's Multi-Process Service (MPS), which lets trials on one GPU compute at the same time.

Without MPS, they take turns. Each sweep starts one MPS daemon for each of its GPUs, in its private
folder. The daemon ends with its sweep. A fault of a trial can only affect trials of the same sweep.
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
#: Folder in which CUDA looks for a daemon by default.
_USUAL_PLACE = "/tmp/nvidia-mps"
#: Longest wait for a daemon to start or to answer, in seconds (chosen, not measured).
_LIMIT_S = 30.0
_TURNS = "trials on one GPU then take turns, so small models gain little from sharing it"


def why_not(gpus: Sequence[Gpu], *, jobs: int, per_trial: int) -> str | None:
    """Return why MPS is not used, and what that costs. Return None if MPS can be used.

    Args:
        gpus: GPUs that trials may use.
        jobs: Number of trials that run at once.
        per_trial: Number of GPUs that each trial gets.
    """
    place = os.environ.get(_PIPES, _USUAL_PLACE)
    if not gpus or jobs == 1 or per_trial > 1:
        return "no two trials share an NVIDIA GPU, so this costs nothing"
    if any(gpu.is_part for gpu in gpus):
        return f"trials run on parts of a GPU (MIG); {_TURNS}"
    if shutil.which(_CONTROL) is None:
        return (
            f"{_CONTROL} is not on the PATH; it comes with NVIDIA's driver (in Debian and Ubuntu "
            f"as nvidia-compute-utils), and a container's image needs it too; {_TURNS}"
        )
    if Path(place).exists() and _ask("get_server_list", {}) is not None:
        return (
            f"an MPS daemon runs already, in {place}, and kernels use it; so a fault of one trial "
            "may make other trials fail. If you stop that daemon, the sweep starts its own"
        )
    return None


class Mps:
    """The MPS daemons of one sweep, and the environment by which trials attach to them.

    Args:
        is_on: Whether daemons are started. Without them, trials on one GPU take turns.

    Attributes:
        is_on: Whether daemons are started.
    """

    def __init__(self, *, is_on: bool = True) -> None:
        self.is_on = is_on
        #: Environment variables of each daemon, by the UUID of its GPU.
        self._daemons: dict[str, Mapping[str, str]] = {}

    def start(self, gpus: Sequence[Gpu], *, folder: Path, token: str) -> None:
        """Start a daemon for each GPU, if MPS is on.

        If a daemon does not start, trials on its GPU run without MPS.

        Args:
            gpus: GPUs of the sweep.
            folder: Private folder of the sweep, with a short path.
            token: Text that only this sweep uses. In the environment of each of its processes, the
                variable `SWEEPER_MARK` begins with it.
        """
        if not self.is_on:
            return
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("CUDA_MPS_")
        }
        inherited[MARK_VARIABLE] = f"{token}.mps{LAST}"
        for number, gpu in enumerate(gpus):
            logs = folder / f"mps{number}" / "log"
            logs.mkdir(parents=True)
            env = {_PIPES: str(logs.parent), _LOGS: str(logs), "CUDA_VISIBLE_DEVICES": gpu.uuid}
            # Read the daemon's output from a file. A pipe would not end, because the daemon may
            # keep it open.
            with open(logs / "start", "w+b") as said:
                try:
                    subprocess.run(
                        [_CONTROL, "-d"],
                        stdin=subprocess.DEVNULL,
                        stdout=said,
                        stderr=said,
                        env={**inherited, **env},
                        timeout=_LIMIT_S,
                        check=True,
                        start_new_session=True,  # A Ctrl-C must not end the daemon.
                    )
                    self._daemons[gpu.uuid] = env
                except (OSError, subprocess.SubprocessError) as error:
                    said.seek(0)
                    why = said.read().decode(errors="replace").strip() or error
                    message = "resources.mps: MPS does not start on %s (%s); %s"
                    _log.warning(message, gpu.uuid, why, _TURNS)

    def close(self) -> None:
        """End the daemons. Call this after all kernels have ended.

        If a daemon does not end, the sweep's guard process kills it.
        """
        for env in self._daemons.values():
            _ask("quit", env)

    def serves(self, gpu: Gpu) -> bool:
        """Return whether the daemon of a GPU has started."""
        return gpu.uuid in self._daemons

    def env_of(self, gpu: Gpu, *, is_alone: bool) -> Mapping[str, str]:
        """Return the environment variables that make a trial's kernel attach to the GPU's daemon.

        Args:
            gpu: GPU of the trial.
            is_alone: Whether no other trial may use the GPU. Such a trial runs without MPS, so that
                no other trial can have caused its faults. On a GPU that accepts only one process,
                it runs with MPS in spite of this.

        Returns:
            The variables. Empty if the trial runs without MPS, or if the GPU has no daemon.
        """
        does_without = is_alone and not gpu.is_exclusive
        return {} if does_without else self._daemons.get(gpu.uuid, {})


def _ask(command: str, env: Mapping[str, str]) -> str | None:
    """Send a command to an MPS daemon. Return the printed output, or None if the command fails.

    Args:
        command: Command of `nvidia-cuda-mps-control`.
        env: Environment variables that name the daemon's folder, in addition to those of this
            process. Empty for a daemon that the sweep has not started.
    """
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
