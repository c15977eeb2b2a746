"""Manage the process of one kernel, from before its trial begins until after the trial's end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from jupyter_core.utils import run_sync
from zmq import ZMQError

from ...files import write_atomically
from ...guard import MARK_VARIABLE, kill_marked, kill_session, marked_processes
from ..forking.fork_server import ForkingProvisioner, ForkServer
from ..forking.forked_process import ForkedProcess
from ..forking.ipython_folder import ipython_folder
from ..forking.origins import KernelOrigin, KernelSetup
from .manager import LIBRARY_LOG, PrivateKernelManager
from .pausing import pause
from .specs import Kernelspecs, runs_in_python

_log = logging.getLogger(__name__)

# The limits down to `_TAIL_BYTES` are chosen, not measured.
#: Seconds between a shutdown request and SIGKILL. In this time, the kernel's exit handlers run.
_SHUTDOWN_S = 10.0
#: Longest wait for the end of a process after SIGKILL, in seconds. A driver or disk that hangs can
#: keep a killed process from ending.
_KILL_S = 30.0
#: Longest time for the delivery of the shutdown request, in milliseconds.
_DELIVERY_MS = 5000
#: Seconds between two checks whether the process has ended.
_POLL_INTERVAL_S = 0.2
#: Messages show at most this number of bytes from the end of a kernel's stderr.
_TAIL_BYTES = 2000
#: Amount by which a kernel's `oom_score_adj` exceeds that of the sweep's processes. If memory runs
#: out, Linux kills processes with a high score first. The unit is a thousandth of the memory, so a
#: kernel counts as if it used another 20 %.
_EARLIER = 200
#: Highest value of `oom_score_adj` in Linux.
_FIRST_TO_GO = 1000


class Kernel:
    """A kernel's process, with its private folder and all processes that the kernel starts.

    The constructor returns while the kernel still boots.

    Args:
        setup: What the sweep's kernels have in common, with the environment of this kernel.
        origin: How the kernel should be made: started or forked. If it cannot be forked, it is
            started.
        fork_server: Server that forks the kernel.

    Attributes:
        setup: What the sweep's kernels have in common, with the environment of this kernel.
        manager: jupyter_client's manager of the kernel.
        folder: Private folder of the kernel, with a short path. Removed when the kernel has ended.
        origin: How the kernel was really made.

    Raises:
        OSError: The kernel's command cannot be run.
    """

    def __init__(
        self, setup: KernelSetup, origin: KernelOrigin, *, fork_server: ForkServer
    ) -> None:
        # This call also makes the private folder of the sweep again if it was removed.
        configuration = ipython_folder(setup.runtime_folder)
        self.setup = setup
        self.folder = Path(tempfile.mkdtemp(prefix="k", dir=setup.runtime_folder))
        self._mark = f"{setup.token}.{self.folder.name};"
        self._is_given_up = False
        stderr = self.folder / "stderr"
        self._stderr: BinaryIO = open(stderr, "w+b")  # noqa: SIM115  `_remove` closes it.
        self.manager = PrivateKernelManager(
            folder=self.folder,
            kernel_name=setup.name,
            kernel_spec_manager=Kernelspecs(),
            log=LIBRARY_LOG,
            is_local=runs_in_python(setup.name),
        )
        if origin.is_forked:
            self.manager.provisioner = ForkingProvisioner(
                fork_server=fork_server,
                kernel_id=self.folder.name,
                kernel_spec=self.manager.kernel_spec,
                parent=self.manager,
            )
        try:
            run_sync(self.manager.start_kernel)(
                env={**setup.env, "IPYTHONDIR": configuration, MARK_VARIABLE: self._mark},
                cwd=str(setup.cwd),
                stdout=self._stderr,
                stderr=self._stderr,
            )
        except BaseException:
            self._remove()
            raise
        self._process: Any = self.manager.provisioner.process  # type: ignore[union-attr]
        self.origin = _true_origin(origin, self._process)
        _give_up_first(self.pid)

    async def ended(self) -> None:
        """Wait until the process ends, or until `end_at_once` gives up the wait for its end."""
        while self.exit_code is None and not self._is_given_up:
            await asyncio.sleep(_POLL_INTERVAL_S)

    async def end_at_once(self) -> None:
        """Send SIGKILL. After 30 s, let `ended` return even if the process still exists."""
        self._signal(signal.SIGKILL)
        await asyncio.sleep(_KILL_S)
        self._is_given_up = True

    @property
    def stop_file(self) -> Path:
        """File that tells the notebook to end by itself. `report` checks whether it exists."""
        return self.folder / "stop"

    @property
    def reports_socket(self) -> Path:
        """Path of the socket to which `report` sends points."""
        return self.folder / "reports"

    @property
    def pid(self) -> int:
        """Process id of the kernel."""
        return int(self._process.pid)

    def ask_to_stop(self, kind: str, message: str) -> None:
        """Let the notebook's next report raise an exception, and `should_stop` return True.

        Args:
            kind: Reason of the stop, as a value of `StopReason`.
            message: Reason in words, for people.
        """
        write_atomically(self.stop_file, json.dumps({"kind": kind, "message": message}))

    def stand_still(self, is_still: bool) -> bool:
        """Pause the kernel and the processes that it has started, or let them continue.

        Args:
            is_still: Whether to pause the processes.

        Returns:
            Whether the kernel is alive.
        """
        if is_still:
            pause(self._signal_all)
        else:
            self._signal_all(signal.SIGCONT)
        return self.exit_code is None

    @property
    def exit_code(self) -> int | None:
        """Exit code of the kernel's process, negative for a signal. None while it runs."""
        code: int | None = self._process.poll()
        return code

    @property
    def is_usable(self) -> bool:
        """Whether the kernel's process runs, and its private folder with the sockets exists."""
        return self.exit_code is None and self.folder.is_dir()

    @property
    def is_orphan(self) -> bool:
        """Whether the kernel ended because the process that it was forked from has ended."""
        return isinstance(self._process, ForkedProcess) and self._process.is_orphan

    def stderr_tail(self) -> str:
        """Return the end of the text that the process wrote to stderr outside of any cell."""
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - _TAIL_BYTES))
        return self._stderr.read().decode("utf-8", "replace").strip()

    def retire(self, on_gone: Callable[[bool], None]) -> threading.Thread:
        """Ask the kernel to end. A thread kills the kernel if it has not ended after 10 s.

        First, the kernel's exit handlers run. Then all processes that it has started are killed.

        Args:
            on_gone: Function that is called when all these processes have ended. Its argument is
                False if even SIGKILL has not ended the kernel.

        Returns:
            The thread.
        """
        shutdown_s = _SHUTDOWN_S if self._ask_to_end() else 0.0
        thread = threading.Thread(
            target=self._see_end, args=[on_gone, shutdown_s], name="kernel end", daemon=True
        )
        thread.start()
        return thread

    def _ask_to_end(self) -> bool:
        """Send a shutdown request. Return False if that is impossible."""
        if not self.is_usable:
            return False
        try:
            control = self.manager.connect_control()
        except (OSError, ZMQError) as error:  # No file descriptor is left for the socket.
            _log.warning("a kernel cannot be asked to end, and is killed: %s", error)
            return False
        # By default, a message is dropped if it is not sent within 0.1 s. A busy machine needs
        # longer. Without the message, the kernel would not end, and would keep its GPU.
        control.linger = _DELIVERY_MS
        self.manager.session.send(control, "shutdown_request", {"restart": False})
        control.close()
        return True

    def kill(self, on_gone: Callable[[bool], None] = lambda _: None) -> None:
        """Kill a kernel that has not run any cell, without its exit handlers, and wait for its end.

        Args:
            on_gone: Function that is called at the end; see `retire`.
        """
        self._signal(signal.SIGKILL)
        self._see_end(on_gone)

    def _see_end(self, on_gone: Callable[[bool], None], shutdown_s: float = 0.0) -> None:
        """Wait for the kernel's end, and kill it if needed. Then kill the processes it has started.

        Args:
            on_gone: Function that is called at the end; see `retire`.
            shutdown_s: Seconds until SIGKILL. 0 for a kernel that was not asked to end.
        """
        if not self._exits_within(shutdown_s):
            self._signal(signal.SIGKILL)
        is_gone = self._exits_within(_KILL_S)
        try:
            # DataLoader workers and subprocesses may outlive the kernel. Kill them too.
            kill_marked(self._mark)
            kill_session(self._process.pid)
            if isinstance(self._process, ForkedProcess):
                self._process.release()
            self._remove()
        finally:
            on_gone(is_gone)  # This call frees the trial's memory and GPU, so always make it.

    def _exits_within(self, limit_s: float) -> bool:
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _signal(self, number: int) -> None:
        """Send a signal to the kernel's process group, of which the kernel is the leader."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _signal_all(self, number: int) -> set[int]:
        """Send a signal to the kernel and the processes that it has started.

        Returns:
            The ids of the kernel and of the processes that have its mark in their environment (the
            variable `guard.MARK_VARIABLE`). Children that a forked kernel has forked lack its mark.
            They get the signal only if they are in the kernel's process group.
        """
        self._signal(number)
        # A command such as `!python train.py` has a process group of its own.
        marked = marked_processes(self._mark)
        for pid in marked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return {self.pid, *marked}

    def _remove(self) -> None:
        self._stderr.close()
        self.manager.context.destroy(linger=100)
        shutil.rmtree(self.folder, ignore_errors=True)


def _true_origin(origin: KernelOrigin, process: Any) -> KernelOrigin:
    """Return how a kernel was really made: it was started if it could not be forked.

    Args:
        origin: How the kernel should have been made.
        process: Process of the kernel.
    """
    if isinstance(process, ForkedProcess):
        return replace(origin, shared=process.shared)
    if origin.is_forked:
        return KernelOrigin(reason="no kernel could be forked at that moment")
    return origin


def _give_up_first(pid: int) -> None:
    """Make the system end a kernel before the sweep's own processes if memory runs out.

    If a kernel ends, one trial is run again. If the sweep's process ends, or the zygote that
    kernels are forked from, all running trials are lost.
    """
    file = Path(f"/proc/{pid}/oom_score_adj")
    with contextlib.suppress(OSError, ValueError):  # The kernel has ended, or has no such file.
        score = int(file.read_text()) + _EARLIER
        file.write_text(str(min(_FIRST_TO_GO, score)))
