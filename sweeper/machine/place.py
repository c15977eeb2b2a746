"""The device assignment of one trial: its GPUs, memory reservation and measured memory peak."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..trials import GpuUse, Phase, RunningTrial, TrialSpec
from .claims import Claim
from .nvml import CONTEXT_BYTES, Gpu

#: A trial's memory counts as grown if it is more than this many times as large as when it last
#: counted as grown (chosen, not measured).
_STEADY = 1.02


@dataclass(slots=True, kw_only=True, eq=False)
class Place:
    """The device assignment of a trial: the GPUs and memory that it has on its machine.

    Attributes:
        spec: Spec of the trial.
        running: The running trial.
        gpus: GPUs of the trial. Empty while the trial waits, and on a machine without GPUs.
        env: Environment variables for the trial's kernel.
        memory_fraction: Fraction of the GPU's memory that torch may allocate. None if torch may
            allocate all of it, because `resources.gpu_memory` does not state the memory of trials,
            or because the whole GPU is reserved for the trial.
        claim_bytes: Bytes of the GPU's memory that are reserved for the trial. None if the whole
            GPU is reserved.
        is_alone: Whether no other trial of the sweep has run on the machine since the trial began.
        is_alone_on_gpu: Whether no other trial or program has used the trial's GPUs since it began.
        has_shown: Whether the trial's peak of GPU memory is known. It is known when the trial has
            reported steps or kept its GPU busy, and its memory has stopped growing.
        used_before_bytes: Bytes of the GPU's memory that other programs used when the trial began.
            None if other trials used it, or if the trial has no GPU or several.
        kills_before: Number of processes that the system had killed for lack of memory when the
            trial began.
        stays: Whether the trial keeps its GPU memory while it is frozen (paused), because the
            driver has refused to move this memory to host memory.
        is_off: Whether the trial is frozen and its GPU memory was moved to host memory.
        has_run: Whether the notebook has stopped running, so that the kernel is shutting down.
        has_ended: Whether the trial has ended, and its memory reservation was withdrawn.
        pids: Ids of the trial's processes whose GPU memory was moved to host memory.
        look: Event that makes a waiting trial check again whether it can begin.
    """

    spec: TrialSpec
    running: RunningTrial
    gpus: Sequence[Gpu] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    memory_fraction: float | None = None
    claim_bytes: int | None = None
    is_alone: bool = True
    is_alone_on_gpu: bool = False
    has_shown: bool = False
    used_before_bytes: int | None = None
    kills_before: int = 0
    stays: bool = False
    is_off: bool = False
    has_run: bool = False
    has_ended: bool = False
    pids: Sequence[int] = ()
    look: threading.Event = field(default_factory=threading.Event)
    _peak_bytes: int | None = None
    _taken: dict[str, int] = field(default_factory=dict)
    _steady_bytes: int = 0
    _steady_since_s: float | None = None
    _busy_shares: list[float] = field(default_factory=list)

    @property
    def is_frozen(self) -> bool:
        """Whether the trial is frozen: its kernel is paused, and still holds its memory."""
        return self.running.control.is_frozen

    @property
    def is_ending(self) -> bool:
        """Whether the trial's kernel is shutting down, which will free its memory."""
        control = self.running.control
        return self.has_run or control.stop_reason is not None or control.phase is Phase.LOST

    def see(self, gpu: Gpu, taken_bytes: int) -> None:
        """Record how much memory of a GPU the trial uses now.

        If the trial's peak is above its reservation, raise the reservation to the peak.
        """
        self._taken[gpu.uuid] = taken_bytes
        self._peak_bytes = max(self._peak_bytes or 0, sum(self._taken.values()))
        if self.claim_bytes is not None:
            self.claim_bytes = max(self.claim_bytes, self._peak_bytes)

    def claim(self, gpu: Gpu, all_bytes: int) -> Claim:
        """Return the trial's memory reservation on a GPU, with the memory that it last used.

        Args:
            gpu: GPU of the trial.
            all_bytes: Memory to reserve if the whole GPU is reserved for the trial.
        """
        claim_bytes = all_bytes if self.claim_bytes is None else self.claim_bytes
        return Claim(claim_bytes=claim_bytes, used_bytes=self._taken.get(gpu.uuid, claim_bytes))

    def watch(self, busy_share: float | None, look_s: float, settled_s: float) -> None:
        """Update `has_shown`: whether the trial's peak of GPU memory is known.

        Call this at each check, every `look_s` seconds.

        Args:
            busy_share: Share of the time since the last check in which the GPU was busy. None if
                it is unknown.
            look_s: Seconds between two checks.
            settled_s: Seconds without growth after which the peak is known.
        """
        if busy_share is not None:
            self._busy_shares.append(busy_share)
        now_s = time.monotonic()
        peak_bytes = self._peak_bytes or 0
        if self._steady_since_s is None or peak_bytes > _STEADY * self._steady_bytes:
            self._steady_bytes = peak_bytes
            self._steady_since_s = now_s
        # A trial is only frozen after a report, so the training of a frozen trial has begun.
        has_worked = self.running.points.steps >= 2 or self.is_frozen
        is_at_work = has_worked or sum(self._busy_shares) * look_s >= settled_s
        if is_at_work and now_s - self._steady_since_s >= settled_s:
            self.has_shown = True

    def use(self, torch_bytes: int | None = None) -> GpuUse:
        """Return the trial's peak of GPU memory and how busy its GPUs were.

        The peak is the larger one of two values: the driver's, and torch's plus what CUDA itself
        uses. If the driver's value is 0 although the GPU did work, or may have done work, the
        driver cannot measure memory, and its value does not count. The peak is None if neither
        value is known.

        Args:
            torch_bytes: Largest GPU memory that torch has reserved, in bytes. None if unknown.
        """
        shares = self._busy_shares
        busy_share = round(sum(shares) / len(shares), 4) if shares else None
        seen = self._peak_bytes if self._peak_bytes or busy_share == 0 else None
        peak_bytes = seen if torch_bytes is None else max(seen or 0, torch_bytes + CONTEXT_BYTES)
        return GpuUse(peak_bytes=peak_bytes, busy_share=busy_share)
