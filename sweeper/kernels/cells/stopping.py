"""End a running notebook step by step, from a polite request to SIGKILL; or have it stand still."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

from nbclient.util import ensure_async

from ...notebook_api.messages import StopReason
from ...trials import RunningTrial
from ..kernel import Kernel
from .report_socket import ReportSocket

#: The longest wait after an interrupt, in which the notebook's `finally` blocks run.
_INTERRUPT_S = 5.0
_INTERRUPTS = 2
#: The shortest such wait, however short the grace time is.
_LEAST_INTERRUPT_S = 0.5
#: How long a notebook that reports has to come to its next report before it is interrupted.
_NEXT_REPORT_S = 1.0
_POLL_INTERVAL_S = 0.01
#: What the sweep itself needs of the grace time, once the last kernel has ended.
_SWEEP_END_S = 3.0


class NotebookStopper:
    """Ends the notebook that runs in a kernel when its trial is stopped, or has it stand still.

    Args:
        grace_s: from the stop to the kernel's end, for a notebook that asks whether to stop.
        write: brings the notebook's file up to date.
        loop: on which the kernel's messages are read.
    """

    def __init__(
        self,
        kernel: Kernel,
        running: RunningTrial,
        *,
        grace_s: float,
        write: Callable[[], None],
        reports: ReportSocket | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._kernel = kernel
        self._running = running
        self._time_s = grace_s - _SWEEP_END_S
        self._reports = reports
        self._write = write
        self._loop = loop
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> NotebookStopper:
        """Wait for a stop from now on; one that came before counts, too."""
        self._running.on_stop(partial(self._soon, self._start))
        self._running.on_freeze(self._stand_still)
        return self

    def __exit__(self, *_: Any) -> None:
        self._running.on_freeze(None)
        self._running.on_stop(None)
        if self._task is not None:
            self._task.cancel()
            self._loop.run_until_complete(asyncio.wait({self._task}))

    def _stand_still(self, is_frozen: bool) -> bool:
        is_done = self._kernel.stand_still(is_frozen)
        self._soon(self._write)
        return is_done

    def _soon(self, call: Callable[[], None]) -> None:
        # A stop may arrive just after the trial's end, when its thread has closed the loop.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.ensure_future(self._stop(), loop=self._loop)

    async def _stop(self) -> None:
        """Let the next report raise; interrupt the kernel's process group twice; kill it."""
        reason, message = self._running.stop_reason, self._running.message
        interrupt_s = min(_INTERRUPT_S, max(_LEAST_INTERRUPT_S, self._time_s / (_INTERRUPTS + 1)))
        # A notebook that knows of the stop has all the time but that of the interrupts.
        own_s = max(1.0, self._time_s - _INTERRUPTS * interrupt_s)
        if reason and reason is not StopReason.TIME_LIMIT:
            with contextlib.suppress(OSError):  # its private folder may have been cleaned away
                self._kernel.ask_to_stop(reason, message or "the sweep was stopped")
            if reason is not StopReason.PRUNED and self._reports and self._reports.handles_stop:
                await asyncio.sleep(own_s)
            elif self._running.reports and await self._has_raised(1, min(_NEXT_REPORT_S, own_s)):
                await self._has_raised(2, own_s)  # one that goes on has caught it
        for _ in range(_INTERRUPTS):
            await ensure_async(self._kernel.manager.interrupt_kernel())
            await asyncio.sleep(interrupt_s)
        await self._kernel.end_at_once()

    async def _has_raised(self, times: int, limit_s: float) -> bool:
        """Wait until so many reports have raised; False after `limit_s` seconds."""
        reports = self._reports
        end_s = self._loop.time() + limit_s
        while reports is None or reports.raised < times:
            if self._loop.time() >= end_s:
                return False
            await asyncio.sleep(_POLL_INTERVAL_S)
        return True
