"""Assign GPUs to trials, and let trials wait until the memory that they need is free.

Trials wait in a queue. The first trial in the queue starts on the GPU with the most free memory, if
its memory reservation (`Claim`) fits there; see `gpu_memory.py`.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ..guard import marked_processes
from ..settings.machines import Resources
from ..trials import AloneOn, Blocked, Machine, RunningTrial, TrialOutcome, TrialSpec, TrialState
from .capacity import (
    available_bytes,
    has_descriptors,
    has_tasks,
    memory_of,
    oom_kills,
    own_memory_of,
    shares_memory_with,
)
from .claims import Claims
from .faults import Fault
from .gpu_memory import GpuMemory, Obstacle, Room, in_gb
from .gpus import chosen_gpus
from .mps import Mps, why_not
from .nvml import Gpu, Nvml
from .place import Place as Place
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
#: Environment variables that keep JAX and TensorFlow from reserving most of a GPU's memory at their
#: start.
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
#: torch may allocate this many times the memory that users state (chosen). torch's limit is a
#: fraction of the total memory that CUDA reports, which is up to 4 % less than the total that NVML
#: reports. A trial that uses exactly the stated memory must not fail because of this difference.
_CAP = 1.05
#: A sweep counts as alone on its machine if the kernels of other sweeps use little host memory: of
#: the sum of their memory and the free memory, at least this share is free (chosen, not measured).
_EMPTY_SHARE = 0.95
#: A trial is frozen (its kernel is paused) only if this many times its memory is free on the
#: machine (chosen, not measured): once for the trial that gets its slot, and once for the growth of
#: running trials.
_FREE_MEMORY = 2.0


class StoppedWaiting(Exception):
    """A trial was stopped while it waited for memory or a GPU."""


class NoGpuLeftError(Exception):
    """Fewer GPUs work than a trial needs. The others have failed or no longer answer."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The reason why a trial waits, in words.

    Attributes:
        what: What the trial waits for. Users are told whenever it changes.
        details: Figures and names that explain the wait, and change often. May be empty.
        is_for_others: Whether no trial of this sweep runs, so that the sweep waits for other sweeps
            or programs.
        blocked: Frozen (paused) trials that use what the trial waits for.
    """

    what: str
    details: str = ""
    is_for_others: bool = False
    blocked: Blocked = field(default_factory=Blocked)

    def __str__(self) -> str:
        return f"{self.what}: {self.details}" if self.details else self.what


class Places:
    """Gives each trial its GPUs on this machine, in the order of a queue. Thread-safe.

    Args:
        gpus: GPUs that trials may use. Empty on a machine without GPUs.
        resources: Section `resources` of the parameters file.
        driver: Driver that measures the memory of the GPUs. Default: NVIDIA's.
        claims: Memory reservations, shared with the user's other sweeps.
        mps: MPS, which lets trials on one GPU compute at the same time. Default: they take turns.
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
        resources = resources or Resources()
        claims = claims or Claims()
        self.gpus = list(gpus)
        self.mps = mps or Mps(is_on=False)
        self._resources = resources
        self._checkpoints = checkpoints
        self._shares_machine = shares_machine
        self._claims = claims
        self._root = root
        self._look_s = look_s
        self._settled_s = settled_s
        self._gpus = GpuMemory(
            self.gpus, resources=resources, driver=driver or Nvml(), claims=claims, mps=self.mps
        )
        #: Text with which `SWEEPER_MARK` begins in the environment of this sweep's processes.
        self._token = ""
        self._lock = threading.RLock()
        self._queue: list[Place] = []
        self._is_watching = False
        #: Whether users were warned that the memory of trials cannot be measured.
        self._has_warned = False
        #: Whether users were warned that a trial waits for other sweeps or programs.
        self._has_told = False

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
        driver = driver or Nvml()
        gpus = chosen_gpus(resources, driver)
        mps = None
        if resources.mps == "auto":
            obstacle = why_not(gpus, jobs=jobs, per_trial=resources.gpus_per_trial)
            if obstacle is None:
                mps = Mps()
            else:
                _log.warning("resources.mps: auto: MPS is not used: %s", obstacle)
        checkpoints = None
        if resources.frozen == "off_gpu":
            checkpoints = CudaCheckpoints()
            obstacle = _why_not_off(checkpoints, gpus, resources)
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
        threads = str(self._resources.threads)
        hides_gpus = bool(self.gpus) or self._resources.gpus == "none"
        return {
            **dict.fromkeys(_THREAD_VARIABLES, threads),
            "PYTHONHASHSEED": "0",
            # cuBLAS is deterministic only with a workspace of fixed size.
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
            # Set these even if NVIDIA's driver lists no GPU: the machine may have an AMD GPU. On a
            # machine without a GPU, they have no effect.
            **{k: os.environ.get(k, v) for k, v in _TAKE_WHAT_IS_NEEDED.items()},
            # No kernel may use a GPU before its trial gets one. When the trial begins, this
            # variable is set to the trial's GPU.
            **({"CUDA_VISIBLE_DEVICES": ""} if hides_gpus else {}),
        }

    @property
    def waiting(self) -> int:
        """Number of trials that wait for memory or a GPU."""
        return len(self._queue)

    @contextmanager
    def opened(self, *, folder: Path, token: str) -> Iterator[None]:
        """Let trials get GPUs by `lease` while the block runs.

        Start MPS before the block. After it, end MPS and withdraw this sweep's memory reservations.

        Args:
            folder: Private folder of the sweep, with a short path.
            token: Text that only this sweep uses. In the environment of each of its processes, the
                variable `SWEEPER_MARK` begins with it.
        """
        self._token = token
        self.mps.start(self.gpus, folder=folder, token=token)
        try:
            yield
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
            NoGpuLeftError: Fewer GPUs work than the trial needs.
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
        """Begin no more trials on a trial's GPUs, because even SIGKILL did not end its kernel.

        If the trial has no GPU, only warn.
        """
        why = (
            f"process {place.running.points.pid} of trial {place.spec.run_id} has not ended after "
            "SIGKILL, because a driver or a disk hangs"
        )
        with self._lock:
            for gpu in place.gpus:
                self._gpus.give_up(gpu, why)
        if not place.gpus:
            _log.warning("%s; the sweep continues without it", why)

    def machine_of(self, place: Place) -> Machine:
        """Return the functions that are called when a trial is frozen (paused) or thawed.

        `blocked` returns why the trial cannot be frozen now, and `can_leave_gpu` whether its GPU
        memory can be moved to host memory. `leave_gpu` and `return_to_gpu` move it there and back.
        """
        return Machine(
            blocked=partial(self._blocked, place),
            can_leave_gpu=partial(self._can_leave, place),
            leave_gpu=partial(self._leave, place),
            return_to_gpu=partial(self._return, place),
        )

    # --- frozen trials ---------------------------------------------------------------------------

    def _blocked(self, place: Place) -> Blocked | None:
        """Return why a trial cannot be frozen now, or None if it can.

        A trial is frozen (paused) so that another trial can run in its slot. So it is frozen only
        if the other trial could then begin. The other trial is the first one in the queue. If the
        queue is empty, a new trial with the same memory reservation is assumed.
        """
        with self._lock:
            if place.spec.alone_on is not None:
                return Blocked()
            if not (has_descriptors() and has_tasks(self._root) and self._has_host_memory(place)):
                return self._blocked_on_host()
            other = self._queue[0] if self._queue else place
            if self.gpus and other.spec.alone_on is not AloneOn.MACHINE:
                return self._blocked_for(place, other)
            return Blocked() if self._queue else None

    def _blocked_for(self, place: Place, other: Place) -> Blocked | None:
        """Return why no other trial could begin on a GPU if a trial were frozen (paused).

        Return None if another trial could begin.

        Args:
            place: Device assignment of the trial to freeze.
            other: Device assignment of the other trial, or `place` itself if no trial waits.
        """
        rooms = self._gpus.rooms(other)
        does_wait = other is not place
        if not does_wait and self._gpus.can_begin(other, rooms):
            return None
        if self._checkpoints is not None:
            left = [
                room.without(lambda one: one is place or one.is_ending or one.is_frozen)
                for room in rooms
            ]
            if not self._gpus.can_begin(other, left):
                return Blocked()
            moved_bytes = self._movable_bytes(place)
            if moved_bytes is not None:
                has_room = self._has_host_memory(place, more_bytes=moved_bytes)
                return None if has_room else self._blocked_on_host()
        return Blocked() if does_wait else self._blocked_on_gpu(other, rooms)

    def _blocked_on_host(self) -> Blocked:
        """Return all frozen (paused) trials, because they use resources that another trial lacks.

        The resources are host memory, open files, processes and threads. While any kernel is
        shutting down, return no trial, because the kernel's end will free some of them.
        """
        places = self._gpus.places
        if any(place.is_ending for place in places):
            return Blocked()
        return Blocked(by=[place.running.control for place in places if place.is_frozen])

    def _blocked_on_gpu(self, place: Place, rooms: Sequence[Room]) -> Blocked:
        """Return the frozen (paused) trials whose GPU memory a trial needs to begin.

        Return no trials in two cases. First, the trial can begin without their memory, as soon as
        ending kernels are gone or the memory peaks of running trials are known. Second, it could
        not begin even if the frozen trials were gone.

        Args:
            place: Device assignment of the trial.
            rooms: Memory of the GPUs on which the trial may begin.
        """
        needed = self._resources.gpus_per_trial
        soon = [room.without(lambda one: one.is_ending) for room in rooms]
        obstacles = [self._gpus.obstacle(place, room) for room in soon]
        n_soon = sum(obstacle in (None, Obstacle.UNKNOWN_PEAKS) for obstacle in obstacles)
        if n_soon >= needed:
            return Blocked()
        blocked = [
            room
            for room in soon
            if self._gpus.obstacle(place, room.without(lambda one: one.is_frozen)) is None
        ]
        if len(blocked) < needed:
            return Blocked()
        if self._gpus.claim_bytes(place) is None:
            # The trial needs empty GPUs, which all other trials must leave. So choose the GPUs with
            # the fewest trials.
            blocked = sorted(blocked, key=lambda room: len(room.places))[:needed]
        frozen = [one.running.control for room in blocked for one in room.places if one.is_frozen]
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
        if free_bytes is None:
            return True
        own_bytes = memory_of(place.running.points.pid or 0) or 0
        return free_bytes >= _FREE_MEMORY * own_bytes + more_bytes

    def _movable_bytes(self, place: Place) -> int | None:
        """Return how many bytes of a trial's GPU memory can be moved to host memory.

        Return None if they cannot be moved. They cannot be moved while the whole GPU is reserved
        for the trial, because the peak of its GPU memory is not known then.
        """
        if self._checkpoints is None or place.stays or place.claim_bytes is None:
            return None
        return place.use().peak_bytes or None

    def _can_leave(self, place: Place) -> bool:
        """Return whether a trial's GPU memory can be moved to host memory, and fits there."""
        with self._lock:
            moved_bytes = self._movable_bytes(place)
            return moved_bytes is not None and self._has_host_memory(place, more_bytes=moved_bytes)

    def _leave(self, place: Place) -> bool:
        """Move a frozen (paused) trial's GPU memory to host memory. Return whether it was moved.

        If the driver fails halfway, the trial's processes cannot continue. Then they are killed,
        and the trial runs again.
        """
        group = place.running.points.pid
        assert self._checkpoints is not None and group is not None
        place.pids = self._gpus.pids_of(place)
        try:
            take_off(self._checkpoints, place.pids, group=group)
        except SuspensionError as error:
            _log.warning("trial %s is lost, and runs again: %s", place.spec.run_id, error)
            end(group)
            return False
        except DriverError as error:
            place.stays = True
            _log.warning("the frozen trial %s keeps its GPU memory: %s", place.spec.run_id, error)
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
        group = place.running.points.pid
        assert self._checkpoints is not None and group is not None
        try:
            self._wait(place, lambda _: None)
            bring_back(self._checkpoints, place.pids, group=group)
        except StoppedWaiting:
            return False
        except (NoGpuLeftError, SuspensionError) as error:
            _log.warning("trial %s is lost, and runs again: %s", place.spec.run_id, error)
            end(group)  # The trial ends when its kernel has been killed.
            return False
        finally:
            with self._lock:
                if place.has_ended:  # The trial has ended while this thread waited.
                    self._vacate(place)
        return True

    # --- the end of a trial ----------------------------------------------------------------------

    def _vacate(self, place: Place) -> None:
        """Free the memory that is reserved for a trial."""
        if place in self._gpus.places:
            self._gpus.places.remove(place)
        self._note_change()

    def _note_change(self) -> None:
        """Publish the present reservations, and let the first trial in the queue check again."""
        self._gpus.publish()
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
        """Return the final outcome of a trial that has ended, with its use of GPUs.

        The state and reason of a failed trial depend on whether other trials used the same memory
        or GPU. Also remember the memory peak of a trial that completed or was pruned, because it
        decides how much memory later trials reserve.

        Args:
            place: Device assignment of the trial.
            outcome: Outcome of the trial, without regard to its use of memory and GPUs.
            fault: Fault that the trial's error reports. None if it reports no known fault.
            torch_bytes: Largest GPU memory that torch in the kernel has reserved, in bytes. None if
                the notebook does not use torch on a GPU.
        """
        with self._lock:
            place.has_run = True
            for gpu in place.gpus:
                if fault is Fault.DEVICE:
                    self._gpus.give_up(gpu, outcome.first_line)
                self._gpus.measure(gpu)
            if place.gpus:
                use = place.use(torch_bytes)
                outcome = replace(outcome, gpu=use)
                if outcome.state in (TrialState.COMPLETED, TrialState.PRUNED):
                    self._learn(place, use.peak_bytes)
        if outcome.state is not TrialState.FAILED:
            return outcome
        return settled(outcome, self._circumstances(place, fault))

    def _circumstances(self, place: Place, fault: Fault | None) -> Circumstances:
        """Return the conditions under which a trial ran until it failed."""
        # If several workers of this sweep share the machine, the processes of the other workers
        # cannot be told from those of another sweep. So assume that there is no other sweep.
        is_next_to_sweep = not self._shares_machine and self._is_next_to_sweep()
        failed = [gpu.uuid for gpu in place.gpus if not self._gpus.works(gpu)]
        has_mps = any(map(self.mps.serves, place.gpus))
        # If torch had a limit for the trial, the trial could not use the whole GPU. It may fit
        # there without this limit.
        had_whole_gpu = place.is_alone_on_gpu and place.memory_fraction is None
        has_small_gpu = any(map(self._gpus.is_small, place.gpus))
        return Circumstances(
            fault=fault,
            has_gpu=bool(place.gpus),
            had_gpu_memory=had_whole_gpu and not has_small_gpu,
            had_host_memory=place.is_alone and not (self._shares_machine or is_next_to_sweep),
            shared_with_sweep=is_next_to_sweep and place.spec.alone_on is AloneOn.MACHINE,
            shares_by_mps=has_mps and not place.is_alone_on_gpu,
            failed_gpus=", ".join(failed) or None,
        )

    def _is_next_to_sweep(self) -> bool:
        """Return whether kernels of this user's other sweeps use much of this machine's memory.

        Much is more than a twentieth of the sum of their memory and the free memory. False if the
        free memory is not known.
        """
        free_bytes = available_bytes(self._root)
        if free_bytes is None:
            return False
        used_bytes = 0
        for pid, mark in marked_processes("").items():
            if not mark.startswith(self._token) and shares_memory_with(pid, self._root):
                # Child processes bear a mark, too. So each process counts without its children.
                used_bytes += own_memory_of(pid) or 0
        return free_bytes < _EMPTY_SHARE * (free_bytes + used_bytes)

    def _learn(self, place: Place, peak_bytes: int | None) -> None:
        """Remember the peak of a trial that completed or was pruned, for later reservations.

        If the peak could not be measured, warn once.
        """
        if peak_bytes is not None:
            self._gpus.learn(peak_bytes)
            self._wake()
        elif not self._gpus.is_known and not self._has_warned:
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

        Raises:
            StoppedWaiting: The trial was stopped, or has ended, while it waited.
            NoGpuLeftError: Fewer GPUs work than the trial needs.
        """
        told = ""
        control = place.running.control
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
                    told = wait.what
                    self._log_wait(place, wait)
                    tell(str(wait))
            raise StoppedWaiting
        finally:
            with self._lock:
                self._leave_queue(place)

    def _log_wait(self, place: Place, wait: Wait) -> None:
        """Log what a trial waits for. The first wait for other sweeps or programs is a warning."""
        warns = wait.is_for_others and not self._has_told
        self._has_told |= warns
        level = logging.WARNING if warns else logging.INFO
        _log.log(level, "trial %s waits for %s", place.spec.run_id, wait)

    def _join_queue(self, place: Place) -> None:
        """Add a trial at the end of the queue.

        A frozen trial that returns to its GPU goes before a trial that must run alone on the
        machine. The lone trial begins only after all other trials have ended, so behind it, the
        frozen trial would wait forever.
        """
        position = len(self._queue)
        if place.is_off:
            alone = [one.spec.alone_on is AloneOn.MACHINE for one in self._queue]
            if True in alone:
                position = alone.index(True)
        self._queue.insert(position, place)

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
        wait = self._wait_for_machine(place)
        if wait is not None:
            return wait
        if not self.gpus:
            self._begin(place, [])
            return None
        with self._claims.gate() as is_mine:
            if not is_mine:
                return Wait("another sweep, which is reserving memory of a GPU")
            return self._begin_on_gpus(place)

    def _wait_for_machine(self, place: Place) -> Wait | None:
        """Return what a trial waits for if it or a running trial must have the machine alone.

        Return None if the trial need not wait for this reason.
        """
        others = [trial for trial in self._gpus.places if trial is not place]
        alone = [one for one in (place, *others) if one.spec.alone_on is AloneOn.MACHINE]
        if not alone or not others:
            return None
        ends = ", ".join(trial.spec.run_id for trial in others)
        are_frozen = all(trial.is_frozen for trial in others)
        return Wait(
            f"the end of {ends}",
            f"{alone[0].spec.run_id} runs alone on this machine",
            blocked=self._blocked_on_host() if are_frozen else Blocked(),
        )

    def _begin_on_gpus(self, place: Place) -> Wait | None:
        """Let a trial begin on its GPUs and return None, or return what it waits for."""
        needed = self._resources.gpus_per_trial
        rooms = self._gpus.rooms(place)
        if len(rooms) < needed:
            raise NoGpuLeftError(
                f"too few GPUs work for a trial (GPUs that work: {len(rooms)}, needed: {needed}); "
                "the other GPUs have failed or no longer answer"
            )
        fitting = self._gpus.fitting(place, rooms)
        if len(fitting) >= needed:
            self._begin(place, sorted(fitting[:needed], key=lambda room: room.gpu.uuid))
            return None
        claim_bytes = self._gpus.claim_bytes(place)
        states: list[str] = []
        for room in rooms:
            obstacle = self._gpus.obstacle(place, room)
            states.append(f"{room}{obstacle.value if obstacle else ''}")
        return Wait(
            "an empty GPU" if claim_bytes is None else f"{in_gb(claim_bytes)} of a GPU",
            "; ".join(states),
            is_for_others=not self._gpus.places,
            blocked=self._blocked_on_gpu(place, rooms),
        )

    def _begin(self, place: Place, rooms: Sequence[Room]) -> None:
        place.claim_bytes = self._gpus.claim_bytes(place) if rooms else None
        place.gpus = [room.gpu for room in rooms]
        if place.is_off:
            place.is_off = place.is_alone_on_gpu = False
        else:
            self._note_start(place, rooms)
        others = [other for other in self._gpus.places if other is not place]
        for other in others:
            other.is_alone = place.is_alone = False
            if any(gpu in other.gpus for gpu in place.gpus):
                other.is_alone_on_gpu = False
        self._gpus.places = [*others, place]
        self._leave_queue(place)
        self._gpus.publish()
        if rooms and not self._is_watching:
            self._is_watching = True
            threading.Thread(target=self._watch, name="gpu memory", daemon=True).start()

    def _note_start(self, place: Place, rooms: Sequence[Room]) -> None:
        """Store the environment and memory limit of a new trial, and whether others use its GPU.

        Do not call this when a frozen trial returns to its GPU.
        """
        place.kills_before = oom_kills(self._root)
        if not rooms:
            return
        place.env = {"CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in place.gpus)}
        is_alone = place.spec.alone_on is not None
        place.env |= self.mps.env_of(place.gpus[0], is_alone=is_alone)
        stated_bytes = self._resources.claim_bytes
        if stated_bytes is not None and place.claim_bytes is not None:
            fraction = _CAP * stated_bytes / place.gpus[0].memory_bytes
            place.memory_fraction = min(1.0, fraction)
        place.is_alone_on_gpu = all(room.is_empty for room in rooms)
        if len(rooms) == 1 and rooms[0].is_unused:
            place.used_before_bytes = rooms[0].foreign_bytes

    def _watch(self) -> None:
        """Check the GPU memory of all trials at intervals, until no trial has a GPU."""
        while True:
            with self._lock:
                gpus = {gpu.uuid: gpu for place in self._gpus.places for gpu in place.gpus}
                if not gpus:
                    self._is_watching = False
                    return
                for gpu in gpus.values():
                    self._gpus.watch(gpu, self._look_s, self._settled_s)
                self._note_change()
            time.sleep(self._look_s)


def _why_not_off(
    checkpoints: CudaCheckpoints, gpus: Sequence[Gpu], resources: Resources
) -> str | None:
    """Return why frozen trials' GPU memory cannot be moved to host memory, with the remedy.

    Return None if it can.
    """
    if not gpus:
        return "this machine has no GPU that the sweep uses"
    if resources.mps == "auto":
        return "the driver cannot move memory of processes that use MPS; set mps: off"
    if resources.gpus_per_trial > 1:
        return "the sweep moves GPU memory only with gpus_per_trial: 1"
    return checkpoints.obstacle()
