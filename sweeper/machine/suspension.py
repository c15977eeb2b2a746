"""Move the GPU memory of a frozen (paused) trial's processes to host memory, and back later.

Other trials can use the GPU meanwhile. NVIDIA's driver moves the memory of a process at the request
of another process (CUDA process checkpointing, driver 570 and newer). It lets submitted work end,
copies the process's GPU memory to host memory, and releases the GPU. Later the memory returns to
the same addresses. A thread of the process does the copying, so the process must not be paused
meanwhile.

This was tested with a stand-in for the driver. It has never run on a real GPU.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress

#: A process must end its submitted work and accept the driver's lock within this time (chosen, not
#: measured). A process that waits for another GPU never accepts the lock.
_LOCK_MS = 2000


class DriverError(Exception):
    """The driver refused to lock or unlock a process, or to move its GPU memory."""


class SuspensionError(Exception):
    """The driver left a process locked, or without its GPU memory. The process cannot continue."""


class CudaCheckpoints:
    """NVIDIA's calls that move the GPU memory of a process to host memory and back (cuda-core).

    All calls but `obstacle` raise DriverError if the driver refuses.
    """

    def obstacle(self) -> str | None:
        """Return why this machine cannot move GPU memory to host memory, with the remedy.

        Return None if nothing is known that prevents it.
        """
        try:
            from cuda.core.checkpoint import Process
        except ImportError:
            return "the package cuda-core is missing: pip install 'notebook-hpo[gpu]'"
        try:
            Process(os.getpid()).state  # noqa: B018  asks the driver
        except RuntimeError as error:  # The driver is too old, as the library's message says.
            return str(error)
        except Exception:  # noqa: BLE001  The driver refuses a process that does not use CUDA.
            return None
        return None

    def lock(self, pid: int) -> None:
        """Block further CUDA calls of a process, and let its submitted work end within 2 s."""
        _call(pid, "lock", timeout_ms=_LOCK_MS)

    def checkpoint(self, pid: int) -> None:
        """Copy the GPU memory of a locked process to host memory, and release the GPU."""
        _call(pid, "checkpoint")

    def restore(self, pid: int) -> None:
        """Copy the memory of a locked process back to the same GPU. The process stays locked."""
        _call(pid, "restore")

    def unlock(self, pid: int) -> None:
        """Let a locked process call CUDA again."""
        _call(pid, "unlock")


def take_off(checkpoints: CudaCheckpoints, pids: Sequence[int], *, group: int) -> None:
    """Move the GPU memory of a trial's paused processes to host memory, and release the GPU.

    The processes run during the call, because one of their threads copies the memory. Afterwards,
    they are paused again.

    Args:
        checkpoints: Calls of the driver.
        pids: Processes of the trial that use the GPU.
        group: Process group of the trial.

    Raises:
        DriverError: The driver has refused. The processes have their GPU memory, as before.
        SuspensionError: The driver has refused, and what it had done could not be undone.
    """
    undo: list[tuple[Callable[[int], None], int]] = []
    _signal(group, signal.SIGCONT)
    try:
        for pid in pids:
            checkpoints.lock(pid)
            undo.append((checkpoints.unlock, pid))
        for pid in pids:
            checkpoints.checkpoint(pid)
            undo.append((checkpoints.restore, pid))
    except DriverError:
        try:
            for step, pid in reversed(undo):
                step(pid)
        except DriverError as error:
            raise SuspensionError(str(error)) from error
        raise
    finally:
        _signal(group, signal.SIGSTOP)


def bring_back(checkpoints: CudaCheckpoints, pids: Sequence[int], *, group: int) -> None:
    """Move the memory of a trial's processes back to their GPU, and let the processes continue.

    Args:
        checkpoints: Calls of the driver.
        pids: Processes of the trial whose GPU memory `take_off` has moved to host memory.
        group: Process group of the trial.

    Raises:
        SuspensionError: The driver has refused.
    """
    _signal(group, signal.SIGCONT)
    try:
        for pid in pids:
            checkpoints.restore(pid)
        for pid in pids:
            checkpoints.unlock(pid)
    except DriverError as error:
        raise SuspensionError(str(error)) from error


def end(group: int) -> None:
    """Kill all processes of a trial's process group, because they cannot continue.

    Args:
        group: Id of the process group.
    """
    _signal(group, signal.SIGKILL)


def _call(pid: int, method: str, **options: int) -> None:
    """Call a method of cuda-core's `Process` for the process with this id.

    Args:
        pid: Id of the process.
        method: Name of the method: `lock`, `checkpoint`, `restore` or `unlock`.
        **options: Arguments of the method.

    Raises:
        DriverError: The call has failed.
    """
    from cuda.core.checkpoint import Process

    try:
        getattr(Process(pid), method)(**options)
    except Exception as error:
        raise DriverError(f"process {pid}: {error}") from error


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)
