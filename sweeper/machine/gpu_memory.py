"""Measure the memory of GPUs, and decide which trial can begin on which GPU now.

A trial reserves the memory that users state, or 1.1 times the peak of the largest trial so far. The
first trial has a GPU for itself until its peak is known. A trial that ran out of memory runs once
more, alone on the GPU with the most memory.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum

from ..guard import stat_of
from ..settings.machines import Resources
from .claims import Claim, Claims
from .gpus import usable_bytes
from .mps import Mps
from .nvml import CONTEXT_BYTES, Gpu, GpuError, Nvml
from .place import Place

_log = logging.getLogger(__name__)

#: A trial reserves this many times the largest peak of earlier trials (chosen, not measured).
_SPREAD = 1.1
#: A GPU with less than this share of another GPU's memory counts as smaller (chosen, not measured).
#: GPUs of one model differ less. A trial that does not fit on the smaller one may fit on the other.
_SMALL = 0.9
#: A GPU counts as empty if at least this share of its memory is free (chosen, not measured). The
#: driver and small programs may use the rest.
_EMPTY_SHARE = 0.95
#: Messages leave out what other programs use if it is less than this many bytes (chosen).
_WORTH_MENTIONING_BYTES = 10**8


class Obstacle(Enum):
    """Reasons why a trial cannot begin on a GPU now.

    Each value is a text that follows the memory figures of the GPU (`Room`) in a message.
    """

    NO_ROOM = ""  # The GPU's figures in the message already show that too little memory is free.
    ONE_PROCESS = " and accepts one trial at a time (EXCLUSIVE_PROCESS)"
    ONE_TRIAL = " and is used by one trial alone"
    UNKNOWN_PEAKS = " and accepts one more trial when the memory peaks of these trials are known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The memory of a GPU that is used, reserved and free now.

    Attributes:
        gpu: GPU to which the figures belong.
        places: Device assignments of this sweep's trials on the GPU.
        others: Memory reservations of the user's other sweeps.
        free_bytes: Bytes that can be reserved for another trial. Negative if trials and programs
            use or reserve more than the GPU has.
        foreign_bytes: Bytes that are used by programs other than the user's trials.
        usable_bytes: Bytes that trials may use if no other program uses the GPU.
    """

    gpu: Gpu
    places: Sequence[Place]
    others: Sequence[Claim]
    free_bytes: int
    foreign_bytes: int
    usable_bytes: int

    @property
    def most_bytes(self) -> int:
        """Bytes that a trial can use when no other trial is on the GPU."""
        return self.gpu.memory_bytes - self.foreign_bytes

    @property
    def is_unused(self) -> bool:
        """Whether neither this sweep nor another sweep of the user has a trial on the GPU."""
        return not self.places and not self.others

    @property
    def is_empty(self) -> bool:
        """Whether no trial is on the GPU, and at least 95 % of its usable memory is free."""
        return self.is_unused and self.free_bytes >= _EMPTY_SHARE * self.usable_bytes

    def without(self, is_gone: Callable[[Place], bool]) -> Room:
        """Return the figures that the GPU would have without some trials of this sweep.

        Args:
            is_gone: Returns whether to leave out a trial, given its device assignment.
        """
        gone = [place for place in self.places if is_gone(place)]
        freed = sum(place.claim(self.gpu, self.usable_bytes).claim_bytes for place in gone)
        places = [place for place in self.places if place not in gone]
        return replace(self, places=places, free_bytes=self.free_bytes + freed)

    def __str__(self) -> str:
        held = [f"{place.spec.run_id} {in_gb(place.claim_bytes)}" for place in self.places]
        of_sweeps: Counter[int | None] = Counter()
        for claim in self.others:
            of_sweeps[claim.pid] += claim.claim_bytes
        for pid, n_bytes in of_sweeps.items():
            held.append(f"another sweep {in_gb(n_bytes)}, process {pid}")
        if self.foreign_bytes >= _WORTH_MENTIONING_BYTES:
            held.append(f"other programs {in_gb(self.foreign_bytes)}")
        free = in_gb(max(0, self.free_bytes))
        return f"{self.gpu.uuid[:12]} has {free} free ({', '.join(held) or 'not in use'})"


class GpuMemory:
    """The memory of this machine's GPUs, as the trials of this sweep share it. Not thread-safe.

    Args:
        gpus: GPUs that trials may use. Empty on a machine without GPUs.
        resources: Section `resources` of the parameters file.
        driver: Driver that measures the memory.
        claims: Memory reservations, shared with the user's other sweeps.
        mps: MPS, which lets trials on one GPU compute at the same time.

    Attributes:
        gpus: GPUs that trials may use, including those that have failed since.
        places: Device assignments of the trials that run on this machine.
    """

    def __init__(
        self,
        gpus: Sequence[Gpu],
        *,
        resources: Resources,
        driver: Nvml,
        claims: Claims,
        mps: Mps,
    ) -> None:
        self.gpus = gpus
        self._mps = mps
        self.places: list[Place] = []
        self._per_trial = resources.gpus_per_trial
        self._stated_bytes = resources.claim_bytes
        self._driver = driver
        self._claims = claims
        self._failed: set[str] = set()
        #: Largest peak of GPU memory of the trials that completed or were pruned, in bytes. None
        #: until one peak was measured.
        self._largest_bytes: int | None = None

    def works(self, gpu: Gpu) -> bool:
        """Return whether a GPU has not failed."""
        return gpu.uuid not in self._failed

    def give_up(self, gpu: Gpu, why: str) -> None:
        """Count a GPU as failed: no further trial of this sweep begins on it. Warn the user.

        Args:
            gpu: The GPU.
            why: Reason, for the warning.
        """
        if self.works(gpu):
            self._failed.add(gpu.uuid)
            _log.warning("%s runs no more trials of this sweep: %s", gpu.uuid, why)

    def on(self, gpu: Gpu) -> list[Place]:
        """Return the device assignments of the trials that have memory on a GPU.

        A frozen (paused) trial whose memory was moved to host memory is not one of them.
        """
        return [place for place in self.places if gpu in place.gpus and not place.is_off]

    def publish(self) -> None:
        """Publish the memory reservations of this sweep to the user's other sweeps."""
        if self.gpus:
            self._claims.write({gpu.uuid: self._claims_on(gpu) for gpu in self.gpus})

    def measure(self, gpu: Gpu) -> Room | None:
        """Measure the memory of a GPU, and record what each of its trials uses.

        Returns:
            The memory that is used, reserved and free, or None if the GPU has failed.
        """
        if not self.works(gpu):
            return None
        try:
            used_bytes = self._driver.used_bytes(gpu.uuid)
        except GpuError as error:
            self.give_up(gpu, str(error))
            return None
        places = self.on(gpu)
        others = self._claims.of_others(gpu.uuid)
        are_measured = self._measure_trials(gpu, used_bytes, is_lone=not others)
        usable = self._usable_bytes(gpu)
        claims = [*self._claims_on(gpu), *others]
        foreign = max(0, (used_bytes or 0) - sum(claim.used_bytes for claim in claims))
        is_used_by_program = are_measured and foreign > (1 - _EMPTY_SHARE) * usable
        if others or is_used_by_program:
            for place in places:  # The other sweep or program may have come after the trial began.
                place.is_alone_on_gpu = False
        return Room(
            gpu=gpu,
            places=places,
            others=others,
            free_bytes=usable - foreign - sum(claim.claim_bytes for claim in claims),
            foreign_bytes=foreign,
            usable_bytes=usable,
        )

    def _measure_trials(self, gpu: Gpu, used_bytes: int | None, *, is_lone: bool) -> bool:
        """Record how much memory of a GPU each of its trials uses.

        Args:
            gpu: The GPU.
            used_bytes: Memory that all processes use. None if it is unknown.
            is_lone: Whether no other sweep has reserved memory of the GPU. Then the growth of
                the used memory shows what a single trial uses.

        Returns:
            Whether the memory of all these trials is known.
        """
        places = self.on(gpu)
        kernels = [place.running.points.pid for place in places]
        by_kernel = _by_kernel(self._driver.used_by(gpu.uuid), kernels)
        are_measured = True
        for place in places:
            taken_bytes = by_kernel.get(place.running.points.pid)
            if taken_bytes is None and is_lone and len(places) == 1:
                taken_bytes = _growth_since_start(place, used_bytes)
            if taken_bytes is None:
                are_measured = False
            else:
                place.see(gpu, taken_bytes)
        return are_measured

    def watch(self, gpu: Gpu, look_s: float, settled_s: float) -> None:
        """Update the memory peaks of a GPU's trials, and reservations that are for a whole GPU.

        If a trial has reserved the whole GPU only because no peak was known, it reserves less as
        soon as its peak, or that of an ended trial, is known.

        Args:
            gpu: The GPU.
            look_s: Seconds between two checks.
            settled_s: Seconds without growth after which a peak is known.
        """
        self.measure(gpu)
        busy_share = self._driver.busy_share(gpu.uuid)
        for place in self.on(gpu):
            place.watch(busy_share, look_s, settled_s)
            if place.claim_bytes is None and (place.has_shown or self.is_known):
                place.claim_bytes = self.claim_bytes(place)

    def pids_of(self, place: Place) -> list[int]:
        """Return the ids of a trial's processes that use its GPU.

        In a container, the driver may list ids of the host. Then only the kernel's id is returned.
        """
        kernel = place.running.points.pid or 0
        used_by = self._driver.used_by(place.gpus[0].uuid)
        named = [pid for pid in used_by if _kernel_of(pid, [kernel]) == kernel]
        return sorted(named) or [kernel]

    def _usable_bytes(self, gpu: Gpu) -> int:
        return usable_bytes(gpu, keeps_spare=self._stated_bytes is None)

    def _claims_on(self, gpu: Gpu) -> list[Claim]:
        return [place.claim(gpu, self._usable_bytes(gpu)) for place in self.on(gpu)]

    # --- choice of a GPU -------------------------------------------------------------------------

    @property
    def is_known(self) -> bool:
        """Whether it is known how much GPU memory a trial needs.

        Either users state it, or the peak of a trial that completed or was pruned was measured.
        """
        return self._stated_bytes is not None or self._largest_bytes is not None

    def learn(self, peak_bytes: int) -> None:
        """Remember the peak of a trial that completed or was pruned, for later reservations."""
        self._largest_bytes = max(self._largest_bytes or 0, peak_bytes)

    def claim_bytes(self, place: Place) -> int | None:
        """Return how many bytes of a GPU must be reserved for a trial.

        None stands for the whole GPU. The call itself reserves nothing. A trial whose GPU memory
        was moved to host memory needs at least its earlier peak.
        """
        claim_bytes = self._new_claim_bytes(place)
        if place.is_off:
            return max(claim_bytes or 0, place.use().peak_bytes or 0)
        return claim_bytes

    def _new_claim_bytes(self, place: Place) -> int | None:
        if self._needs_whole_gpu(place):
            return None
        if self._stated_bytes is not None:
            return self._stated_bytes + CONTEXT_BYTES
        shown = [other.use().peak_bytes for other in self.places if other.has_shown]
        peaks = [peak for peak in (self._largest_bytes, *shown) if peak is not None]
        return round(_SPREAD * max(peaks)) if peaks else None

    def _needs_whole_gpu(self, place: Place) -> bool:
        return self._per_trial > 1 or place.spec.alone_on is not None

    def rooms(self, place: Place) -> list[Room]:
        """Return the memory of the GPUs on which a trial may begin.

        A trial whose GPU memory was moved to host memory may only return to its earlier GPU. A
        trial that must run alone has usually run out of memory before. So it does not begin on a
        GPU that can give it clearly less memory (`_SMALL`) than another one.
        """
        gpus = place.gpus if place.is_off else self.gpus
        measured = [self.measure(gpu) for gpu in gpus]
        rooms = [room for room in measured if room is not None]
        if place.spec.alone_on is None or len(rooms) <= self._per_trial:
            return rooms
        most_bytes = sorted((room.most_bytes for room in rooms), reverse=True)
        least_bytes = _SMALL * most_bytes[self._per_trial - 1]
        return [room for room in rooms if room.most_bytes >= least_bytes]

    def can_begin(self, place: Place, rooms: Sequence[Room]) -> bool:
        """Return whether a trial can begin now on as many GPUs as it needs."""
        return len(self.fitting(place, rooms)) >= self._per_trial

    def fitting(self, place: Place, rooms: Sequence[Room]) -> list[Room]:
        """Return those of the GPUs on which a trial can begin now, the most free memory first.

        Args:
            place: Device assignment of the trial.
            rooms: Memory of the GPUs on which the trial may begin.
        """
        fitting = [room for room in rooms if self.obstacle(place, room) is None]
        return sorted(fitting, key=lambda room: -room.free_bytes)

    def obstacle(self, place: Place, room: Room) -> Obstacle | None:
        """Return why a trial cannot begin on a GPU now, or None if it can."""
        claim_bytes = self.claim_bytes(place)
        if room.is_unused:
            can_begin = self._can_begin_alone(place, claim_bytes, room)
            return None if can_begin else Obstacle.NO_ROOM
        if room.gpu.is_exclusive and not self._mps.serves(room.gpu):
            return Obstacle.ONE_PROCESS
        if any(map(self._needs_whole_gpu, [place, *room.places])):
            return Obstacle.ONE_TRIAL
        if not self.is_known and not all(other.has_shown for other in room.places):
            return Obstacle.UNKNOWN_PEAKS
        if claim_bytes is None or claim_bytes > max(0, room.free_bytes):
            return Obstacle.NO_ROOM
        return None

    def _can_begin_alone(self, place: Place, claim_bytes: int | None, room: Room) -> bool:
        """Return whether a trial can begin on a GPU that no other trial uses.

        Args:
            place: Device assignment of the trial.
            claim_bytes: Memory that the trial must reserve. None stands for the whole GPU.
            room: Memory of the GPU.
        """
        # Other programs, such as a desktop, may always use the GPU. Then it is never empty, and a
        # reservation, which is larger than the largest measured peak, may never fit. So a trial
        # begins if that peak itself fits next to the programs.
        margin = _SPREAD if self._stated_bytes is None else 1.0
        if (claim_bytes or 0) <= margin * room.most_bytes:
            return True
        # On an empty GPU, a trial begins even if its reservation exceeds the GPU's memory, unless
        # another GPU has more.
        return room.is_empty and (place.is_off or not self.is_small(room.gpu))

    def is_small(self, gpu: Gpu) -> bool:
        """Return whether a GPU has less than 90 % of the memory of another working GPU.

        False if each trial gets several GPUs.
        """
        if self._per_trial > 1:
            return False
        sizes = [other.memory_bytes for other in self.gpus if self.works(other)]
        return gpu.memory_bytes < _SMALL * max(sizes, default=0)


def in_gb(n_bytes: int | None) -> str:
    """Return a number of bytes as text, such as `9.0 GB`. Return `all` for None, a whole GPU."""
    return "all" if n_bytes is None else f"{n_bytes / 1e9:.1f} GB"


def _growth_since_start(place: Place, used_bytes: int | None) -> int | None:
    """Return by how many bytes the use of a GPU has grown since its only trial began.

    In a container, the driver knows processes by other ids. But if a trial is alone on its GPU, the
    growth since it began is the memory of this trial. Return None if the growth is not known.
    """
    before_bytes = place.used_before_bytes
    if used_bytes is None or before_bytes is None:
        return None
    return max(0, used_bytes - before_bytes)


def _by_kernel(used_by: Mapping[int, int], kernels: Collection[int | None]) -> Counter[int | None]:
    """Return how many bytes of a GPU each kernel and the processes started by it use together.

    Args:
        used_by: Bytes of the GPU that each process uses, by its id.
        kernels: Process ids of the kernels. None for a kernel that has not started.

    Returns:
        The bytes by the kernel's process id, without kernels that do not use the GPU.
    """
    by_kernel: Counter[int | None] = Counter()
    for pid, n_bytes in used_by.items():
        kernel = _kernel_of(pid, kernels)
        if kernel is not None:
            by_kernel[kernel] += n_bytes
    return by_kernel


def _kernel_of(pid: int, kernels: Collection[int | None]) -> int | None:
    """Return the id of the kernel that started a process, directly or indirectly. None if none did.

    A kernel leads a session, in which a process stays even if its parent has ended. A shell command
    such as `!python train.py` has a session of its own, but is a descendant of the kernel.
    """
    with suppress(OSError):  # The process has ended, or its id is not valid in this container.
        session = os.getsid(pid)
        if session in kernels:
            return session
        while pid > 1:
            if pid in kernels:
                return pid
            pid = int(stat_of(pid)[1])
    return None
