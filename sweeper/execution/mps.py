"""NVIDIA's Multi-Process Service: trials on one GPU compute at the same time, not in turns.

Each sweep has a daemon of its own for each GPU, in its private folder: it ends with its sweep, and
a fault of a trial stays within it.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..guard import LAST, MARK_VARIABLE
from ..trials import TrialOutcome
from .driver import Gpu

_log = logging.getLogger(__name__)

_CONTROL = "nvidia-cuda-mps-control"
_PIPES, _LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
#: Where CUDA looks for a daemon if nobody says anything else.
_USUAL_PLACE = "/tmp/nvidia-mps"
_ANSWER_S, _START_S = 10.0, 30.0
_TURNS = "trials on one GPU then take turns, so small models gain little from sharing it"
#: How torch, JAX, TensorFlow, CuPy and Numba word the errors that end a context of CUDA, which
#: trials share under MPS: 700, 702, 710, 714 to 719, and those of MPS itself, 805 to 810.
_FAULT = re.compile(
    r"illegal memory access|device-side assert|unspecified launch failure|misaligned address"
    r"|illegal instruction|invalid program counter|hardware stack error|the launch timed out"
    r"|not supported on global/shared address space|\bMPS (client|server)\b"
    r"|(CUDA_ERROR_|cudaError)(Illegal_?(Address|Instruction)|Assert|Misaligned_?Address|MPS_?\w+"
    r"|Launch_?(Failed|Failure|Timeout)|Invalid_?(PC|Address_?Space)|Hardware_?Stack_?Error)"
    r"|CUDA[\w ]*error\D{0,12}(70[02]|71[04-9]|80[5-9]|810)\b",
    re.IGNORECASE,
)


def why_not(gpus: Sequence[Gpu], *, jobs: int, per_trial: int) -> str:
    """Why MPS is not used, and what that costs; empty where it is.

    Args:
        gpus: those that trials may use.
        jobs: how many trials run at once.
        per_trial: how many GPUs each trial gets.
    """
    if not gpus:
        return "trials use no GPU of NVIDIA's, so this costs nothing"
    if jobs == 1:
        return "with -j 1 no trial shares its GPU, so this costs nothing"
    if per_trial > 1:
        return f"each trial has {per_trial} GPUs for itself, so this costs nothing"
    for gpu in gpus:
        if (gpu.uuid or gpu.name).startswith("MIG-"):
            return f"{gpu.name} is a part of a GPU (MIG); {_TURNS}"
        if gpu.uuid is None:
            return (
                f"which GPU is number {gpu.name} of CUDA_VISIBLE_DEVICES only CUDA knows; "
                f"{_TURNS}. Give the UUIDs there that `nvidia-smi -L` lists"
            )
    if shutil.which(_CONTROL) is None:
        return (
            f"{_CONTROL} is not on the PATH; {_TURNS}. It comes with NVIDIA's driver (in Debian "
            "and Ubuntu with the package nvidia-compute-utils); the image of a container must have "
            "it, too"
        )
    place = os.environ.get(_PIPES, _USUAL_PLACE)
    if Path(place).exists() and _ask("get_server_list", os.environ) is not None:
        return (
            f"a daemon of MPS runs already, in {place}, and kernels use that one as it is; a fault "
            "of one trial may then fail others. Stop it, and the sweep starts its own"
        )
    return ""


def _ask(command: str, env: Mapping[str, str]) -> list[str] | None:
    """The lines of a daemon's answer; None where there is no daemon."""
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [_CONTROL],
            input=f"{command}\n",
            capture_output=True,
            text=True,
            env=env,
            timeout=_ANSWER_S,
            check=False,
        )
        if done.returncode == 0:
            return done.stdout.split("\n")
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Daemon:
    """The daemon of one GPU.

    Attributes:
        folder: has its sockets and logs; a short path.
    """

    gpu: Gpu
    folder: Path

    @property
    def env(self) -> Mapping[str, str]:
        """What daemon and kernels find in their environment."""
        return {
            _PIPES: str(self.folder),
            _LOGS: str(self.folder / "log"),
            # MPS counts the GPUs of its daemon anew, so a number would mean another one.
            "CUDA_VISIBLE_DEVICES": self.gpu.uuid or self.gpu.name,
        }

    def start(self, token: str) -> str:
        """Start it; it listens when this returns.

        Args:
            token: the beginning of the marks of the sweep's processes.

        Returns:
            why it does not run; empty if it does.
        """
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_MPS_")}
        mark = {MARK_VARIABLE: f"{token}.mps{LAST}"}
        output = self.folder / "log" / "start"  # no pipe: the daemon may keep it open
        try:
            output.parent.mkdir(parents=True)
            with open(output, "wb") as file:
                done = subprocess.run(
                    [_CONTROL, "-d"],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    env={**inherited, **self.env, **mark},
                    timeout=_START_S,
                    check=False,
                    start_new_session=True,  # a Ctrl-C must not end it; the guard kills its session
                )
            if done.returncode == 0:
                return ""
            text = output.read_text(errors="replace").strip()
            return text.splitlines()[-1] if text else f"exit code {done.returncode}"
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)

    def has_server(self) -> bool:
        """Whether a kernel has ever connected: the first one has it start a server, which stays."""
        return bool(self._servers())

    def has_fault(self) -> bool:
        """Whether a fault has ended the work of its clients, so that it takes no new ones."""
        answers = [self._ask(f"get_server_status {server}") for server in self._servers()]
        return any("FAULT" in line for lines in answers for line in lines)

    def quit(self) -> None:
        """End it, when its clients have ended; the guard ends one that does not."""
        self._ask("quit")

    def _servers(self) -> list[str]:
        return [line.strip() for line in self._ask("get_server_list") if line.strip().isdigit()]

    def _ask(self, command: str) -> list[str]:
        return _ask(command, {**os.environ, **self.env}) or []


class Mps:
    """The daemons of one sweep, and which trials attach to them. Safe to use from any thread."""

    def __init__(self) -> None:
        self._daemons: dict[str, _Daemon] = {}
        self._no_daemon = ""
        self._unchecked: set[str] = set()

    def start(self, gpus: Sequence[Gpu], *, folder: Path, token: str) -> None:
        """Start a daemon for each GPU; trials on one whose daemon does not start do without.

        Args:
            folder: the sweep's private folder; a short path.
            token: the beginning of the marks of the sweep's processes.
        """
        self._no_daemon = str(folder / "no-mps")
        for number, gpu in enumerate(gpus):
            daemon = _Daemon(gpu=gpu, folder=folder / f"mps{number}")
            if error := daemon.start(token):
                _log.warning(
                    "resources.mps: MPS does not start on %s (%s); %s", gpu.name, error, _TURNS
                )
            else:
                self._daemons[gpu.name] = daemon
        self._unchecked = set(self._daemons)

    def close(self) -> None:
        """End the daemons; call it when the kernels have ended."""
        for daemon in self._daemons.values():
            daemon.quit()

    def env_of(self, gpu: Gpu, *, is_alone: bool) -> Mapping[str, str]:
        """What a trial's kernel finds in its environment, so that it attaches to the daemon.

        Args:
            is_alone: whether the trial has its GPU for itself: it does without MPS and shows
                whether a fault is its own, unless the GPU only takes one process.
        """
        daemon = self._daemons.get(gpu.name)
        if daemon is None or (is_alone and gpu.mode != "exclusive"):
            # In a folder without a daemon a kernel cannot find one of the whole machine's.
            return {_PIPES: self._no_daemon} if daemon else {}
        return daemon.env

    def check(self, gpus: Sequence[Gpu]) -> None:
        """Say once for each GPU whether the kernels that have used it attached: CUDA says nothing.

        Args:
            gpus: those of a trial that has used them.
        """
        for gpu in gpus:
            if gpu.name not in self._unchecked:
                continue
            self._unchecked.discard(gpu.name)
            daemon = self._daemons[gpu.name]
            if daemon.has_server():
                _log.info("kernels use MPS on %s", gpu.name)
                continue
            _log.warning(
                "resources.mps: MPS runs on %s, but kernels do not connect to it; %s. Its logs are "
                "in %s while the sweep runs; mps: off spares the attempt",
                gpu.name,
                _TURNS,
                daemon.folder / "log",
            )

    def has_fault(self, gpu: Gpu) -> bool:
        """Whether MPS takes no new trials on a GPU, because a fault has not left it yet."""
        daemon = self._daemons.get(gpu.name)
        return daemon is not None and daemon.has_fault()

    def is_fault(self, outcome: TrialOutcome) -> bool:
        """Whether a trial ended by an error that ends the context of CUDA, and so all beside it."""
        return bool(self._daemons) and _FAULT.search(outcome.message) is not None
