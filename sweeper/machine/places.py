"""Where a trial waits for its place on a machine: memory, and a GPU with room for what it claims.

The first trial in the queue starts on the GPU with the most free memory where its claim fits; its
claim is what users state, or what the largest trial so far took and a tenth more.
Until a first trial has shown its peak, it is alone. A trial that ran out of memory is run once
more, alone.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from ..settings.machines import Resources
from ..trials import AloneOn, GpuUse, RunningTrial, TrialOutcome, TrialSpec, TrialState
from .capacity import available_bytes, has_descriptors, memory_of, oom_kills
from .claims import Claim, Claims
from .faults import Fault, fault_in
from .gpus import chosen_gpus, usable_bytes
from .mps import Mps, why_not
from .nvml import CONTEXT_BYTES, Gpu, GpuError, Nvml
from .settling import Circumstances, settled

_log = logging.getLogger(__name__)

#: Read by the libraries that compute when they are imported; the number of threads changes the
#: last bits of a result, so it is fixed for the whole study.
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
#: Without these, JAX and TensorFlow take most of a GPU at once, whatever they need of it.
_TAKE_WHAT_IS_NEEDED = {
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
}
#: How often to look at the memory of running trials, and at the claims of other sweeps.
_LOOK_S = 1.0
#: A trial has shown its peak when its memory has not grown for 10 s.
_SETTLED_S = 10.0
#: Growth below 2 % is none.
_STEADY = 1.02
#: A trial claims a tenth more than the largest so far took (chosen).
_SPREAD = 1.1
#: torch counts a fraction of CUDA's memory, which is up to 4 % less than NVML's: a trial may take
#: 5 % more than users state, so that one which needs as much does not run short.
_CAP = 1.05
#: A GPU is empty if programs that are no trials take less than 5 % of it, as the driver does.
_EMPTY_SHARE = 0.95
#: A trial is frozen while twice the memory that it takes is free on the host: for the trial that
#: gets its slot, and for what running ones may still grow by.
_FREE_MEMORY = 2.0


class StoppedWaiting(Exception):
    """A trial was stopped while it waited for its place."""


class NoGpuLeftError(Exception):
    """All GPUs of the sweep were closed, because they no longer answer or have failed."""


@dataclass(frozen=True, slots=True)
class Wait:
    """What a trial waits for.

    Attributes:
        what: Worth a line when it changes.
        details: Figures and names, which change all the time; may be empty.
    """

    what: str
    details: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.details}" if self.details else self.what


class Obstacle(Enum):
    """Why a trial may not begin on a GPU now, in words that follow what the GPU has free."""

    NO_ROOM = ""  # which the figures tell
    ONE_PROCESS = " and takes one trial at a time (EXCLUSIVE_PROCESS)"
    ONE_TRIAL = " and is for one trial alone"
    UNKNOWN_PEAKS = " and takes one more trial when these have shown their peaks"


@dataclass(slots=True, kw_only=True, eq=False)
class Place:
    """What a running trial holds of its machine.

    Attributes:
        gpus: its GPUs; none on a machine without, and while it waits.
        env: what it adds to the environment of the trial's kernel.
        memory_fraction: of its GPU, that torch may take where users state what trials take.
        claim_bytes: of its GPU; None for all of it.
        is_alone: whether no other trial of the sweep has run on the machine since it began.
        is_alone_on_gpu: whether nobody else has had a part of its GPUs since it began.
        has_shown: whether its memory has settled after it made steps or kept its GPU busy.
        used_before_bytes: what programs took of its GPU when it began there without company; None
            in company.
        kills_before: how many processes the system had killed for want of memory by then.
        look: is set when the trial, as long as it waits, has to look again.
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
    look: threading.Event = field(default_factory=threading.Event)
    _peak_bytes: int | None = None
    _taken: dict[str, int] = field(default_factory=dict)
    _settled: tuple[int, float] = (0, 0.0)
    _busy_shares: list[float] = field(default_factory=list)

    def see(self, gpu: Gpu, taken_bytes: int) -> None:
        """Note what the trial takes of a GPU now."""
        self._taken[gpu.uuid] = taken_bytes
        self._peak_bytes = max(self._peak_bytes or 0, sum(self._taken.values()))
        if self.claim_bytes is not None:
            self.claim_bytes = max(self.claim_bytes, self._peak_bytes)

    def claim(self, gpu: Gpu, all_bytes: int) -> Claim:
        """What it may take of a GPU, and was last seen to take."""
        claim_bytes = all_bytes if self.claim_bytes is None else self.claim_bytes
        return Claim(claim_bytes=claim_bytes, used_bytes=self._taken.get(gpu.uuid, claim_bytes))

    def watch(self, busy_share: float | None, look_s: float, settled_s: float) -> None:
        """Find out whether the trial has shown its peak; called once a look."""
        if busy_share is not None:
            self._busy_shares.append(busy_share)
        now_s, peak_bytes = time.monotonic(), self._peak_bytes or 0
        if not self._settled[1] or peak_bytes > _STEADY * self._settled[0]:
            self._settled = peak_bytes, now_s
        is_at_work = self.running.points.steps >= 2 or sum(self._busy_shares) * look_s >= settled_s
        self.has_shown |= is_at_work and now_s - self._settled[1] >= settled_s

    def use(self, torch_bytes: int | None = None) -> GpuUse:
        """What the trial took of its GPUs, as the driver has seen and torch says in its kernel.

        Nothing that was taken of a GPU which worked meanwhile is memory that nobody could see.
        """
        shares = self._busy_shares
        busy_share = round(sum(shares) / len(shares), 4) if shares else None
        seen = self._peak_bytes if self._peak_bytes or busy_share == 0 else None
        peak_bytes = seen if torch_bytes is None else max(seen or 0, torch_bytes + CONTEXT_BYTES)
        return GpuUse(peak_bytes=peak_bytes, busy_share=busy_share)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    """What a GPU has room for now.

    Attributes:
        places: of this sweep's trials on it.
        others: the claims of the user's other sweeps.
        free_bytes: what another trial may claim; below 0 where trials and programs take too much.
        foreign_bytes: what programs take that are no trials of the user's.
        is_empty: whether no trial is on it, and no other program takes a part worth mentioning.
    """

    gpu: Gpu
    places: Sequence[Place]
    others: Sequence[Claim]
    free_bytes: int
    foreign_bytes: int
    is_empty: bool

    def __str__(self) -> str:
        held = [f"{place.spec.run_id} {_gb(place.claim_bytes)}" for place in self.places]
        if self.others:
            held.append(f"another sweep {_gb(sum(claim.claim_bytes for claim in self.others))}")
        if self.foreign_bytes >= 10**8:
            held.append(f"other programs {_gb(self.foreign_bytes)}")
        free = _gb(max(0, self.free_bytes))
        return f"{self.gpu.uuid[:12]} has {free} free ({', '.join(held) or 'nobody is on it'})"


class Places:
    """Gives each trial its place on this machine, one after the other. Safe in several threads.

    Args:
        gpus: those that trials may use; empty on a machine without any.
        resources: what users state of trials.
        driver: knows how much of their memory is in use; default: NVIDIA's.
        claims: of the user's other sweeps.
        mps: lets trials on one GPU compute at the same time; None where they take turns.
        root: of the file system with the counts of killed processes.
        look_s: how often to look at the memory of running trials.
        settled_s: how long a trial's memory must not have grown before others join it.
    """

    def __init__(
        self,
        gpus: Sequence[Gpu] = (),
        *,
        resources: Resources | None = None,
        driver: Nvml | None = None,
        claims: Claims | None = None,
        mps: Mps | None = None,
        root: Path = Path("/"),
        look_s: float = _LOOK_S,
        settled_s: float = _SETTLED_S,
    ) -> None:
        self.gpus, self.mps = list(gpus), mps
        self._resources = resources or Resources()
        self._stated_bytes = self._resources.claim_bytes
        self._per_trial = self._resources.gpus_per_trial
        self._driver = driver or Nvml()
        self._claims = claims or Claims()
        self._root, self._look_s, self._settled_s = root, look_s, settled_s
        self._lock = threading.RLock()
        self._queue: list[Place] = []
        self._places: list[Place] = []
        #: What the largest trial that has ended took; None until one could be measured.
        self._largest_bytes: int | None = None
        self._closed: set[str] = set()
        self._is_watching = self._has_warned = False

    @classmethod
    def of_machine(cls, resources: Resources, *, jobs: int, driver: Nvml | None = None) -> Places:
        """The places of this machine, with the GPUs that a parameters file asks for.

        Args:
            jobs: how many trials run at once; with one, MPS is not used.

        Raises:
            SettingsError: a number is asked for that this machine does not have, a GPU is too
                small for a single trial, or there are too few for one.
        """
        if resources.gpus == "none":
            return cls(resources=resources)
        driver, per_trial = driver or Nvml(), resources.gpus_per_trial
        gpus = chosen_gpus(resources, driver)
        why = why_not(gpus, jobs=jobs, per_trial=per_trial) if resources.mps == "auto" else "off"
        if resources.mps == "auto" and why:
            _log.warning("resources.mps: auto: MPS is not used: %s", why)
        return cls(gpus, resources=resources, driver=driver, mps=None if why else Mps())

    @property
    def env(self) -> dict[str, str]:
        """What all kernels find in their environment, before they import anything."""
        has_gpus, resources = bool(self.gpus), self._resources
        return {
            **dict.fromkeys(_THREAD_VARIABLES, str(resources.threads)),
            "PYTHONHASHSEED": "0",
            # cuBLAS is deterministic only with a workspace of fixed size.
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
            **({k: os.environ.get(k, v) for k, v in _TAKE_WHAT_IS_NEEDED.items() if has_gpus}),
            # Until a trial's lease says otherwise: nothing may take a GPU before.
            **({"CUDA_VISIBLE_DEVICES": ""} if has_gpus or resources.gpus == "none" else {}),
        }

    @property
    def waiting(self) -> int:
        """How many trials wait."""
        return len(self._queue)

    @contextmanager
    def opened(self, *, folder: Path, token: str) -> Iterator[None]:
        """Places can be leased while the block runs.

        Args:
            folder: the sweep's private folder; a short path.
            token: the beginning of the marks of the sweep's processes.
        """
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
        """A place for one trial, given back at the end of the block.

        Args:
            running: the same trial as it runs: a stop ends the wait at once, and the time that the
                trial waits does not count as its own.
            tell: called with what the trial waits for, in one line, when that changes.

        Raises:
            StoppedWaiting: the trial was stopped before it had a place.
            NoGpuLeftError: no GPU is left for it.
        """
        place = Place(spec=spec, running=running)
        with self._lock:
            self._queue.append(place)
        # A stop only sets an event: it may come from a signal handler, and waits for no lock.
        running.control.on_stop(place.look.set)
        try:
            with running.control.waiting():
                self._wait(place, tell)
        finally:
            running.control.on_stop(None)
            with self._lock:
                self._queue.remove(place)
                self._wake()
        try:
            yield place
        finally:
            with self._lock:
                self._places.remove(place)
                self._state_claims()
                self._wake()

    def leave_behind(self, place: Place) -> None:
        """Let no more trials onto the GPUs of one whose kernel SIGKILL does not end."""
        why = (
            f"process {place.running.points.pid} of trial {place.spec.run_id} runs on after "
            "SIGKILL, held by a driver or a disk that hangs"
        )
        with self._lock:
            for gpu in place.gpus:
                self._close(gpu, why)
        if not place.gpus:
            _log.warning("%s; it is left behind", why)

    def has_room_beside(self, place: Place) -> bool:
        """Whether another trial like this one would begin at once, were this one frozen."""
        with self._lock:
            if self._queue or place.spec.alone_on is not None or not has_descriptors():
                return False
            free_bytes = available_bytes(self._root)
            own_bytes = memory_of(place.running.points.pid or 0)
            if free_bytes is not None and free_bytes < _FREE_MEMORY * (own_bytes or 0):
                return False
            rooms = [room for gpu in self.gpus if (room := self._look_at(gpu)) is not None]
            claim_bytes = self._claim_of(place.spec)
            fitting = [
                room for room in rooms if self._obstacle(place.spec, claim_bytes, room) is None
            ]
            return not self.gpus or len(fitting) >= self._per_trial

    def ran_short(self, place: Place) -> bool:
        """Whether the system has killed a process for want of memory since a trial began."""
        return oom_kills(self._root) > place.kills_before

    def settle(
        self, place: Place, outcome: TrialOutcome, torch_bytes: int | None = None
    ) -> TrialOutcome:
        """Return the outcome of a trial that has ended, by what it had of the machine.

        Others are expected to use what it has used of its GPUs.

        Args:
            torch_bytes: that torch has held of its GPUs, as it says in the kernel; None for none.
        """
        fault = fault_in(outcome.message)
        with self._lock:
            for gpu in place.gpus:
                if fault is Fault.DEVICE:
                    self._close(gpu, outcome.message.strip().partition("\n")[0])
                self._look_at(gpu)
            failed = ", ".join(gpu.uuid for gpu in place.gpus if gpu.uuid in self._closed)
            if place.gpus:
                use = place.use(torch_bytes)
                outcome = replace(outcome, gpu=use)
                if outcome.state in (TrialState.COMPLETED, TrialState.PRUNED):
                    self._learn(place, use.peak_bytes)
        if outcome.state is not TrialState.FAILED:
            return outcome
        had = Circumstances(
            fault=fault,
            has_gpu=bool(place.gpus),
            # One that torch kept from taking all of its GPU has not shown that it does not fit.
            had_gpu_memory=place.is_alone_on_gpu and place.memory_fraction is None,
            had_host_memory=place.is_alone,
            shares_by_mps=self.mps is not None and not place.is_alone_on_gpu,
            failed_gpus=failed,
        )
        return settled(outcome, had)

    def _learn(self, place: Place, peak_bytes: int | None) -> None:
        """Expect of other trials what one took that came to its end; nothing where it is None."""
        if peak_bytes is not None:
            self._largest_bytes = max(self._largest_bytes or 0, peak_bytes)
            self._wake()
        elif self._largest_bytes is None and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "what trials take of %s cannot be measured, so each has it for itself; state it, "
                "as in resources: {gpu_memory: 9GB}, and several share one",
                place.gpus[0].uuid,
            )

    # --- who gets a place ------------------------------------------------------------------------

    def _wait(self, place: Place, tell: Callable[[str], object]) -> None:
        told, control = "", place.running.control
        while control.stop_reason is None:
            with self._lock:
                wait = self._begin_or_wait(place)
            if wait is None:
                return
            control.wait_for(str(wait))
            control.make_room()
            place.look.wait(self._look_s)
            place.look.clear()
            if wait.what != told:
                _log.info("trial %s waits for %s", place.spec.run_id, wait)
                tell(str(wait))
                told = wait.what
        raise StoppedWaiting

    def _wake(self) -> None:
        """Have the first trial in the queue look again."""
        if self._queue:
            self._queue[0].look.set()

    def _begin_or_wait(self, place: Place) -> Wait | None:
        """Let a trial begin, if there is a place for it now; else return what it waits for."""
        if self._queue[0] is not place:
            return Wait(f"its turn, behind {self._queue[0].spec.run_id}")
        alone = [
            trial for trial in (place, *self._places) if trial.spec.alone_on is AloneOn.MACHINE
        ]
        if alone and self._places:
            ends = ", ".join(trial.spec.run_id for trial in self._places)
            return Wait(f"the end of {ends}", f"{alone[0].spec.run_id} runs alone on this machine")
        if not self.gpus:
            self._begin(place, [], None)
            return None
        with self._claims.gate() as is_mine:
            if not is_mine:
                return Wait("another sweep, which is just claiming a part of a GPU")
            rooms = [room for gpu in self.gpus if (room := self._look_at(gpu)) is not None]
            if len(rooms) < self._per_trial:
                raise NoGpuLeftError("no GPU is left: all have failed, or no longer answer")
            claim_bytes = self._claim_of(place.spec)
            seen = [(room, self._obstacle(place.spec, claim_bytes, room)) for room in rooms]
            fitting = [room for room, obstacle in seen if obstacle is None]
            if len(fitting) < self._per_trial:
                size = "an empty GPU" if claim_bytes is None else f"{_gb(claim_bytes)} of a GPU"
                states = [f"{room}{obstacle.value if obstacle else ''}" for room, obstacle in seen]
                return Wait(size, "; ".join(states))
            fitting.sort(key=lambda room: -room.free_bytes)
            chosen = sorted(fitting[: self._per_trial], key=lambda room: room.gpu.uuid)
            self._begin(place, chosen, claim_bytes)
            return None

    def _is_alone(self, spec: TrialSpec) -> bool:
        """Whether no other trial may be on the GPUs of a trial."""
        return self._per_trial > 1 or spec.alone_on is not None

    def _claim_of(self, spec: TrialSpec) -> int | None:
        """What a trial claims of a GPU; None for all of it."""
        if self._is_alone(spec):
            return None
        if self._stated_bytes is not None:
            return self._stated_bytes + CONTEXT_BYTES
        shown = [place.use().peak_bytes for place in self._places if place.has_shown]
        peaks = [peak for peak in (self._largest_bytes, *shown) if peak is not None]
        return round(_SPREAD * max(peaks)) if peaks else None

    def _obstacle(self, spec: TrialSpec, claim_bytes: int | None, room: _Room) -> Obstacle | None:
        """Return why a trial may not begin on a GPU now; None if it may.

        Args:
            claim_bytes: what it claims; None for all of the GPU.
        """
        fits = (claim_bytes or 0) <= max(0, room.free_bytes)
        if not (
            room.places or room.others
        ):  # a claim that no GPU has room for is tried where it is alone
            return None if fits or room.is_empty else Obstacle.NO_ROOM
        if room.gpu.is_exclusive and self.mps is None:
            return Obstacle.ONE_PROCESS
        if any(map(self._is_alone, (spec, *(other.spec for other in room.places)))):
            return Obstacle.ONE_TRIAL
        if not (self._is_known or all(other.has_shown for other in room.places)):
            return Obstacle.UNKNOWN_PEAKS
        return None if fits and claim_bytes is not None else Obstacle.NO_ROOM

    @property
    def _is_known(self) -> bool:
        """Whether users state what a trial takes, or one that has ended has shown it."""
        return self._stated_bytes is not None or self._largest_bytes is not None

    def _begin(self, place: Place, rooms: Sequence[_Room], claim_bytes: int | None) -> None:
        place.gpus, place.claim_bytes = [room.gpu for room in rooms], claim_bytes
        place.kills_before = oom_kills(self._root)
        if rooms:
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
        for other in self._places:
            other.is_alone = place.is_alone = False
            if any(gpu in other.gpus for gpu in place.gpus):
                other.is_alone_on_gpu = False
        self._places.append(place)
        self._state_claims()
        if rooms and not self._is_watching:
            self._is_watching = True
            threading.Thread(target=self._watch, name="gpu memory", daemon=True).start()

    # --- what trials take ------------------------------------------------------------------------

    def _watch(self) -> None:
        """Look at the memory of all trials, until there are none."""
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
        """What a GPU has room for, after a look at what trials take of it; None if it is closed."""
        if gpu.uuid in self._closed:
            return None
        places, others = self._on(gpu), self._claims.of_others(gpu.uuid)
        try:
            used_bytes = self._driver.used_bytes(gpu.uuid)
        except GpuError as error:
            self._close(gpu, str(error))
            return None
        by_session = _by_session(self._driver.used_by(gpu.uuid))
        for place in places:
            taken_bytes = by_session.get(place.running.points.pid or 0)
            before_bytes = place.used_before_bytes
            if taken_bytes is None and used_bytes is not None and before_bytes is not None:
                # In a container the driver knows processes by other ids than ours.
                is_lone = len(places) == 1 and not others
                taken_bytes = max(0, used_bytes - before_bytes) if is_lone else None
            if taken_bytes is not None:
                place.see(gpu, taken_bytes)
        usable = self._usable(gpu)
        claims = [*self._claims_on(gpu), *others]
        foreign = max(0, (used_bytes or 0) - sum(claim.used_bytes for claim in claims))
        free = usable - foreign - sum(claim.claim_bytes for claim in claims)
        return _Room(
            gpu=gpu,
            places=places,
            others=others,
            free_bytes=free,
            foreign_bytes=foreign,
            is_empty=not claims and free >= _EMPTY_SHARE * usable,
        )

    def _usable(self, gpu: Gpu) -> int:
        return usable_bytes(gpu, keeps_spare=self._stated_bytes is None)

    def _on(self, gpu: Gpu) -> list[Place]:
        return [place for place in self._places if gpu in place.gpus]

    def _claims_on(self, gpu: Gpu) -> list[Claim]:
        return [place.claim(gpu, self._usable(gpu)) for place in self._on(gpu)]

    def _state_claims(self) -> None:
        """Have the user's other sweeps see what this one claims."""
        if self.gpus:
            self._claims.write({gpu.uuid: self._claims_on(gpu) for gpu in self.gpus})

    def _close(self, gpu: Gpu, why: str) -> None:
        """Let no more trials of this sweep onto a GPU."""
        if gpu.uuid not in self._closed:
            self._closed.add(gpu.uuid)
            _log.warning("%s takes no more trials of this sweep: %s", gpu.uuid, why)


def _by_session(used_by: Mapping[int, int]) -> dict[int, int]:
    """What each kernel takes with all that it has started: the session that it leads."""
    sessions: dict[int, int] = {}
    for pid, n_bytes in used_by.items():
        with suppress(OSError):  # it has ended, or its id is that outside of our container
            session = os.getsid(pid)
            sessions[session] = sessions.get(session, 0) + n_bytes
    return sessions


def _gb(n_bytes: int | None) -> str:
    return "all" if n_bytes is None else f"{n_bytes / 1e9:.1f} GB"
