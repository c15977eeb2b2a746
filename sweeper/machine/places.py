"""Assign GPUs to trials, and let trials wait until the memory that they need is free.

Trials wait in a queue. The first trial in the queue starts on the GPU with the most free memory, if
its memory reservation (`Claim`) fits there. The reservation is the memory that users state, or 1.1
times the peak of the largest trial so far. The first trial has a GPU for itself until its peak is
known. A trial that ran out of memory runs once more, alone on the GPU with the most memory.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from pathlib import Path

from ..guard import marked_processes, stat_of
from ..settings.machines import Resources
from ..trials import (
    AloneOn,
    Blocked,
    GpuUse,
    Machine,
    Phase,
    RunningTrial,
    TrialOutcome,
    TrialSpec,
    TrialState,
)
from .capacity import (
    available_bytes,
    has_descriptors,
    has_tasks,
    memory_of,
    oom_kills,
    own_memory_of,
    shares_memory_with,
)
from .claims import Claim, Claims
from .faults import Fault
from .gpus import chosen_gpus, usable_bytes
from .mps import Mps, why_not
from .nvml import CONTEXT_BYTES, Gpu, GpuError, Nvml
from .settling import Circumstances, settled
from .suspension import CudaCheckpoints, DriverError, SuspensionError, bring_back, end, take_off

_log = logging.getLogger(__name__)

#: Environment variables from which numerical libraries read their number of threads when they are
#: imported. This number changes the last bits of results, so it is the same for the whole study.
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
#: Environment variables that keep JAX and TensorFlow from reserving most of a GPU at their start.
_TAKE_WHAT_IS_NEEDED = {
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
}
#: Seconds between two checks of the memory of running trials and of the reservations of other
#: sweeps (chosen, not measured).
_LOOK_S = 1.0
#: The peak of a trial's memory counts as known if the memory has not grown for this many seconds
#: (chosen, not measured).
_SETTLED_S = 10.0
#: A trial's memory counts as grown if it is more than this many times the largest memory before
#: (chosen, not measured).
_STEADY = 1.02
#: A trial reserves this many times the largest peak of the trials before (chosen, not measured).
_SPREAD = 1.1
#: A GPU with less than this share of another GPU's memory is smaller (chosen, not measured). GPUs
#: of one model differ less. A trial that does not fit on the smaller one may fit on the other.
_SMALL = 0.9
#: torch may allocate this many times the memory that users state (chosen). torch's limit is a
#: fraction of the total memory that CUDA reports, which is up to 4 % less than the total that NVML
#: reports. A trial that uses exactly the stated memory must not fail because of this difference.
_CAP = 1.05
#: A GPU counts as empty if at least this share of its memory is free (chosen, not measured). The
#: driver and small programs may use the rest. Host memory counts as free of other sweeps if at
#: least this share of it is free, without what this sweep and other programs use.
_EMPTY_SHARE = 0.95
#: A trial is frozen (its kernel is paused) only if this many times its memory is free on the
#: machine (chosen, not measured): once for the trial that gets its slot, and once for the growth of
#: running trials.
_FREE_MEMORY = 2.0


class StoppedWaiting(Exception):
    """A trial was stopped while it waited for memory or a GPU."""


class NoGpuLeftError(Exception):
    """All GPUs of the sweep have failed or no longer answer."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The reason why a trial waits, in words.

    Attributes:
        what: Reason. Users are told whenever it changes.
        details: Figures and names, which change often. May be empty.
        is_for_others: Whether no trial of this sweep runs, so that the sweep waits for other sweeps
            or programs.
        blocked: Frozen trials that use what the trial waits for.
    """

    what: str
    details: str = ""
    is_for_others: bool = False
    blocked: Blocked = field(default_factory=Blocked)

    def __str__(self) -> str:
        return f"{self.what}: {self.details}" if self.details else self.what


class Obstacle(Enum):
    """Reasons why a trial cannot begin on a GPU now.

    The values are texts that follow the figures of the GPU in a message.
    """

    NO_ROOM = ""  # The GPU's figures in the message already show that too little memory is free.
    ONE_PROCESS = " and accepts one trial at a time (EXCLUSIVE_PROCESS)"
    ONE_TRIAL = " and is used by one trial alone"
    UNKNOWN_PEAKS = " and accepts one more trial when the peaks of these are known"


@dataclass(slots=True, kw_only=True, eq=False)
class Place:
    """The device assignment of a trial: the GPUs and memory that it has on its machine.

    Attributes:
        spec: Spec of the trial.
        running: The running trial.
        gpus: GPUs of the trial. Empty while the trial waits, and on a machine without GPUs.
        env: Environment variables for the trial's kernel.
        memory_fraction: Fraction of the GPU's memory that torch may allocate. None if users do not
            state the memory of trials.
        claim_bytes: Bytes of the GPU's memory that are reserved for the trial. None if the whole
            GPU is reserved.
        is_alone: Whether no other trial of the sweep has run on the machine since the trial began.
        is_alone_on_gpu: Whether no other trial or program has used the trial's GPUs since it began.
        has_shown: Whether the trial's peak of GPU memory is known. It is known when the trial has
            reported steps or kept its GPU busy, and its memory has stopped growing.
        used_before_bytes: Bytes of the GPU's memory that other programs used when the trial began.
            None if other trials used the GPU.
        kills_before: Number of processes that the system had killed for lack of memory when the
            trial began.
        stays: Whether the trial keeps its GPU memory while it is frozen, because the driver has
            refused to move this memory to host memory.
        is_off: Whether the trial is frozen and its GPU memory was moved to host memory.
        has_run: Whether the notebook has run to its end, so that the kernel is shutting down.
        has_ended: Whether the trial has ended, and its kernel too.
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
    _settled: tuple[int, float] = (0, 0.0)
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
        """Record how much memory of a GPU the trial uses now."""
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
        """Update whether the trial's peak of GPU memory is known. Call this once in each check.

        Args:
            busy_share: Share of the time since the last check in which the GPU was busy. None if
                it is unknown.
            look_s: Seconds between two checks.
            settled_s: Seconds without growth after which the peak is known.
        """
        if busy_share is not None:
            self._busy_shares.append(busy_share)
        now_s, peak_bytes = time.monotonic(), self._peak_bytes or 0
        if not self._settled[1] or peak_bytes > _STEADY * self._settled[0]:
            self._settled = peak_bytes, now_s
        # A trial is only frozen after a report, so a frozen trial has worked.
        has_worked = self.running.points.steps >= 2 or self.is_frozen
        is_at_work = has_worked or sum(self._busy_shares) * look_s >= settled_s
        self.has_shown |= is_at_work and now_s - self._settled[1] >= settled_s

    def use(self, torch_bytes: int | None = None) -> GpuUse:
        """Return the trial's peak of GPU memory and how busy its GPUs were.

        The peak is the larger one of two values: that of the driver and that of torch. It is None
        if the driver saw no used memory although the GPU was busy: then it cannot measure memory.

        Args:
            torch_bytes: Largest GPU memory that torch has reserved, in bytes. None if unknown.
        """
        shares = self._busy_shares
        busy_share = round(sum(shares) / len(shares), 4) if shares else None
        seen = self._peak_bytes if self._peak_bytes or busy_share == 0 else None
        peak_bytes = seen if torch_bytes is None else max(seen or 0, torch_bytes + CONTEXT_BYTES)
        return GpuUse(peak_bytes=peak_bytes, busy_share=busy_share)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    """The memory of a GPU that is used, reserved and free now.

    Attributes:
        gpu: GPU to which the figures belong.
        places: Device assignments of this sweep's trials on the GPU.
        others: Memory reservations of the user's other sweeps.
        free_bytes: Bytes that can be reserved for another trial. Negative if trials and programs
            use or reserve more than the GPU has.
        foreign_bytes: Bytes that are used by programs other than the user's trials.
        usable_bytes: Bytes that trials may use if nothing else does.
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
    def is_empty(self) -> bool:
        """Whether no trial is on the GPU, and other programs use almost nothing of it."""
        is_used = self.places or self.others
        return not is_used and self.free_bytes >= _EMPTY_SHARE * self.usable_bytes

    def without(self, is_gone: Callable[[Place], bool]) -> _Room:
        """Return the figures that the GPU would have without some of the sweep's trials."""
        gone = [place for place in self.places if is_gone(place)]
        freed = sum(place.claim(self.gpu, self.usable_bytes).claim_bytes for place in gone)
        places = [place for place in self.places if place not in gone]
        return replace(self, places=places, free_bytes=self.free_bytes + freed)

    def __str__(self) -> str:
        held = [f"{place.spec.run_id} {_gb(place.claim_bytes)}" for place in self.places]
        for pid in dict.fromkeys(claim.pid for claim in self.others):
            n_bytes = sum(claim.claim_bytes for claim in self.others if claim.pid == pid)
            held.append(f"another sweep {_gb(n_bytes)}, process {pid}")
        if self.foreign_bytes >= 10**8:
            held.append(f"other programs {_gb(self.foreign_bytes)}")
        free = _gb(max(0, self.free_bytes))
        return f"{self.gpu.uuid[:12]} has {free} free ({', '.join(held) or 'not in use'})"


class Places:
    """Gives each trial its GPUs on this machine, in the order of a queue. Thread-safe.

    Args:
        gpus: GPUs that trials may use. Empty on a machine without GPUs.
        resources: Section `resources` of the parameters file.
        driver: Driver that measures the memory of the GPUs. Default: NVIDIA's.
        claims: Memory reservations, shared with the user's other sweeps.
        mps: MPS, which lets trials on one GPU compute at the same time. None if they take turns.
        checkpoints: Driver calls that move the GPU memory of frozen trials to host memory. None if
            frozen trials keep their GPU memory.
        shares_machine: Whether other workers of the same sweep run trials on this machine.
        root: Root of the file system with `/proc` and `/sys`, from which the free memory and the
            counts of killed processes are read.
        look_s: Seconds between two checks of the memory of running trials.
        settled_s: Seconds without growth after which the peak of a trial's memory is known. Then
            other trials may use the same GPU.
    """

    def __init__(
        self,
        gpus: Sequence[Gpu] = (),
        *,
        resources: Resources | None = None,
        driver: Nvml | None = None,
        claims: Claims | None = None,
        mps: Mps | None = None,
        checkpoints: CudaCheckpoints | None = None,
        shares_machine: bool = False,
        root: Path = Path("/"),
        look_s: float = _LOOK_S,
        settled_s: float = _SETTLED_S,
    ) -> None:
        self.gpus, self.mps = list(gpus), mps
        self._checkpoints, self._shares_machine = checkpoints, shares_machine
        self._resources = resources or Resources()
        self._stated_bytes = self._resources.claim_bytes
        self._per_trial = self._resources.gpus_per_trial
        self._driver = driver or Nvml()
        self._claims = claims or Claims()
        self._root, self._look_s, self._settled_s = root, look_s, settled_s
        #: Text with which `SWEEPER_MARK` begins in the environment of this sweep's processes.
        self._token = ""
        self._lock = threading.RLock()
        self._queue: list[Place] = []
        self._places: list[Place] = []
        #: Largest peak of GPU memory of all trials that have ended, in bytes. None until one peak
        #: was measured.
        self._largest_bytes: int | None = None
        self._closed: set[str] = set()
        self._is_watching = self._has_warned = self._has_told = False

    @classmethod
    def of_machine(
        cls,
        resources: Resources,
        *,
        jobs: int,
        driver: Nvml | None = None,
        shares_machine: bool = False,
    ) -> Places:
        """Return a `Places` for this machine, with the GPUs that a user asks for.

        Args:
            resources: Section `resources` of the parameters file.
            jobs: Number of trials that run at once. With one, MPS is not used.
            driver: Driver of the GPUs. Default: NVIDIA's.
            shares_machine: Whether other workers of the same sweep run trials on this machine.

        Raises:
            SettingsError: This machine lacks a GPU that is asked for, a GPU is too small for a
                trial, or a trial needs more GPUs than there are.
        """
        if resources.gpus == "none":
            return cls(resources=resources, shares_machine=shares_machine)
        driver, per_trial = driver or Nvml(), resources.gpus_per_trial
        gpus = chosen_gpus(resources, driver)
        mps = None
        if resources.mps == "auto":
            obstacle = why_not(gpus, jobs=jobs, per_trial=per_trial)
            if obstacle is None:
                mps = Mps()
            else:
                _log.warning("resources.mps: auto: MPS is not used: %s", obstacle)
        checkpoints = None
        if resources.frozen == "off_gpu":
            checkpoints = CudaCheckpoints()
            obstacle = _why_not_off(checkpoints, has_gpus=bool(gpus), resources=resources)
            if obstacle is not None:
                _log.warning(
                    "resources.frozen: off_gpu: frozen trials keep their GPU: %s", obstacle
                )
                checkpoints = None
        return cls(
            gpus,
            resources=resources,
            driver=driver,
            mps=mps,
            checkpoints=checkpoints,
            shares_machine=shares_machine,
        )

    @property
    def env(self) -> dict[str, str]:
        """Environment variables that all kernels have from their start."""
        has_gpus, resources = bool(self.gpus), self._resources
        return {
            **dict.fromkeys(_THREAD_VARIABLES, str(resources.threads)),
            "PYTHONHASHSEED": "0",
            # cuBLAS is deterministic only with a workspace of fixed size.
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
            # Set these even if NVIDIA's driver lists no GPU: the machine may have an AMD GPU. On a
            # machine without a GPU, they have no effect.
            **{k: os.environ.get(k, v) for k, v in _TAKE_WHAT_IS_NEEDED.items()},
            # No kernel may use a GPU before its trial gets one. When the trial begins, this
            # variable is set to the trial's GPU.
            **({"CUDA_VISIBLE_DEVICES": ""} if has_gpus or resources.gpus == "none" else {}),
        }

    @property
    def waiting(self) -> int:
        """Number of trials that wait for memory or a GPU."""
        return len(self._queue)

    @contextmanager
    def opened(self, *, folder: Path, token: str) -> Iterator[None]:
        """Let trials `lease` GPUs while the block runs. Start MPS before it, and clean up after it.

        Args:
            folder: Private folder of the sweep, with a short path.
            token: Text with which `SWEEPER_MARK` begins in the environment of the sweep's
                processes.
        """
        self._token = token
        if self.mps is not None:
            self.mps.start(self.gpus, folder=folder, token=token)
        try:
            yield
            if self.mps is not None:
                self.mps.close()
        finally:
            self._claims.close()

    @contextmanager
    def lease(
        self, spec: TrialSpec, running: RunningTrial, tell: Callable[[str], object] = lambda _: None
    ) -> Iterator[Place]:
        """Wait for memory and GPUs for a trial, and release them at the end of the block.

        Args:
            spec: Spec of the trial.
            running: The running trial. If it is stopped, the wait ends at once. The wait does not
                count towards its running time.
            tell: Function that is called with one line about what the trial waits for, whenever
                that changes.

        Raises:
            StoppedWaiting: The trial was stopped while it waited.
            NoGpuLeftError: No GPU is left for the trial.
        """
        place = Place(spec=spec, running=running)
        # A signal handler may stop the trial, and must not wait for a lock. So a stop only sets the
        # event that wakes the waiting thread.
        running.control.on_stop(place.look.set)
        try:
            with running.control.waiting():
                self._wait(place, tell)
        finally:
            running.control.on_stop(None)
        try:
            yield place
        finally:
            with self._lock:
                place.has_ended = True
                self._vacate(place)

    def leave_behind(self, place: Place) -> None:
        """Stop using the GPUs of a trial, because even SIGKILL did not end its kernel."""
        why = (
            f"process {place.running.points.pid} of trial {place.spec.run_id} has not ended after "
            "SIGKILL, because a driver or a disk hangs"
        )
        with self._lock:
            for gpu in place.gpus:
                self._close(gpu, why)
        if not place.gpus:
            _log.warning("%s; the sweep continues without it", why)

    def machine_of(self, place: Place) -> Machine:
        """Return the functions that freeze and thaw a trial on this machine."""
        return Machine(
            blocked=partial(self._blocked, place),
            can_leave_gpu=partial(self._can_leave, place),
            leave_gpu=partial(self._leave, place),
            return_to_gpu=partial(self._return, place),
        )

    def _blocked(self, place: Place) -> Blocked | None:
        """Return why a trial cannot be frozen now, or None if it can.

        A trial is only frozen if another trial could then begin in its slot. This other trial is
        the first one in the queue. If the queue is empty, a new trial with the same memory
        reservation is assumed.
        """
        with self._lock:
            if place.spec.alone_on is not None:
                return Blocked()
            if not (has_descriptors() and has_tasks(self._root) and self._has_host_memory(place)):
                return self._blocked_on_host()
            other = self._queue[0] if self._queue else place
            if not self.gpus or other.spec.alone_on is AloneOn.MACHINE:
                return Blocked() if self._queue else None
            rooms = self._rooms_for(other)
            if not self._queue and self._may_begin(other, rooms):
                return None
            if self._checkpoints is None:
                return Blocked() if self._queue else self._blocked_on_gpu(other, rooms)
            left = [
                room.without(lambda one: one is place or one.is_ending or one.is_frozen)
                for room in rooms
            ]
            if not self._may_begin(other, left):
                return Blocked()
            if self._can_leave(place):
                return None
            if not self._has_host_memory(place, more_bytes=place.use().peak_bytes or 0):
                return self._blocked_on_host()
            return Blocked() if self._queue else self._blocked_on_gpu(other, rooms)

    def _blocked_on_host(self) -> Blocked:
        """Return the frozen trials, which block a trial for which host memory is lacking.

        While a kernel is shutting down, return none of them, because its end will free memory.
        """
        if any(place.is_ending for place in self._places):
            return Blocked()
        return Blocked(by=[place.running.control for place in self._places if place.is_frozen])

    def _blocked_on_gpu(self, place: Place, rooms: Sequence[_Room]) -> Blocked:
        """Return the frozen trials whose GPU memory a trial needs.

        Return none if the trial can begin as soon as ending kernels are gone or the memory peaks of
        running trials are known. Return none also if the trial could not begin even without the
        frozen trials.

        Args:
            place: Device assignment of the trial.
            rooms: Memory of the GPUs on which the trial may begin.
        """
        claim_bytes = self._claim_for(place)
        why_not = partial(self._obstacle, place, claim_bytes)
        soon = [room.without(lambda one: one.is_ending) for room in rooms]
        n_soon = sum(why_not(room) in (None, Obstacle.UNKNOWN_PEAKS) for room in soon)
        freed = [room for room in soon if why_not(room.without(lambda one: one.is_frozen)) is None]
        if n_soon >= self._per_trial or len(freed) < self._per_trial:
            return Blocked()
        if claim_bytes is None:  # A GPU becomes empty only if all its trials leave.
            freed = sorted(freed, key=lambda room: len(room.places))[: self._per_trial]
        frozen = [one.running.control for room in freed for one in room.places if one.is_frozen]
        return Blocked(by=frozen, lacks_gpu=True)

    def _has_host_memory(self, place: Place, *, more_bytes: int = 0) -> bool:
        """Return whether enough host memory is free to freeze a trial.

        Args:
            place: Device assignment of the trial. The trial that gets its slot is assumed to need
                as much memory.
            more_bytes: Further bytes that must be free, for GPU memory that is moved to host
                memory.
        """
        free_bytes = available_bytes(self._root)
        own_bytes = memory_of(place.running.points.pid or 0)
        return free_bytes is None or free_bytes >= _FREE_MEMORY * (own_bytes or 0) + more_bytes

    # --- frozen trials without a GPU --------------------------------------------------------------

    def _can_leave(self, place: Place) -> bool:
        """Return whether a trial's GPU memory can be moved to host memory, because it fits there.

        Return False as long as the whole GPU is reserved for the trial, because its largest GPU
        memory is then not known yet.
        """
        with self._lock:
            peak_bytes = place.use().peak_bytes
            if self._checkpoints is None or place.stays or not (place.gpus and peak_bytes):
                return False
            return place.claim_bytes is not None and self._has_host_memory(
                place, more_bytes=peak_bytes
            )

    def _leave(self, place: Place) -> bool:
        """Move a frozen trial's GPU memory to host memory. Return whether the driver did it.

        If the driver fails halfway, the trial's processes cannot continue. Then they are killed,
        and the trial runs again.
        """
        assert self._checkpoints is not None
        group = place.running.points.pid
        if group is None:
            return False
        try:
            take_off(self._checkpoints, self._pids_of(place), group=group)
        except SuspensionError as error:
            _log.warning("trial %s is lost while it leaves its GPU: %s", place.spec.run_id, error)
            end(group)
            return False
        except DriverError as error:
            place.stays = True
            _log.warning("trial %s keeps its GPU while frozen: %s", place.spec.run_id, error)
            return False
        with self._lock:
            place.is_off = True
            self._note_change()
        return True

    def _return(self, place: Place) -> bool:
        """Wait until memory of a trial's GPU is free, and move the trial's memory back to it.

        Return False if the trial was stopped in the meantime, or if the driver cannot move the
        memory back.
        """
        assert self._checkpoints is not None
        group = place.running.points.pid
        try:
            self._wait(place, lambda _: None)
            if group is not None:
                bring_back(self._checkpoints, place.pids, group=group)
        except StoppedWaiting:
            return False
        except (NoGpuLeftError, SuspensionError) as error:
            _log.warning("trial %s is lost, and runs again: %s", place.spec.run_id, error)
            if group is not None:  # The trial ends when its kernel has been killed.
                end(group)
            return False
        finally:
            with self._lock:
                if place.has_ended:  # The trial has ended while this thread waited.
                    self._vacate(place)
        return True

    def _pids_of(self, place: Place) -> list[int]:
        """Return the ids of a trial's processes that use its GPU.

        These are the processes in the driver's list that are in the session of the trial's kernel.
        In a container, the driver may list ids of the host. Then only the kernel's id is returned.
        """
        kernel = place.running.points.pid or 0
        used_by = self._driver.used_by(place.gpus[0].uuid)
        named = [pid for pid in used_by if _session_of(pid) == kernel]
        place.pids = sorted(named) or [kernel]
        return place.pids

    def _vacate(self, place: Place) -> None:
        """Free the memory that is reserved for a trial."""
        if place in self._places:
            self._places.remove(place)
        self._note_change()

    def _note_change(self) -> None:
        """Publish that memory was freed, and let the first trial in the queue check again."""
        self._state_claims()
        self._wake()

    def ran_short(self, place: Place) -> bool:
        """Return whether the system has killed a process for lack of memory since a trial began."""
        return oom_kills(self._root) > place.kills_before

    def settle(
        self,
        place: Place,
        outcome: TrialOutcome,
        *,
        fault: Fault | None = None,
        torch_bytes: int | None = None,
    ) -> TrialOutcome:
        """Return the outcome of a trial that has ended, with its use of GPUs and the final reason.

        Whether other trials used the same memory or GPU decides the reason of a failure. The peak
        of a trial that completed or was pruned decides how much memory later trials reserve.

        Args:
            place: Device assignment of the trial.
            outcome: Outcome of the trial before the correction.
            fault: Fault that the trial's error reports. None if it reports no known fault.
            torch_bytes: Largest GPU memory that torch in the kernel has reserved, in bytes. None if
                the notebook does not use torch on a GPU.
        """
        with self._lock:
            place.has_run = True
            for gpu in place.gpus:
                if fault is Fault.DEVICE:
                    self._close(gpu, outcome.first_line)
                self._look_at(gpu)
            failed = ", ".join(gpu.uuid for gpu in place.gpus if gpu.uuid in self._closed)
            if place.gpus:
                use = place.use(torch_bytes)
                outcome = replace(outcome, gpu=use)
                if outcome.state in (TrialState.COMPLETED, TrialState.PRUNED):
                    self._learn(place, use.peak_bytes)
        if outcome.state is not TrialState.FAILED:
            return outcome
        # If several workers of this sweep share the machine, the processes of the other workers
        # cannot be told from those of another sweep. So assume that there is no other sweep.
        is_next_to_sweep = not self._shares_machine and self._is_next_to_sweep()
        had = Circumstances(
            fault=fault,
            has_gpu=bool(place.gpus),
            # A trial with a limit in torch could not use the whole GPU, so it may still fit there
            # without this limit.
            had_gpu_memory=place.is_alone_on_gpu
            and place.memory_fraction is None
            and not any(map(self._is_small, place.gpus)),
            had_host_memory=place.is_alone and not (self._shares_machine or is_next_to_sweep),
            shared_with_sweep=is_next_to_sweep and place.spec.alone_on is AloneOn.MACHINE,
            shares_by_mps=any(map(self._has_mps, place.gpus)) and not place.is_alone_on_gpu,
            failed_gpus=failed or None,
        )
        return settled(outcome, had)

    def _is_next_to_sweep(self) -> bool:
        """Return whether kernels of this user's other sweeps use much of this machine's memory."""
        marks = marked_processes("").items()
        others = [pid for pid, mark in marks if not mark.startswith(self._token)]
        sharing = [pid for pid in others if shares_memory_with(pid, self._root)]
        used_bytes = sum(own_memory_of(pid) or 0 for pid in sharing)  # Children are listed, too.
        free_bytes = available_bytes(self._root)
        if free_bytes is None:
            return False
        return free_bytes < _EMPTY_SHARE * (free_bytes + used_bytes)

    def _learn(self, place: Place, peak_bytes: int | None) -> None:
        """Remember the peak of a trial that completed or was pruned, for later reservations.

        If the peak could not be measured, warn once.
        """
        if peak_bytes is not None:
            self._largest_bytes = max(self._largest_bytes or 0, peak_bytes)
            self._wake()
        elif self._largest_bytes is None and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "the memory that trials use on %s cannot be measured, so each trial has a GPU for "
                "itself; to share GPUs, state the memory of a trial, as in "
                "resources: {gpu_memory: 9GB}",
                place.gpus[0].uuid,
            )

    # --- choice of the trial that begins ---------------------------------------------------------

    def _wait(self, place: Place, tell: Callable[[str], object]) -> None:
        """Wait in the queue until a trial can begin, and reserve its memory.

        Call `tell` with what the trial waits for, whenever that changes.
        """
        told, control = "", place.running.control
        with self._lock:
            self._join_queue(place)
        try:
            while control.stop_reason is None and not place.has_ended:
                with self._lock:
                    wait = self._begin_or_wait(place)
                if wait is None:
                    return
                control.waits_for = str(wait)
                if wait.blocked.by:
                    control.make_room(wait.blocked)
                place.look.wait(self._look_s)
                place.look.clear()
                if wait.what != told:
                    level = logging.INFO
                    if wait.is_for_others and not self._has_told:
                        level, self._has_told = logging.WARNING, True
                    _log.log(level, "trial %s waits for %s", place.spec.run_id, wait)
                    tell(str(wait))
                    told = wait.what
            raise StoppedWaiting
        finally:
            with self._lock:
                self._leave_queue(place)

    def _join_queue(self, place: Place) -> None:
        """Add a trial at the end of the queue.

        A frozen trial that returns to its GPU goes before a trial that must run alone on the
        machine. The lone trial begins only after all other trials have ended, so behind it, the
        frozen trial would wait forever.
        """
        alone = [n for n, one in enumerate(self._queue) if one.spec.alone_on is AloneOn.MACHINE]
        self._queue.insert(alone[0] if alone and place.is_off else len(self._queue), place)

    def _leave_queue(self, place: Place) -> None:
        if place in self._queue:
            self._queue.remove(place)
            self._wake()

    def _wake(self) -> None:
        """Let the first trial in the queue check again whether it can begin."""
        if self._queue:
            self._queue[0].look.set()

    def _begin_or_wait(self, place: Place) -> Wait | None:
        """Let a trial begin and return None, or return what it waits for."""
        if self._queue[0] is not place:
            return Wait(f"its turn, behind {self._queue[0].spec.run_id}")
        others = [trial for trial in self._places if trial is not place]
        alone = [trial for trial in (place, *others) if trial.spec.alone_on is AloneOn.MACHINE]
        if alone and others:
            ends = ", ".join(trial.spec.run_id for trial in others)
            are_frozen = all(trial.is_frozen for trial in others)
            return Wait(
                f"the end of {ends}",
                f"{alone[0].spec.run_id} runs alone on this machine",
                blocked=self._blocked_on_host() if are_frozen else Blocked(),
            )
        if not self.gpus:
            self._begin(place, [], None)
            return None
        with self._claims.gate() as is_mine:
            if not is_mine:
                return Wait("another sweep, which is reserving memory of a GPU")
            rooms = self._rooms_for(place)
            if len(rooms) < self._per_trial:
                raise NoGpuLeftError("no GPU is left: all have failed, or no longer answer")
            claim_bytes = self._claim_for(place)
            seen = [(room, self._obstacle(place, claim_bytes, room)) for room in rooms]
            fitting = [room for room, obstacle in seen if obstacle is None]
            if len(fitting) < self._per_trial:
                size = "an empty GPU" if claim_bytes is None else f"{_gb(claim_bytes)} of a GPU"
                states = [f"{room}{obstacle.value if obstacle else ''}" for room, obstacle in seen]
                return Wait(
                    size,
                    "; ".join(states),
                    is_for_others=not self._places,
                    blocked=self._blocked_on_gpu(place, rooms),
                )
            fitting.sort(key=lambda room: -room.free_bytes)
            chosen = sorted(fitting[: self._per_trial], key=lambda room: room.gpu.uuid)
            self._begin(place, chosen, claim_bytes)
            return None

    def _is_alone(self, spec: TrialSpec) -> bool:
        """Return whether a trial must have its GPUs for itself."""
        return self._per_trial > 1 or spec.alone_on is not None

    def _claim_of(self, spec: TrialSpec) -> int | None:
        """Return how many bytes of a GPU to reserve for a trial, or None for the whole GPU."""
        if self._is_alone(spec):
            return None
        if self._stated_bytes is not None:
            return self._stated_bytes + CONTEXT_BYTES
        shown = [place.use().peak_bytes for place in self._places if place.has_shown]
        peaks = [peak for peak in (self._largest_bytes, *shown) if peak is not None]
        return round(_SPREAD * max(peaks)) if peaks else None

    def _claim_for(self, place: Place) -> int | None:
        """Return how many bytes of a GPU a trial needs to begin, or to return to its GPU."""
        claim_bytes = self._claim_of(place.spec)
        if place.is_off:
            return max(claim_bytes or 0, place.use().peak_bytes or 0)
        return claim_bytes

    def _rooms_for(self, place: Place) -> list[_Room]:
        """Return the memory of the GPUs on which a trial may begin, or to which it returns.

        A trial that must run alone has failed for lack of memory. So it does not begin on a GPU
        that can give it less memory than another one.
        """
        gpus = place.gpus if place.is_off else self.gpus
        rooms = [room for gpu in gpus if (room := self._look_at(gpu)) is not None]
        if place.spec.alone_on is None or len(rooms) <= self._per_trial:
            return rooms
        most_bytes = sorted((room.most_bytes for room in rooms), reverse=True)
        least_bytes = _SMALL * most_bytes[self._per_trial - 1]
        return [room for room in rooms if room.most_bytes >= least_bytes]

    def _may_begin(self, place: Place, rooms: Sequence[_Room]) -> bool:
        """Return whether a trial can begin now on as many GPUs as it needs."""
        why_not = partial(self._obstacle, place, self._claim_for(place))
        return sum(why_not(room) is None for room in rooms) >= self._per_trial

    def _obstacle(self, place: Place, claim_bytes: int | None, room: _Room) -> Obstacle | None:
        """Return why a trial cannot begin on a GPU now, or None if it can.

        Args:
            place: Device assignment of the trial.
            claim_bytes: Memory to reserve for the trial. None for the whole GPU.
            room: Memory of the GPU.
        """
        fits = (claim_bytes or 0) <= max(0, room.free_bytes)
        if not (room.places or room.others):
            # On an empty GPU, a trial begins even if its reservation exceeds the GPU's memory,
            # unless another GPU has more. If other programs, such as a desktop, always use the GPU,
            # it is never empty. Next to such programs, a trial begins if the largest measured peak
            # fits without the margin that reservations add to it.
            if self._stated_bytes is None:
                fits |= (claim_bytes or 0) <= _SPREAD * room.most_bytes
            may_try = room.is_empty and (place.is_off or not self._is_small(room.gpu))
            return None if fits or may_try else Obstacle.NO_ROOM
        if room.gpu.is_exclusive and not self._has_mps(room.gpu):
            return Obstacle.ONE_PROCESS
        if any(map(self._is_alone, (place.spec, *(other.spec for other in room.places)))):
            return Obstacle.ONE_TRIAL
        if not (self._is_known or all(other.has_shown for other in room.places)):
            return Obstacle.UNKNOWN_PEAKS
        return None if fits and claim_bytes is not None else Obstacle.NO_ROOM

    def _is_small(self, gpu: Gpu) -> bool:
        """Return whether another GPU of the sweep has clearly more memory than this one."""
        others = [other.memory_bytes for other in self.gpus if other.uuid not in self._closed]
        return self._per_trial == 1 and gpu.memory_bytes < _SMALL * max(others, default=0)

    def _has_mps(self, gpu: Gpu) -> bool:
        return self.mps is not None and self.mps.serves(gpu)

    @property
    def _is_known(self) -> bool:
        """Whether the memory of trials is known: users state it, or an ended trial was measured."""
        return self._stated_bytes is not None or self._largest_bytes is not None

    def _begin(self, place: Place, rooms: Sequence[_Room], claim_bytes: int | None) -> None:
        place.gpus, place.claim_bytes = [room.gpu for room in rooms], claim_bytes
        if place.is_off:
            place.is_off = place.is_alone_on_gpu = False
        else:
            self._note_start(place, rooms, claim_bytes)
        others = [other for other in self._places if other is not place]
        for other in others:
            other.is_alone = place.is_alone = False
            if any(gpu in other.gpus for gpu in place.gpus):
                other.is_alone_on_gpu = False
        self._places = [*others, place]
        self._leave_queue(place)
        self._state_claims()
        if rooms and not self._is_watching:
            self._is_watching = True
            threading.Thread(target=self._watch, name="gpu memory", daemon=True).start()

    def _note_start(self, place: Place, rooms: Sequence[_Room], claim_bytes: int | None) -> None:
        """Store what a trial gets when it begins, and who else uses its GPU at that moment.

        These values stay the same when the trial is frozen and continues.
        """
        place.kills_before = oom_kills(self._root)
        if not rooms:
            return
        place.env = {"CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in place.gpus)}
        if self.mps is not None:
            is_alone = place.spec.alone_on is not None
            place.env |= self.mps.env_of(place.gpus[0], is_alone=is_alone)
        if self._stated_bytes is not None and claim_bytes is not None:
            fraction = _CAP * self._stated_bytes / place.gpus[0].memory_bytes
            place.memory_fraction = min(1.0, fraction)
        place.is_alone_on_gpu = all(room.is_empty for room in rooms)
        if len(rooms) == 1 and not (rooms[0].places or rooms[0].others):
            place.used_before_bytes = rooms[0].foreign_bytes

    # --- measured memory of trials ---------------------------------------------------------------

    def _watch(self) -> None:
        """Check the GPU memory of all trials at intervals, until no trial is left."""
        while True:
            with self._lock:
                gpus = {gpu.uuid: gpu for place in self._places for gpu in place.gpus}
                if not gpus:
                    self._is_watching = False
                    return
                for gpu in gpus.values():
                    self._look_at(gpu)
                    busy_share = self._driver.busy_share(gpu.uuid)
                    for place in self._on(gpu):
                        place.watch(busy_share, self._look_s, self._settled_s)
                        is_known = place.has_shown or self._is_known
                        if place.claim_bytes is None and is_known:
                            place.claim_bytes = self._claim_of(place.spec)
                self._state_claims()
                self._wake()
            time.sleep(self._look_s)

    def _look_at(self, gpu: Gpu) -> _Room | None:
        """Measure the memory of a GPU, and record what each of its trials uses.

        Returns:
            The memory that is used and reserved, or None if the GPU has failed.
        """
        if gpu.uuid in self._closed:
            return None
        places, others = self._on(gpu), self._claims.of_others(gpu.uuid)
        try:
            used_bytes = self._driver.used_bytes(gpu.uuid)
        except GpuError as error:
            self._close(gpu, str(error))
            return None
        used_by = self._driver.used_by(gpu.uuid)
        by_session = _by_session(used_by)
        are_measured = True
        for place in places:
            taken_bytes = by_session.get(place.running.points.pid or 0)
            before_bytes = place.used_before_bytes
            if taken_bytes is None and used_bytes is not None and before_bytes is not None:
                # In a container, the driver knows processes by other ids. If the trial is alone on
                # the GPU, all memory that is used in addition since it began is the trial's.
                is_lone = len(places) == 1 and not others
                taken_bytes = max(0, used_bytes - before_bytes) if is_lone else None
            if taken_bytes is not None:
                place.see(gpu, taken_bytes)
            are_measured &= taken_bytes is not None
        usable = self._usable(gpu)
        claims = [*self._claims_on(gpu), *others]
        foreign = max(0, (used_bytes or 0) - sum(claim.used_bytes for claim in claims))
        free = usable - foreign - sum(claim.claim_bytes for claim in claims)
        strange = foreign - _of_commands(used_by, [place.running.points.pid for place in places])
        if others or (are_measured and strange > (1 - _EMPTY_SHARE) * usable):
            for place in places:  # Another sweep or program may have come after the trial began.
                place.is_alone_on_gpu = False
        return _Room(
            gpu=gpu,
            places=places,
            others=others,
            free_bytes=free,
            foreign_bytes=foreign,
            usable_bytes=usable,
        )

    def _usable(self, gpu: Gpu) -> int:
        return usable_bytes(gpu, keeps_spare=self._stated_bytes is None)

    def _on(self, gpu: Gpu) -> list[Place]:
        return [place for place in self._places if gpu in place.gpus and not place.is_off]

    def _claims_on(self, gpu: Gpu) -> list[Claim]:
        return [place.claim(gpu, self._usable(gpu)) for place in self._on(gpu)]

    def _state_claims(self) -> None:
        """Publish this sweep's memory reservations to the user's other sweeps."""
        if self.gpus:
            self._claims.write({gpu.uuid: self._claims_on(gpu) for gpu in self.gpus})

    def _close(self, gpu: Gpu, why: str) -> None:
        """Stop using a GPU for trials of this sweep, and warn the user."""
        if gpu.uuid not in self._closed:
            self._closed.add(gpu.uuid)
            _log.warning("%s runs no more trials of this sweep: %s", gpu.uuid, why)


def _why_not_off(
    checkpoints: CudaCheckpoints, *, has_gpus: bool, resources: Resources
) -> str | None:
    """Return why frozen trials' GPU memory cannot be moved to host memory, with the remedy.

    Return None if it can.
    """
    if not has_gpus:
        return "this machine has no GPU that the sweep uses"
    if resources.mps == "auto":
        return "the driver cannot do it with MPS; set mps: off"
    if resources.gpus_per_trial > 1:
        return "the sweep does it only with gpus_per_trial: 1"
    return checkpoints.obstacle()


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _by_session(used_by: Mapping[int, int]) -> dict[int, int]:
    """Return how many bytes each kernel and its children use, by session id.

    A kernel is the leader of its session, so its process id is also the session's id.
    """
    sessions: dict[int, int] = {}
    for pid, n_bytes in used_by.items():
        # None if the process has ended, or if its id is only valid outside of this container.
        session = _session_of(pid)
        if session is not None:
            sessions[session] = sessions.get(session, 0) + n_bytes
    return sessions


def _of_commands(used_by: Mapping[int, int], kernels: Collection[int | None]) -> int:
    """Return how many bytes of a GPU are used by shell commands that kernels have started.

    Such a command, for example `!python train.py`, runs in its own session. So `_by_session` does
    not count it as a part of the kernel.
    """
    return sum(
        n_bytes
        for pid, n_bytes in used_by.items()
        if _session_of(pid) not in kernels and _is_below(pid, kernels)
    )


def _is_below(pid: int, kernels: Collection[int | None]) -> bool:
    """Return whether a process is a child of one of these kernels, directly or indirectly."""
    with suppress(OSError):  # The process has ended, or its id is not valid in this container.
        while pid > 1:
            if pid in kernels:
                return True
            pid = int(stat_of(pid)[1])
    return False


def _gb(n_bytes: int | None) -> str:
    return "all" if n_bytes is None else f"{n_bytes / 1e9:.1f} GB"
