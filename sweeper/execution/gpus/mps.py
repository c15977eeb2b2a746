"""NVIDIA's Multi-Process Service: trials on one GPU compute at the same time, not in turns.

Each sweep has a daemon of its own for each GPU, in its private folder. A daemon that several sweeps
shared would carry a fault of a trial of one to the trials of another, and had to end with the last.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ...guard import LAST, MARK_VARIABLE
from ...trials import RunningTrial, TrialOutcome, TrialSpec
from .driver import Gpu
from .faults import Client, GpuFaults
from .shares import Lease

_log = logging.getLogger(__name__)

_CONTROL = "nvidia-cuda-mps-control"
_PIPES, _LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
#: Where CUDA looks for a daemon if nobody says anything else.
_USUAL_PLACE = "/tmp/nvidia-mps"
_ANSWER_S, _START_S = 10.0, 30.0
#: How long a server may take to make a new context after a fault, and how often to ask.
_READY_S, _READY_LOOK_S = 10.0, 0.1
#: How often to look whether kernels use MPS, and how often a daemon must be found without a server
#: while a trial has memory of its GPU, before that counts as a failure.
_LOOK_S, _LOOKS = 2.0, 2
_TURNS = "trials on one GPU then take turns, so small models gain little from sharing it"


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

    def wait_until_ready(self) -> None:
        """Wait until it takes clients again after a fault; not for ever, where it never does."""
        end_s = time.monotonic() + _READY_S
        while self.has_fault() and time.monotonic() < end_s:
            time.sleep(_READY_LOOK_S)

    def quit(self) -> None:
        """End it, when its clients have ended; the guard ends one that does not."""
        self._ask("quit")

    def _servers(self) -> list[str]:
        return [line.strip() for line in self._ask("get_server_list") if line.strip().isdigit()]

    def _ask(self, command: str) -> list[str]:
        return _ask(command, {**os.environ, **self.env}) or []


@dataclass(slots=True, kw_only=True, eq=False)
class MpsUse:
    """A trial's use of MPS.

    Attributes:
        env: what it adds to the environment of the trial's kernel, over that of its lease.
        client: the trial among the others on its GPU; None where it does without MPS.
        n_looks: how often the daemon had no server although the trial had memory of its GPU.
    """

    env: Mapping[str, str]
    lease: Lease
    client: Client | None = None
    n_looks: int = 0


class Mps:
    """The daemons of one sweep, and the trials that use them. Safe to use from any thread.

    Args:
        look_s: how often to look whether kernels use MPS.

    Attributes:
        faults: decides what a fault means for the trials on its GPU.
    """

    def __init__(self, *, look_s: float = _LOOK_S) -> None:
        self.faults = GpuFaults()
        self._look_s = look_s
        self._daemons: dict[str, _Daemon] = {}
        self._no_daemon = ""
        self._uses: list[MpsUse] = []
        #: Whether kernels connect, by GPU, as far as is known.
        self._is_used: dict[str, bool] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, gpus: Sequence[Gpu], *, folder: Path, token: str) -> None:
        """Start a daemon for each GPU; trials on one whose daemon does not start do without.

        Args:
            folder: the sweep's private folder; a short path.
            token: the beginning of the marks of the sweep's processes.
        """
        self._no_daemon = str(folder / "no-mps")
        for number, gpu in enumerate(gpus):
            daemon = _Daemon(gpu=gpu, folder=folder / f"mps{number}")
            error = daemon.start(token)
            if not error:
                self._daemons[gpu.name] = daemon
                continue
            _log.warning(
                "resources.mps: MPS does not start on %s (%s); %s", gpu.name, error, _TURNS
            )
        if self._daemons:
            self._thread = threading.Thread(target=self._watch, name="mps", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the daemons; call it when the kernels have ended."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        for daemon in self._daemons.values():
            daemon.quit()

    @contextmanager
    def used(self, spec: TrialSpec, running: RunningTrial, lease: Lease) -> Iterator[MpsUse]:
        """A trial's use of MPS, until its kernel has ended.

        A trial that has to be alone on its GPU does without: it gains nothing from MPS, and shows
        whether a fault is its own.
        """
        daemon = self._daemons.get(lease.gpu or "")
        if daemon is None or spec.gpu_need.is_alone:
            # In a folder without a daemon a kernel cannot find one of the whole machine's.
            yield MpsUse(env={_PIPES: self._no_daemon} if daemon else {}, lease=lease)
            return
        with self.faults.client(daemon.gpu.name, running, daemon.wait_until_ready) as client:
            use = MpsUse(env=daemon.env, lease=lease, client=client)
            with self._lock:
                self._uses.append(use)
            try:
                yield use
            finally:
                with self._lock:
                    self._uses.remove(use)

    def settle(self, use: MpsUse, outcome: TrialOutcome) -> TrialOutcome:
        """A trial's outcome, now that faults of its neighbours are considered."""
        if use.client is None:
            return outcome
        gpu = use.client.gpu
        if gpu not in self._is_used and outcome.gpu is not None and outcome.gpu.peak_bytes:
            # The driver may know processes by other ids; a kernel knows what it has used itself.
            self._note(gpu, is_used=self._daemons[gpu].has_server())
        if self._is_used.get(gpu) is False:  # then a fault ends its own process only
            return outcome
        return self.faults.settle(use.client, outcome, self._daemons[gpu].has_fault)

    # --- whether kernels connect --------------------------------------------------------------

    def _watch(self) -> None:
        """Look at each daemon until a kernel has connected: without one CUDA goes on, silently."""
        while not self._closed.wait(self._look_s):
            unknown = [gpu for gpu in self._daemons if not self._is_used.get(gpu)]
            for gpu in unknown:
                self._look(gpu)
            if not unknown:
                return

    def _look(self, gpu: str) -> None:
        with self._lock:
            here = [it for it in self._uses if it.client is not None and it.client.gpu == gpu]
        computing = [it for it in here if it.lease.peak_bytes > 0]  # before the daemon is asked
        if here and self._daemons[gpu].has_server():  # it is this sweep's alone
            self._note(gpu, is_used=True)
            return
        for use in computing:
            use.n_looks += 1
        if any(use.n_looks >= _LOOKS for use in computing):
            self._note(gpu, is_used=False)

    def _note(self, gpu: str, *, is_used: bool) -> None:
        with self._lock:
            known = self._is_used.get(gpu)
            is_news = known is None or is_used > known
            self._is_used[gpu] = is_used or known is True
        if is_news and is_used:
            _log.info("kernels use MPS on %s", gpu)
        elif is_news:
            _log.warning(
                "resources.mps: MPS runs on %s, but kernels do not connect to it; %s. Its logs are "
                "in %s while the sweep runs; mps: off spares the attempt",
                gpu,
                _TURNS,
                self._daemons[gpu].folder / "log",
            )
