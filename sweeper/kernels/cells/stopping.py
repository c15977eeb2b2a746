"""Stop a running notebook step by step, from a request to SIGKILL, or pause its kernel."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from nbclient.util import ensure_async

from ...notebook_api.messages import StopReason
from ..process.kernel import Kernel
from .report_socket import ReportSocket
from .request import ExecutionRequest

# All times below are in seconds. They are chosen, not measured.
#: Longest wait after an interrupt. During the wait, the notebook's `finally` blocks run.
_INTERRUPT_S = 5.0
#: Shortest wait after an interrupt, even if the grace time is short.
_LEAST_INTERRUPT_S = 0.5
#: A kernel is interrupted this many times before it is killed.
_INTERRUPTS = 2
#: A notebook that reports is interrupted if it does not reach its next report within this time.
_NEXT_REPORT_S = 1.0
#: Shortest time that a notebook gets to end by itself, after it was asked to stop.
_LEAST_OWN_S = 1.0
#: Time between two checks for the next report.
_POLL_INTERVAL_S = 0.01
#: Part of the grace time (`limits.grace`) that is left for the sweep's own work after the last
#: kernel has ended.
_SWEEP_END_S = 3.0


@dataclass(kw_only=True, eq=False)
class NotebookStopper:
    """Stops a notebook when its trial is stopped, and pauses its kernel when the trial is frozen.

    While a trial is frozen, another trial uses its slot.

    Attributes:
        kernel: Process of the kernel.
        request: Request to run the notebook, with the running trial and the grace time of a stop.
        reports: Socket that receives messages about how the notebook reacts to a stop.
        loop: Event loop on which the kernel's messages are read.
        has_interrupted: Whether the kernel was interrupted.
    """

    kernel: Kernel
    request: ExecutionRequest
    reports: ReportSocket
    loop: asyncio.AbstractEventLoop
    has_interrupted: bool = False
    _task: asyncio.Task[None] | None = None

    def __enter__(self) -> NotebookStopper:
        """React to stops and freezes of the trial from now on, and to a stop that came earlier."""
        control = self.request.running.control
        control.on_stop(partial(self._soon, self._start))
        control.on_freeze(self._stand_still)
        return self

    def __exit__(self, *_: Any) -> None:
        control = self.request.running.control
        control.on_freeze(None)
        control.on_stop(None)
        if self._task is not None:
            self._task.cancel()
            self.loop.run_until_complete(asyncio.wait({self._task}))

    def _stand_still(self, is_frozen: bool) -> bool:
        is_done = self.kernel.stand_still(is_frozen)
        self._soon(self.request.write)
        return is_done

    def _soon(self, call: Callable[[], None]) -> None:
        # Ignore a stop that arrives just after the trial's end. The trial's thread has closed the
        # loop by then, which makes this call raise.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(call)

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.ensure_future(self._stop(), loop=self.loop)

    async def _stop(self) -> None:
        """Ask the notebook to end by itself, then interrupt the kernel twice, then kill it.

        This method is cancelled when the notebook ends. If the trial has reached its time limit,
        the notebook is not asked. If the trial's GPU memory is in host memory, or on its way there
        or back, the kernel is killed at once.
        """
        time_s = self.request.grace_s - _SWEEP_END_S
        interrupt_s = time_s / (_INTERRUPTS + 1)
        interrupt_s = min(_INTERRUPT_S, max(_LEAST_INTERRUPT_S, interrupt_s))
        reason = self.request.running.control.stop_reason
        if self.request.running.control.is_off_gpu:
            # The trial is frozen, and its GPU memory was moved to the host. The notebook could end
            # by itself only after a wait for its GPU, so kill the kernel.
            await self.kernel.end_at_once()
            return
        if reason and reason is not StopReason.TIME_LIMIT:
            # A notebook that is asked to end by itself may use the whole grace time, except for the
            # time that the interrupts need.
            await self._ask(reason, max(_LEAST_OWN_S, time_s - _INTERRUPTS * interrupt_s))
        self.has_interrupted = True
        for _ in range(_INTERRUPTS):
            await ensure_async(self.kernel.manager.interrupt_kernel())
            await asyncio.sleep(interrupt_s)
        await self.kernel.end_at_once()

    async def _ask(self, reason: StopReason, own_s: float) -> None:
        """Ask the notebook to end by itself, and wait for it.

        A notebook that has called `should_stop` gets `own_s` seconds, unless its trial is pruned.
        In all other notebooks, the next report raises an exception. A notebook that has reported
        before gets 1 s to make this report, and then `own_s` more seconds. The wait ends early if
        it catches the exception and reports again. A notebook that has never reported gets no time.

        Args:
            reason: Why the trial is stopped.
            own_s: Seconds in which the notebook may end by itself.
        """
        running = self.request.running
        with contextlib.suppress(OSError):  # The kernel's private folder may have been removed.
            self.kernel.ask_to_stop(reason, running.control.message or "the sweep was stopped")
        if self.reports.handles_stop and reason is not StopReason.PRUNED:
            await asyncio.sleep(own_s)
        elif running.points.reports and await self._has_raised(1, min(_NEXT_REPORT_S, own_s)):
            # A notebook that continues has caught this first exception. Its next report raises
            # another one.
            await self._has_raised(2, own_s)

    async def _has_raised(self, times: int, limit_s: float) -> bool:
        """Wait until `times` calls of `report` have raised an exception because of the stop.

        Return False if that takes more than `limit_s` seconds.
        """
        end_s = self.loop.time() + limit_s
        while self.reports.raised < times:
            if self.loop.time() >= end_s:
                return False
            await asyncio.sleep(_POLL_INTERVAL_S)
        return True
