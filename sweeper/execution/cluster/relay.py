"""What runs inside a Dask worker: it starts the process that runs trials and passes messages on.

It lives in the worker's event loop, so nothing here may block, and it imports next to nothing. A
sweep talks to it by calls that go through the scheduler, as all calls of a Dask client do; no other
connection is made.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import struct
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Worker

_log = logging.getLogger(__name__)

#: The name of the relay among the extensions of a Dask worker, and of its calls.
NAME = "notebook_hpo"
#: What a call carries at most, and how much a relay holds for a sweep that does not ask for it.
_CALL_BYTES, _HELD_BYTES = 8_000_000, 32_000_000
#: A sweep that has not called for so long is dead, or cannot reach this worker any more; and where
#: Dask has cancelled the task that stands for it, because its connection to the scheduler is gone.
_SILENCE_S, _SILENCE_WHEN_CANCELLED_S = 60.0, 10.0
#: How long a process has to end in order.
_END_S = 20.0
_LENGTH = struct.Struct("!Q")


class Relay:
    """The processes that run trials on one Dask worker, by the keys of their sweeps."""

    def __init__(self, dask_worker: Worker) -> None:
        self._dask_worker = dask_worker
        self._hosts: dict[str, _HostProcess] = {}

    async def answer(self, key: str, act: str, **arguments: Any) -> Any:
        """Carry out a call of a sweep.

        Args:
            key: of the process.
            act: `send`, `receive` or `end`.
        """
        host = self._hosts.get(key)
        if host is None:
            return {"messages": [], "number": 0, "is_gone": True}
        host.heard_s = time.monotonic()
        if act == "send":
            return await host.send(**arguments)
        if act == "receive":
            return await host.receive(**arguments)
        await self.end(key)
        return None

    async def begin(self, key: str) -> None:
        """Start a process, with a private folder in that of the Dask worker."""
        if key not in self._hosts:
            host = await _HostProcess.start(self._dask_worker.local_directory)
            self._hosts[key] = host
            host.watching = asyncio.ensure_future(self._watch(key, host))

    async def end(self, key: str) -> None:
        """End a process, unless it has ended; nothing of it is left."""
        host = self._hosts.pop(key, None)
        if host is not None:
            await host.end()

    async def close(self) -> None:
        """End all: the Dask worker ends."""
        await asyncio.gather(*(self.end(key) for key in list(self._hosts)))

    def wait(self, key: str) -> None:
        """Return when a process has ended. For a thread of the Dask worker."""
        host = self._hosts.get(key)
        if host is not None:
            host.ended.wait()

    async def _watch(self, key: str, host: _HostProcess) -> None:
        """End a process whose sweep is gone."""
        while not host.ended.is_set():
            await asyncio.sleep(1.0)
            task = self._dask_worker.state.tasks.get(task_name(key))
            is_cancelled = task is not None and task.state == "cancelled"
            limit_s = _SILENCE_WHEN_CANCELLED_S if is_cancelled else _SILENCE_S
            if time.monotonic() - host.heard_s > limit_s:
                await self.end(key)


class _HostProcess:
    """One process that runs trials, and the messages that wait for its sweep."""

    def __init__(self, process: asyncio.subprocess.Process, root: Path) -> None:
        self._process = process
        self._root = root
        self._messages: deque[bytes] = deque()
        self._number = 0  # of the first that waits
        self._bytes = 0
        self._taken = 0
        self._is_new, self._has_room = asyncio.Event(), asyncio.Event()
        self._is_at_end = False
        self._sending = asyncio.Lock()
        self._reading = asyncio.ensure_future(self._read())
        self.watching: asyncio.Future[None] | None = None
        self.ended = threading.Event()
        self.heard_s = time.monotonic()

    @classmethod
    async def start(cls, folder: str) -> _HostProcess:
        """Start a process with a private folder."""
        root = Path(tempfile.mkdtemp(prefix="notebook-hpo-", dir=folder)).resolve()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-P", "-m", f"{__package__}.host", str(root)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=root,
            start_new_session=True,  # a Ctrl-C on a terminal is for the sweep
        )
        return cls(process, root)

    async def send(self, number: int, messages: list[bytes]) -> None:
        """Pass messages on to the process; those that have come before are ignored.

        Args:
            number: of the first of them, counted from 0.
        """
        async with self._sending:
            pipe = self._process.stdin
            assert pipe is not None
            for data in messages[max(0, self._taken - number) :]:
                try:
                    pipe.write(_LENGTH.pack(len(data)) + data)
                    await pipe.drain()
                except OSError:  # it has ended, which `receive` answers
                    return
                self._taken += 1

    async def receive(self, number: int, wait_s: float) -> dict[str, Any]:
        """The messages of the process from a number on, at least one unless the time is over.

        Args:
            number: of the first that has not arrived at home, counted from 0.

        Returns:
            `messages`, the `number` of the first, and `is_gone`: the process has ended, and there
            are no more.
        """
        while self._number < number and self._messages:
            self._bytes -= len(self._messages.popleft())
            self._number += 1
        if self._bytes < _HELD_BYTES:
            self._has_room.set()
        if not self._messages and not self._is_at_end:
            self._is_new.clear()
            try:
                await asyncio.wait_for(self._is_new.wait(), wait_s)
            except TimeoutError:
                pass
        found: list[bytes] = []
        size = 0
        for data in self._messages:
            size += len(data)
            if found and size > _CALL_BYTES:
                break
            found.append(data)
        is_gone = self._is_at_end and len(found) == len(self._messages)
        return {"messages": found, "number": self._number, "is_gone": is_gone}

    async def end(self) -> None:
        """End the process, in order if it does so soon, and remove its folder."""
        pipe = self._process.stdin
        if pipe is not None:
            pipe.close()
        try:
            await asyncio.wait_for(self._process.wait(), _END_S)
        except TimeoutError:
            self._process.kill()  # its guard ends its kernels
            await self._process.wait()
        await asyncio.get_running_loop().run_in_executor(None, _remove, self._root)
        self.ended.set()

    async def _read(self) -> None:
        """Take the messages of the process, as long as there is room for them."""
        pipe = self._process.stdout
        assert pipe is not None
        try:
            while True:
                (length,) = _LENGTH.unpack(await pipe.readexactly(_LENGTH.size))
                data = await pipe.readexactly(length)
                self._messages.append(data)
                self._bytes += length
                self._is_new.set()
                if self._bytes >= _HELD_BYTES:
                    self._has_room.clear()
                    await self._has_room.wait()
        except (asyncio.IncompleteReadError, OSError):
            await self._process.wait()
        finally:
            self._is_at_end = True
            self._is_new.set()


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def relay_of(dask_worker: Worker) -> Relay:
    """The relay of a Dask worker, which is made when it is asked for first."""
    relay = dask_worker.extensions.get(NAME)
    if relay is None:
        # Dask closes its extensions when a worker ends.
        relay = dask_worker.extensions[NAME] = Relay(dask_worker)
        dask_worker.handlers[NAME] = relay.answer
    assert isinstance(relay, Relay)
    return relay


async def begin(key: str, dask_worker: Worker) -> None:
    """Start the process that runs the trials of a sweep on this Dask worker."""
    await relay_of(dask_worker).begin(key)


def note_refusal(why: str) -> None:
    """Write into this worker's log why a sweep does not use it."""
    _log.warning("%s", why)


def task_name(key: str, index: int = 0) -> str:
    """The name of a task that stands for the process that runs trials."""
    return f"{key}-{index}"


def stand_for(key: str) -> None:
    """Hold a thread of the Dask worker while a process runs trials there, as a task of Dask.

    Dask then knows that the worker is busy: it retires others first, and an idle scheduler does not
    end itself. When the sweep's client is gone, Dask cancels the task.
    """
    from distributed import get_worker

    relay_of(get_worker()).wait(key)
