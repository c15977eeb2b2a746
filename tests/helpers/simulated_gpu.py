"""A simulated GPU: it grants memory and time to real notebooks, and counts what it has granted.

    python tests/helpers/simulated_gpu.py SOCKET BYTES MODE

This command starts the GPU, a process that answers on a UNIX socket. Notebooks only wait for it and
never compute, so that many of them fit onto two cores. The GPU runs work of one process at a time
(MODE `slice`), or all work at once, more slowly if its processors are too few (`mps`). `crowd` is
like `mps`, but slower with more than two clients. The memory of a process is free when it ends. A
fault ends the work of its process. If this process uses MPS, the fault also ends the work of all
other processes that use MPS.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from sweeper.machine.nvml import Gpu, Nvml
from sweeper.machine.suspension import CudaCheckpoints, DriverError

#: In the mode "crowd", each client beyond two multiplies the speed of all work by this factor
#: (chosen, not measured).
_CROWDED = 0.65
#: Seconds to switch from the work of one process to that of another.
_SWITCH_S = 0.00005
_NAME = "GPU-0"
#: Work with less than this many seconds left counts as done, because clocks are not finer.
_DONE_S = 1e-5

#: Source of a cell that defines `Device`, with which a notebook uses the GPU that it was given.
DEVICE_CELL = """
import json, math, os, re, socket

class OutOfMemoryError(RuntimeError):
    pass

class Device:
    def __init__(self, folder):
        self._mps = self._connected_to_mps()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(f"{folder}/{os.environ['CUDA_VISIBLE_DEVICES']}.sock")
        self._answers = self._socket.makefile("r")
        self._taken, self._most = 0, self._limit()
    def _limit(self):  # as torch reads it, which does not count what CUDA itself takes
        setting = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
        fraction = re.search("per_process_memory_fraction:([0-9.]+)", setting)
        if fraction is None:
            return math.inf
        of_cuda = 0.96 * self._ask(op="state")["memory_bytes"]  # NVML counts more
        return float(fraction[1]) * of_cuda + 2**29
    def _connected_to_mps(self):
        daemon = socket.socket(socket.AF_UNIX)
        try:
            daemon.connect(os.environ["CUDA_MPS_PIPE_DIRECTORY"] + "/control")
        except (KeyError, OSError):
            return None  # as CUDA does: it goes on without
        daemon.sendall(f"client {os.getpid()}\\n".encode())
        if daemon.recv(9) != b"ACCEPTED\\n":
            raise RuntimeError(
                "CUDA error: MPS server is not ready to accept new MPS client requests"
            )
        return daemon
    def _ask(self, **request):
        request |= {"pid": os.getpid(), "is_shared": self._mps is not None}
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\\n")
            answer = self._answers.readline()
        except OSError:
            answer = ""
        if not answer:
            raise RuntimeError("CUDA error: unspecified launch failure")
        return json.loads(answer)
    def take(self, n_bytes):
        self._taken += n_bytes
        is_allowed = self._taken <= self._most
        if not (is_allowed and self._ask(op="take", bytes=n_bytes)["is_granted"]):
            size = f"{n_bytes / 2**30:.2f} GiB"
            raise OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size}.")
    def work(self, seconds, share=1.0):
        self._ask(op="work", seconds=seconds, share=share)
    def fault(self):
        if self._mps is not None:
            self._mps.sendall(b"fault\\n")
        self._ask(op="fault")
"""


class SimulatedGpus(Nvml):
    """A process that simulates a GPU, and its driver. Use it as a context manager.

    Args:
        folder: Folder of its socket, with a short path.
        memory_bytes: Memory of the GPU.
        mode: `"slice"`, `"mps"` or `"crowd"`.

    Attributes:
        folder: Folder of its socket.
    """

    def __init__(self, folder: Path, *, memory_bytes: int, mode: str = "slice") -> None:
        self.folder, self._memory_bytes, self._mode = folder, memory_bytes, mode
        self._socket = folder / f"{_NAME}.sock"
        #: The counts of the GPU when `busy_share` was last called. None before the first call.
        self._before: dict[str, Any] | None = None

    def __enter__(self) -> SimulatedGpus:
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, __file__, str(self._socket)]
        command += [str(self._memory_bytes), self._mode]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE)
        while not self._answers():
            time.sleep(0.01)
        return self

    def _answers(self) -> bool:
        """Return whether the GPU answers. Its socket's file exists a moment earlier."""
        try:
            self.ask(op="state")
        except OSError:
            return False
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.communicate()  # the process ends when its stdin is closed

    def installed(self) -> Sequence[Gpu]:
        """Return the GPU."""
        return [Gpu(uuid=_NAME, memory_bytes=self._memory_bytes)]

    def used_bytes(self, uuid: str) -> int | None:
        """Return the memory in use."""
        return int(self.state(uuid)["used_bytes"])

    def used_by(self, uuid: str) -> Mapping[int, int]:
        """Return the memory in use by process id."""
        return {int(pid): n_bytes for pid, n_bytes in self.state(uuid)["used_by"].items()}

    def busy_share(self, uuid: str) -> float | None:
        """Return the busy share of the time since the last call. None for the first call."""
        state = self.state(uuid)
        before, self._before = self._before, state
        if before is None or state["at_s"] <= before["at_s"]:
            return None
        busy_s, passed_s = (state[n] - before[n] for n in ("busy_s", "at_s"))
        return float(busy_s / passed_s)

    def state(self, uuid: str) -> dict[str, Any]:
        """Return the counts of the GPU; see `_Device.state`."""
        return self.ask(op="state")

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request to the GPU and return its answer."""
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(self._socket))
            asking.sendall(json.dumps(request).encode() + b"\n")
            with asking.makefile("r") as answers:
                answer: dict[str, Any] = json.loads(answers.readline())
                return answer


class SimulatedCheckpoints(CudaCheckpoints):
    """A stand-in for the driver's calls that take a process off the simulated GPU.

    Like the driver, it needs a process that is not paused.

    Args:
        gpus: The simulated GPU.

    Attributes:
        done: Names of the calls that were accepted, such as `lock`.
        refused: Names of the calls that are refused.
        before: Called with the name of each call and the process id, before the call is made.
    """

    def __init__(self, gpus: SimulatedGpus) -> None:
        self._gpus = gpus
        self.done: list[str] = []
        self.refused: set[str] = set()
        self.before: Callable[[str, int], object] = lambda name, pid: None

    def obstacle(self) -> str | None:
        return None

    def lock(self, pid: int) -> None:
        self._call("lock", pid)

    def checkpoint(self, pid: int) -> None:
        self._call("checkpoint", pid)

    def restore(self, pid: int) -> None:
        self._call("restore", pid)

    def unlock(self, pid: int) -> None:
        self._call("unlock", pid)

    def _call(self, name: str, pid: int) -> None:
        self.before(name, pid)
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            state = "gone"
        if name in self.refused or state in ("T", "Z", "gone"):
            raise DriverError(f"{name} is refused; the process is {state}")
        if not self._gpus.ask(op=name, pid=pid)["is_done"]:
            raise DriverError(f"{name} is refused by the GPU")
        self.done.append(name)


# --- the GPU itself ------------------------------------------------------------------------------


@dataclass(slots=True)
class _Work:
    """Work that runs or waits.

    Attributes:
        left_s: Seconds that the rest of the work takes alone on the GPU.
        share: Share of the GPU's processors that the work can use.
        client: Process that has requested the work.
        done: Future that is set at the end of the work.
    """

    left_s: float
    share: float
    client: int
    done: asyncio.Future[None]


@dataclass(slots=True)
class _Device:
    memory_bytes: int
    is_shared: bool
    is_crowded: bool
    used_by: dict[int, int] = field(default_factory=dict)
    peak_bytes: int = 0
    n_refused: int = 0
    busy_s: float = 0.0
    running: list[_Work] = field(default_factory=list)
    waiting: list[_Work] = field(default_factory=list)
    last_client: int | None = None
    settled_s: float = field(default_factory=time.monotonic)
    timer: asyncio.TimerHandle | None = None
    locked: set[int] = field(default_factory=set)
    off: dict[int, int] = field(default_factory=dict)
    working: Counter[int] = field(default_factory=Counter)

    async def lock(self, pid: int) -> bool:
        """Wait for the work of a process, then block its further requests."""
        if pid in self.locked:
            return False
        self.locked.add(pid)
        while self.working[pid]:
            await asyncio.sleep(0.001)
        return True

    def unlock(self, pid: int) -> bool:
        """Accept requests of a locked process again."""
        if pid not in self.locked or pid in self.off:
            return False
        self.locked.remove(pid)
        return True

    def checkpoint(self, pid: int) -> bool:
        """Free the memory of a locked process, and remember how much it was."""
        if pid not in self.locked or pid in self.off:
            return False
        self.off[pid] = self.used_by.pop(pid, 0)
        return True

    def restore(self, pid: int) -> bool:
        """Give a process its memory back, if this much is free."""
        if pid not in self.off or not self.take(pid, self.off[pid]):
            return False
        del self.off[pid]
        return True

    def forget(self, pid: int) -> None:
        """Free the memory and the lock of an ended process."""
        for of_process in (self.used_by, self.off):
            of_process.pop(pid, None)
        self.locked.discard(pid)

    def take(self, pid: int, n_bytes: int) -> bool:
        """Grant memory to a process, if this much is free."""
        if sum(self.used_by.values()) + n_bytes > self.memory_bytes:
            self.n_refused += 1
            return False
        self.used_by[pid] = self.used_by.get(pid, 0) + n_bytes
        self.peak_bytes = max(self.peak_bytes, sum(self.used_by.values()))
        return True

    async def work(self, seconds: float, share: float, client: int) -> None:
        """Wait until the work is done."""
        work = _Work(seconds, share, client, asyncio.get_running_loop().create_future())
        self._settle()
        if self.is_shared or not self.running:
            self._begin(work)
        else:
            self.waiting.append(work)
        self._set_timer()
        await work.done

    def state(self) -> dict[str, Any]:
        """Return the GPU's counts: memory, refused requests, seconds of work, and the time."""
        self._settle()
        return {
            "used_bytes": sum(self.used_by.values()),
            "used_by": self.used_by,
            "memory_bytes": self.memory_bytes,
            "peak_bytes": self.peak_bytes,
            "n_refused": self.n_refused,
            "busy_s": self.busy_s,
            "at_s": self.settled_s,
        }

    def _begin(self, work: _Work) -> None:
        if not self.is_shared and self.last_client not in (None, work.client):
            work.left_s += _SWITCH_S
        self.last_client = work.client
        self.running.append(work)

    @property
    def _pace(self) -> float:
        """Return the speed of each work, where 1 is its speed alone on the GPU."""
        crowd = max(0, len(self.running) - 2) if self.is_crowded else 0
        return min(1.0, 1.0 / self._asked_share) * _CROWDED**crowd

    @property
    def _asked_share(self) -> float:
        return sum(work.share for work in self.running) if self.is_shared else 1.0

    def _settle(self) -> None:
        """Count the work that was done since the last call."""
        now_s = time.monotonic()
        if self.running:
            passed_s = now_s - self.settled_s
            pace = self._pace
            self.busy_s += passed_s
            for work in self.running:
                work.left_s -= passed_s * pace
        self.settled_s = now_s

    def _set_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self.running:
            pace = self._pace
            wait_s = max(0.0, min(work.left_s for work in self.running) / pace)
            self.timer = asyncio.get_running_loop().call_later(wait_s, self._end_what_is_done)

    def _end_what_is_done(self) -> None:
        self._settle()
        for work in [work for work in self.running if work.left_s <= _DONE_S]:
            self.running.remove(work)
            if not work.done.done():
                work.done.set_result(None)
        if not self.is_shared and self.waiting and not self.running:
            self._begin(self.waiting.pop(0))
        self._set_timer()


async def _serve(path: str, memory_bytes: int, mode: str) -> None:
    device = _Device(memory_bytes, is_shared=mode != "slice", is_crowded=mode == "crowd")
    sharing: set[asyncio.StreamWriter] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pid = 0
        try:
            while line := await reader.readline():
                request, reply = json.loads(line), {}
                if request.get("is_shared"):
                    sharing.add(writer)
                if request["op"] in ("take", "work"):
                    pid = request["pid"]
                    while pid in device.locked and not reader.at_eof():
                        await asyncio.sleep(0.005)
                match request["op"]:
                    case "fault":
                        for one in sharing if request["is_shared"] else {writer}:
                            one.close()
                        return
                    case "take":
                        reply = {"is_granted": device.take(pid, request["bytes"])}
                    case "work":
                        device.working[pid] += 1
                        await device.work(request["seconds"], request["share"], id(writer))
                        device.working[pid] -= 1
                    case "lock":
                        reply = {"is_done": await device.lock(request["pid"])}
                    case "unlock":
                        reply = {"is_done": device.unlock(request["pid"])}
                    case "checkpoint":
                        reply = {"is_done": device.checkpoint(request["pid"])}
                    case "restore":
                        reply = {"is_done": device.restore(request["pid"])}
                    case "state":
                        reply = device.state()
                writer.write(json.dumps(reply).encode() + b"\n")
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            sharing.discard(writer)
            device.forget(pid)
            writer.close()

    server = await asyncio.start_unix_server(answer, path)
    loop = asyncio.get_running_loop()
    # Until the parent process closes stdin or ends.
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
