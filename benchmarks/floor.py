"""The least that a kernel of its own for each trial can take: forked, run, ended, nothing logged.

A kernel is forked while the slot's last trial runs, after the leading cells, as in a sweep. Here
bare sockets send it the cells, one after the other, and one last request; then it is asked to end
while the next trial begins. There is no notebook file, no study, no MLflow, no papermill.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq
from joblib import Parallel, delayed
from jupyter_client.connect import write_connection_file
from jupyter_client.session import Session

from sweeper.kernels import CellsToShare, KernelPool
from sweeper.kernels.forking.process import ForkedProcess, request_fork

#: How soon a socket tries again to reach a kernel that has not bound its own yet.
_RECONNECT_MS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BareTrial:
    """When the cells of one trial began and ended, on the monotonic clock."""

    began_s: float
    ended_s: float


class BareKernel:
    """A forked kernel and bare sockets to it.

    Args:
        ahead: the socket of the process from which it is forked.
        folder: private to the sweep, with a short path.
    """

    def __init__(self, ahead: str, folder: Path) -> None:
        own = Path(tempfile.mkdtemp(prefix="b", dir=folder))
        file, info = write_connection_file(
            str(own / "k.json"), transport="ipc", ip=str(own / "k"), key=b"of a benchmark"
        )
        self._places: dict[str, Any] = dict(info)
        argv = ["ipykernel_launcher", "-f", file]
        with (own / "output").open("w+b") as output:
            request = {"argv": argv, "env": dict(os.environ), "cwd": str(own)}
            self._process = ForkedProcess(*request_fork(ahead, request, [output.fileno()]))
        self._session = Session(key=b"of a benchmark")
        self._context = zmq.Context()
        self._outputs = self._connect("iopub", zmq.SUB)
        self._outputs.subscribe(b"")
        self._shell, self._control = (
            self._connect(name, zmq.DEALER) for name in ("shell", "control")
        )

    def attach(self) -> None:
        """Wait until outputs arrive: the kernel greets who subscribes to them."""
        while self._receive(self._outputs)["msg_type"] != "iopub_welcome":
            pass

    def send(self, code: str, **options: Any) -> str:
        """Have it run code after what it runs now; the number of the request."""
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        sent = self._session.send(self._shell, "execute_request", {**content, **options})
        assert sent is not None
        return str(sent["header"]["msg_id"])

    def run(self, code: str, **options: Any) -> dict[str, Any]:
        """Run code; the reply, once the last output is there as well."""
        number = self.send(code, **options)
        reply = self._answer_to(number, self._shell)
        assert reply["content"]["status"] == "ok", reply["content"]
        while self._answer_to(number, self._outputs)["content"].get("execution_state") != "idle":
            pass
        content: dict[str, Any] = reply["content"]
        return content

    def end(self) -> None:
        """Ask it to end, and wait for that."""
        self._session.send(self._control, "shutdown_request", {"restart": False})
        self._process.wait()
        self._process.release()
        self._context.destroy(linger=0)

    def _answer_to(self, number: str, socket: zmq.Socket[bytes]) -> dict[str, Any]:
        while True:
            message = self._receive(socket)
            if message["parent_header"].get("msg_id") == number:
                return message

    def _receive(self, socket: zmq.Socket[bytes]) -> dict[str, Any]:
        _, parts = self._session.feed_identities(socket.recv_multipart())
        message: dict[str, Any] = self._session.deserialize(parts)
        return message

    def _connect(self, name: str, kind: int) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = self._context.socket(kind)
        socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        socket.connect(f"ipc://{self._places['ip']}-{self._places[f'{name}_port']}")
        return socket


def bare_trials(
    leading: Sequence[str], cells: Sequence[str], *, trials: int, jobs: int
) -> list[BareTrial]:
    """Run trials in kernels that are forked after the leading cells.

    Args:
        leading: the cells that do not depend on x, which run once for all trials.
        cells: the others; the last one sets `val`.
        jobs: how many trials run at once.
    """
    numbers, lock = iter(range(trials)), threading.Lock()

    def slot(ahead: str, folder: Path) -> list[BareTrial]:
        done: list[BareTrial] = []
        with ThreadPoolExecutor(1) as starts, ThreadPoolExecutor(1) as ends:
            following = starts.submit(BareKernel, ahead, folder)
            while True:
                with lock:
                    number = next(numbers, None)
                kernel = following.result()
                if number is None:
                    kernel.attach()
                    kernel.end()
                    return done
                kernel.attach()
                following = starts.submit(BareKernel, ahead, folder)
                kernel.send(f"x = {number / trials!r}", silent=True, store_history=False)
                began_s = time.monotonic()
                for cell in cells:
                    kernel.run(cell)
                done.append(BareTrial(began_s=began_s, ended_s=time.monotonic()))
                last = {"user_expressions": {"val": "float(val).hex()"}}
                answer = kernel.run("", silent=True, store_history=False, **last)
                assert answer["user_expressions"]["val"]["status"] == "ok", answer
                ends.submit(kernel.end)

    with _forked_after(leading, _imported([*leading, *cells])) as (ahead, folder):
        slots = Parallel(n_jobs=jobs, backend="threading")(
            delayed(slot)(ahead, folder) for _ in range(jobs)
        )
    return sorted((trial for done in slots for trial in done), key=lambda it: it.began_s)


@contextmanager
def _forked_after(leading: Sequence[str], modules: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """A process that has run cells, from which kernels can be forked: its socket, and a folder.

    Args:
        modules: imported before the cells run.
    """
    folder = Path(tempfile.mkdtemp(prefix="sweep-", dir="/tmp"))
    pool = KernelPool(
        "python3", env=os.environ, cwd=folder, runtime_folder=folder, token=folder.name, warm=True
    )
    try:
        sources = dict(enumerate(leading or ["pass"]))
        pool.share(CellsToShare(sources=sources, parameters_at=None, swept=("x",), ended_by=""))
        profile: dict[str, object] = {"modules": modules, "environment": {}, "version": None}
        pool.record_imports(json.dumps(profile))
        pool.wait_until_warm()
        assert pool.offer.shared is not None, pool.offer.obstacle
        yield pool.offer.shared.path, folder
    finally:
        pool.close()
        shutil.rmtree(folder)


def _imported(cells: Sequence[str]) -> list[str]:
    """All modules that cells import, also those that a library imports when it is first used."""
    program = (
        "import json, sys\nbefore = set(sys.modules)\nnames = {'x': 0.5}\n"
        f"for cell in {cells!r}: exec(cell, names)\n"
        "print(json.dumps([name for name in sys.modules if name not in before]))"
    )
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    modules: list[str] = json.loads(ran.stdout.splitlines()[-1])
    return modules
