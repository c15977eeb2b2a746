"""Test the start, use and end of the daemons of MPS, by which trials compute on a GPU at once."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import mps_stand_in
import psutil
import pytest
from studies import until

from sweeper.execution.runtime import guarded
from sweeper.guard import mark_of
from sweeper.machine.mps import Mps, why_not
from sweeper.machine.nvml import Gpu

pytestmark = pytest.mark.slow  # because processes are started


def a_gpu(uuid: str = "GPU-a") -> Gpu:
    return Gpu(uuid=uuid, memory_bytes=1)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a stand-in for NVIDIA's program on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    return mps_stand_in.installed(folder)


@contextmanager
def serving(mps: Mps, study_folder: Path, *gpus: Gpu) -> Iterator[Path]:
    """Run the MPS daemons of a sweep during the block. Yield the sweep's private folder."""
    with guarded(study_folder) as (token, folder):
        mps.start(gpus or [a_gpu()], folder=folder, token=token)
        yield folder
        mps.close()


def log_of(folder: Path) -> str:
    return (folder / "log" / "control.log").read_text()


def stand_ins(folder: Path) -> list[psutil.Process]:
    """Return the processes whose MPS pipes are below a folder: daemons and clients.

    Servers are not found, because those of the stand-in have an empty environment.
    """
    found = []
    for process in psutil.process_iter():
        try:
            words = process.environ()
            if words.get("CUDA_MPS_PIPE_DIRECTORY", "").startswith(str(folder)):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


class Kernel:
    """A client of an MPS daemon, connected until its socket is closed."""

    def __init__(self, folder: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(f"{folder}/control")
        self.socket.sendall(f"client {os.getpid()}\n".encode())
        assert self.socket.recv(9) == b"ACCEPTED\n"


# --- when MPS is used ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "jobs", "per_trial", "words"),
    [
        ([a_gpu()], 2, 1, None),
        ([], 2, 1, "no two trials share an NVIDIA GPU, so this costs nothing"),
        ([a_gpu()], 1, 1, "no two trials share"),
        ([a_gpu()], 2, 2, "no two trials share"),
        ([a_gpu("MIG-1")], 2, 1, r"parts of a GPU \(MIG\); .* take turns"),
    ],
)
def test_mps_is_used_if_trials_share_a_gpu_otherwise_the_reason_is_stated(
    program: Path, gpus: list[Gpu], jobs: int, per_trial: int, words: str | None
) -> None:
    why = why_not(gpus, jobs=jobs, per_trial=per_trial)
    assert why is None if words is None else re.search(words, str(why)), why


def test_without_the_mps_program_trials_on_one_gpu_take_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    why = why_not([a_gpu()], jobs=2, per_trial=1)
    assert why is not None
    assert why.startswith("nvidia-cuda-mps-control is not on the PATH")


def test_no_mps_daemon_is_started_while_one_runs_and_the_message_names_its_folder(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(Mps(), tmp_path / "study") as folder:
        monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(folder / "mps0"))
        assert f"runs already, in {folder}/mps0" in str(why_not([a_gpu()], jobs=2, per_trial=1))
    assert why_not([a_gpu()], jobs=2, per_trial=1) is None


# --- daemons and kernels -------------------------------------------------------------------------


def test_each_gpu_gets_an_mps_daemon_that_is_ended_after_its_clients(
    program: Path, tmp_path: Path
) -> None:
    mps = Mps()
    with guarded(tmp_path) as (token, folder):
        gpus = [a_gpu("GPU-a"), a_gpu("GPU-b")]
        mps.start(gpus, folder=folder, token=token)
        assert len(str(folder / "mps0" / "nvidia-cuda-mps-control.pid")) < 107
        for number, gpu in enumerate(gpus):
            env = mps.env_of(gpu, is_alone=False)
            assert env == {
                "CUDA_MPS_PIPE_DIRECTORY": str(folder / f"mps{number}"),
                "CUDA_MPS_LOG_DIRECTORY": str(folder / f"mps{number}" / "log"),
                "CUDA_VISIBLE_DEVICES": gpu.uuid,
            }
            Kernel(env["CUDA_MPS_PIPE_DIRECTORY"]).socket.close()
            assert f"started for {gpu.uuid}" in log_of(folder / f"mps{number}")
        mps.close()
        until(lambda: not stand_ins(folder))
        assert "ended in order" in log_of(folder / "mps0")
        assert "ended in order" in log_of(folder / "mps1")


def test_a_trial_that_must_be_alone_does_not_use_mps(program: Path, tmp_path: Path) -> None:
    mps = Mps()
    with serving(mps, tmp_path):
        assert mps.env_of(a_gpu(), is_alone=True) == {}
        # In exclusive mode only MPS's server may use the GPU, so even a lone trial uses MPS.
        exclusive = replace(a_gpu(), is_exclusive=True)
        assert mps.env_of(exclusive, is_alone=True) == mps.env_of(exclusive, is_alone=False)


def test_an_mps_daemon_that_does_not_start_is_reported_and_trials_run_without_mps(
    program: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("STAND_IN_FAILS", "1")
    mps = Mps()
    with serving(mps, tmp_path):
        assert mps.env_of(a_gpu(), is_alone=False) == {}
    assert "MPS does not start on GPU-a (the stand-in does not start); trials" in caplog.text


# --- the end of daemons --------------------------------------------------------------------------

SWEEP = """
import os, subprocess, sys, time
from pathlib import Path
from sweeper.machine.nvml import Gpu
from sweeper.machine.mps import Mps
from sweeper.execution.runtime import guarded
from sweeper.guard import MARK_VARIABLE

KERNEL = '''
import os, socket, time
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ["CUDA_MPS_PIPE_DIRECTORY"] + "/control")
s.sendall(f"client {os.getpid()}\\\\n".encode())
s.recv(9)
held = b"x" * (300 << 20)  # to give it back takes a while
print(os.getpid(), flush=True)
time.sleep(600)
'''
with guarded(Path(sys.argv[1])) as (token, folder):
    mps, gpu = Mps(), Gpu(uuid="GPU-a", memory_bytes=1)
    mps.start([gpu], folder=folder, token=token)
    env = {**os.environ, **mps.env_of(gpu, is_alone=False), MARK_VARIABLE: f"{token}.k1;"}
    subprocess.Popen([sys.executable, "-c", KERNEL], env=env)
    time.sleep(600)
"""


def test_after_a_kill_of_the_sweep_the_mps_daemon_ends_after_its_clients(
    program: Path, tmp_path: Path
) -> None:
    study = tmp_path / "study"
    command = [sys.executable, "-c", SWEEP, str(study)]
    sweep = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert sweep.stdout is not None
        kernel = psutil.Process(int(sweep.stdout.readline()))
        (folder,) = Path("/tmp").glob(f"sweep-{mark_of(study)}*")
        daemons = [process for process in stand_ins(folder) if process != kernel]
        assert daemons
        servers = until(  # the daemon may be forking its server just now
            lambda: [p for p in psutil.process_iter() if _is_server_below(p, daemons)]
        )
        sweep.send_signal(signal.SIGKILL)
        while all(_runs(process) for process in (*daemons, *servers)):
            pass
        assert not _runs(kernel)
        sweep.wait()
        until(lambda: not folder.exists())
        until(lambda: not any(_runs(process) for process in (*daemons, *servers)))
    finally:
        sweep.kill()


def _runs(process: psutil.Process) -> bool:
    """Return whether a process has not ended. A zombie counts as ended."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _is_server_below(process: psutil.Process, daemons: list[psutil.Process]) -> bool:
    try:
        return process.ppid() in [daemon.pid for daemon in daemons] and process.environ() == {}
    except psutil.Error:
        return False
