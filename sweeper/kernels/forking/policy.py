"""Decide whether the kernel of a trial is forked, and keep the reason.

A kernel is *fresh*, a new process as Jupyter starts it, or *forked* from the *zygote*: a process
that has already imported the notebook's libraries. Forking saves time, but must not change results.

The first trial that completes in a fresh kernel is the *reference*. The proof repeats it in two
forked kernels, one after the other. If all scores, steps and outputs are equal to the last bit,
later kernels are forked.

If they differ, the reference is repeated in a second fresh kernel. If that run is equal, forking
has changed the result, and kernels are never forked. If that run differs, too, the notebook is not
replicable. Then kernels are forked only if the outputs have the same types in the same order, and
the GPU is used in all runs or in none.

A free slot waits for the zygote's first imports, but at most twice as long as the reference took.
It also waits for the repetitions of the proof, but at most as long as a forked kernel saves.

If the notebook's code shows its imports, the zygote starts with the sweep: an *early start*. One
trial, the *pathfinder*, runs in a fresh kernel and becomes the reference. The trials next to it
run in forked kernels, and their outcomes are *withheld*: not recorded before the proof. The proof
then needs only one repetition of the reference. Other forked kernels have run before it, so it also
shows whether an earlier fork leaves something behind that changes results. If the proof fails, the
withheld trials run again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Literal

from ...notebooks.compare import Execution, compare
from ...trials import Phase, RunningTrial, TrialSpec
from .origins import SWITCH_OFF, ForkAvailability, KernelOrigin, Ready, Stage, Unready

_log = logging.getLogger(__name__)


class Proof(StrEnum):
    """What a repeated trial has proven about forked kernels.

    The values are those of `metadata.sweeper.proof`.

    Attributes:
        EQUAL: A trial gave exactly the same results in a fresh kernel and in forked kernels.
        IN_KIND: The trial's results differed in a forked kernel, but also between two fresh
            kernels. The outputs in the forked kernels had the same types as in the first fresh one.
        NONE: Nothing was proven, because the parameters file says `kernels: fork`.
        PENDING: Nothing is proven yet, so the trial's outcome is not recorded yet.
    """

    EQUAL = "equal"
    IN_KIND = "in kind"
    NONE = "none"
    PENDING = "pending"


class Verdict(Enum):
    """Whether to record the outcome of a trial whose kernel was forked before the proof.

    The proof repeats a trial in forked kernels, to show that forking changes no result.

    Attributes:
        PENDING: The proof has not led to a decision yet.
        COUNTS: The outcome is recorded, because the proof or `kernels: fork` has allowed forks.
        RUN_AGAIN: The trial runs again, because it was decided that kernels are never forked.
    """

    PENDING = auto()
    COUNTS = auto()
    RUN_AGAIN = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The part of a trial's metadata that says how its kernel was made.

    Attributes:
        reason: Why the kernel was started. Empty for a forked kernel.
        proof: What was proven about forked kernels. None for a kernel that was started.
        proven_by: Run id of the trial whose repetition in forked kernels was the proof. Empty if
            nothing was proven.
    """

    reason: str = ""
    proof: Proof | None = None
    proven_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Results of one run of a trial, to compare the trial's runs in fresh and in forked kernels.

    Attributes:
        execution: Cells with their outputs, final scores, and reported values of the run.
        uses_gpu: Whether torch has used a GPU.
    """

    execution: Execution
    uses_gpu: bool

    def difference(self, other: Run) -> str | None:
        """Return the first difference from another run, in words. None if the runs are equal."""
        if self.uses_gpu != other.uses_gpu:
            return "whether it uses the GPU"
        found = compare(self.execution, other.execution)
        return None if found.has_equal_numbers and not found.outputs else str(found)

    def agrees_in_kind(self, other: Run) -> bool:
        """Return whether both runs have scores of the same names and outputs of the same types.

        The outputs must also have the same order, and both runs or none must use a GPU. The values
        may differ.
        """
        is_alike = compare(self.execution, other.execution).agrees_in_kind
        return is_alike and self.uses_gpu == other.uses_gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A trial that completed in a fresh kernel. Runs in forked kernels are compared with it.

    Attributes:
        spec: Params, seed and paths of the trial.
        run: Run of the trial in the fresh kernel.
        duration_s: Duration of the trial in seconds, including the wait for its kernel.
    """

    spec: TrialSpec
    run: Run
    duration_s: float

    def forked_s(self, saved_s: float) -> float:
        """Return the predicted duration of the trial in a forked kernel, in seconds.

        Args:
            saved_s: Seconds that a forked kernel saves in comparison with a started one.
        """
        return max(0.0, self.duration_s - saved_s)


@dataclass(frozen=True, slots=True)
class Failed:
    """A repetition of the reference trial that failed, although the trial had completed before.

    Attributes:
        message: Why it failed.
    """

    message: str


@dataclass(frozen=True, slots=True)
class Inconclusive:
    """A repetition of the reference trial that proves nothing.

    It was stopped, lost its kernel or lacked memory.
    """


#: Result of a repetition of the reference trial.
Repetition = Run | Failed | Inconclusive
#: Function that repeats the reference trial in a kernel that is made as the origin states.
Repeat = Callable[[Reference, KernelOrigin], Repetition]


@dataclass(frozen=True, slots=True)
class Proven:
    """Decision that kernels may be forked.

    Attributes:
        proof: What was proven.
        reservation: What the proof does not show, in words for users. None if all runs were equal.
    """

    proof: Proof
    reservation: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """Decision that kernels are never forked.

    Attributes:
        why: Reason in words.
    """

    why: str


@dataclass(frozen=True, slots=True)
class Undecided:
    """The repetitions have not shown whether forking changes results.

    The proof, which repeats the reference trial in forked kernels, is tried again later.
    """


#: If the zygote starts with the sweep, slots wait at most this number of seconds for its imports
#: (chosen, not measured). Imports of torch took 24 s on a machine that ran other programs too.
_EARLY_LIMIT_S = 60.0
#: Before forking is proven, at most this number of ended trials per slot may be withheld: their
#: outcomes are not recorded yet (chosen, not measured). Further trials run in fresh kernels, so
#: that the sampler learns some outcomes.
_MOST_WITHHELD = 2

_FORKED = KernelOrigin(is_forked=True)
_PATHFINDER = KernelOrigin(
    reason="the first trial runs in a fresh kernel, with which forked ones are compared"
)
_STARTED = KernelOrigin(reason="a second run in a fresh kernel")


def _prove(reference: Reference, repeat: Repeat, n_runs: int) -> Proven | Refused | Undecided:
    """Repeat a trial in forked kernels, and return what that proves.

    If a run in a forked kernel differs, repeat the trial in a fresh kernel too. If the fresh run
    also differs, the notebook is the cause, and not the fork.

    Args:
        reference: The trial, with its first run in a fresh kernel.
        repeat: Function that runs the trial again, in a forked or in a fresh kernel.
        n_runs: How often the trial is repeated in forked kernels, if no result differs.
    """
    run_id = reference.spec.run_id
    difference: str | None = None
    forked: list[Run] = []
    while len(forked) < n_runs and difference is None:
        match repeat(reference, _FORKED):
            case Inconclusive():
                return Undecided()
            case Failed(message):
                failed = f"trial {run_id}, run again in a forked kernel, failed there: {message}"
                return Refused(f"{failed}; {SWITCH_OFF}")
            case run:
                forked.append(run)
                difference = reference.run.difference(run)
    if difference is None:
        return Proven(Proof.EQUAL)
    unlike: str | None
    match repeat(reference, _STARTED):
        case Inconclusive():
            return Undecided()
        case Failed(message):
            unlike = f"its end: {message}"
        case again:
            unlike = reference.run.difference(again)
    if unlike is None:
        return Refused(
            f"trial {run_id}, run again in a forked kernel, differed in {difference}, but not in a "
            "second fresh kernel; seed all random numbers after the imports, and tag no cell "
            "`shared` that writes files"
        )
    never = (
        f"the notebook is not reproducible: trial {run_id}, run twice in fresh kernels with the "
        f"same params and seed, differed in {unlike}"
    )
    if all(map(reference.run.agrees_in_kind, forked)):
        return Proven(
            Proof.IN_KIND,
            f"{never}. So the proof only shows that outputs of forked kernels have the same types "
            "and shapes; seed generators such as np.random.default_rng() to show more",
        )
    return Refused(
        f"{never}; in a forked kernel it differed in {difference}, so kernels are not forked; seed "
        "generators such as np.random.default_rng()"
    )


class ForkPolicy:
    """Decides for each kernel whether it is forked. All methods are thread-safe.

    Args:
        kernels: `auto`: fork kernels once a trial was repeated in forked kernels, and this proof
            allows it. After `start_early`, also fork some before the proof. `fork`: fork them
            without a proof. `cold`: never fork.

    Attributes:
        finding: Remark for users about how kernels were made. None if there is none.
    """

    def __init__(self, kernels: Literal["auto", "fork", "cold"] = "auto") -> None:
        self._lock = threading.Lock()
        self._proof = Proof.NONE if kernels == "fork" else None
        #: Why no kernel is ever forked. None while kernels may be forked.
        self._refusal = "`kernels` is cold" if kernels == "cold" else None
        self._reference: Reference | None = None
        self._referred_at_s = 0.0
        self._proving_since_s: float | None = None
        self._compared_failures: set[Hashable] = set()
        #: Number of slots, and time on the monotonic clock when `start_early` was called. None
        #: before that call.
        self._early: tuple[int, float] | None = None
        self._pathfinder: RunningTrial | None = None
        self._has_forked_early = False
        self._n_withheld = 0
        self.finding: str | None = None

    def origin(self, available: ForkAvailability) -> KernelOrigin:
        """Decide how the kernel of the next trial is made: started or forked.

        If `available` says that kernels can never be forked, note this: no later kernel is forked.

        Args:
            available: Whether kernels can be forked now.

        Returns:
            The decision, with the reason if the kernel is started.
        """
        with self._lock:
            match available:
                case Unready(Stage.NEVER, why) if self._refusal is None:
                    self._refuse(why)
        if self.forks(available):
            return _FORKED
        return KernelOrigin(reason=self._why_started(available))

    # --- an early start --------------------------------------------------------------------------

    def start_early(self, slots: int) -> bool:
        """Allow forked kernels before the proof. Return whether this call has changed something.

        It changes nothing if an earlier call has allowed forked kernels, if kernels are never
        forked, or if there is already a reference: a trial that completed in a fresh kernel, which
        the proof repeats in forked kernels.

        Args:
            slots: Number of slots of the sweep. While two outcomes per slot wait for the proof,
                further trials run in fresh kernels.
        """
        with self._lock:
            if self._early or self._refusal is not None or self._reference is not None:
                return False
            self._early = slots, time.monotonic()
            return True

    def starts_at_once(self, trial: RunningTrial, *, is_usual: bool) -> bool:
        """Return whether a trial begins at once in a fresh kernel, without a wait for a fork.

        The reference is the trial whose results are compared with those of forked kernels. The
        pathfinder is the running trial that is to become the reference.

        Return False before `start_early`, if there is a reference, and if it is decided whether
        kernels are forked. Otherwise, `trial` becomes the pathfinder if there is none and `trial`
        can be the reference. Return True for the pathfinder and for trials that cannot be the
        reference.

        Args:
            trial: Trial that begins.
            is_usual: Whether the trial can be the reference; see `proving.is_usual`.
        """
        with self._lock:
            if not self._early or not self._is_open or self._reference is not None:
                return False
            if is_usual and not self._is_pathfinder_running:
                self._pathfinder = trial
            return self._pathfinder is trial or not is_usual

    def early_origin(
        self, trial: RunningTrial, available: ForkAvailability, *, is_usual: bool
    ) -> KernelOrigin | None:
        """Return how a trial's kernel is made before forking is proven. None if `origin` decides.

        After `start_early`, the kernel of the trial with which forked kernels are to be compared is
        started. Other kernels are forked if that is possible, unless two outcomes per slot already
        wait for the proof.

        For a trial with `is_usual` False, `origin` decides: the trial may resume from checkpoints,
        which would be lost if its kernel was forked and the proof failed.
        """
        with self._lock:
            if self._early is None or not self._is_open or not is_usual:
                return None
            if trial is self._pathfinder:
                return _PATHFINDER
            if self._n_withheld >= _MOST_WITHHELD * self._early[0]:
                return None
            self._has_forked_early |= isinstance(available, Ready)
            return _FORKED if isinstance(available, Ready) else None

    def withhold(self, n_trials: int) -> None:
        """Change the number of ended trials whose outcomes wait for the proof of forked kernels.

        Args:
            n_trials: 1 when the outcome of a trial begins to wait, -1 when the wait is over.
        """
        with self._lock:
            self._n_withheld += n_trials

    def verdict(self, available: ForkAvailability) -> Verdict:
        """Return whether to record the outcomes of trials whose kernels were forked early.

        Early means: before it was proven that forking changes no result.

        Args:
            available: Whether kernels can be forked now. If they never can, these trials run again,
                unless a proof or `kernels: fork` has allowed forks.
        """
        if self._is_open:
            self.origin(available)  # This call sets `_refusal` if no zygote can ever fork.
        with self._lock:
            if self._proof is not None:
                return Verdict.COUNTS
            return Verdict.PENDING if self._refusal is None else Verdict.RUN_AGAIN

    @property
    def is_idle(self) -> bool:
        """Whether no proof is under way, and no running trial is to become its reference.

        The proof repeats the reference, a trial that completed in a fresh kernel. If `is_idle` is
        True, a trial whose outcome waits for the proof must make the proof itself.
        """
        with self._lock:
            has_reference = self._reference is not None
            return self._proving_since_s is None and (
                has_reference or not self._is_pathfinder_running
            )

    @property
    def runs_of_a_proof(self) -> int:
        """How often a proof repeats the reference in forked kernels, if no result differs.

        The reference is a trial that completed in a fresh kernel. Its second repetition shows
        whether an earlier fork leaves something behind that changes results. If other kernels were
        forked before, one repetition is enough to show that.
        """
        return 1 if self._has_forked_early else 2

    @property
    def _is_pathfinder_running(self) -> bool:
        pathfinder = self._pathfinder
        return pathfinder is not None and pathfinder.control.phase is Phase.RUNNING

    @property
    def _is_open(self) -> bool:
        return self._proof is None and self._refusal is None

    # --- a trial that begins ---------------------------------------------------------------------

    def forks(self, available: ForkAvailability) -> bool:
        """Return whether `origin` decides that the kernel of the next trial is forked."""
        return isinstance(available, Ready) and self._proof is not None and self._refusal is None

    def _why_started(self, available: ForkAvailability) -> str:
        """Return in words why the kernel of the next trial is started and not forked."""
        if self._refusal is not None:
            return self._refusal
        if isinstance(available, Unready):
            return available.why
        if self._reference is None:
            return "no trial that could be run again in forked kernels has completed yet"
        return f"trial {self._reference.spec.run_id} has not been run again in forked kernels yet"

    def forks_soon(self, available: ForkAvailability) -> bool:
        """Return whether kernels cannot be forked now, but most likely can be forked soon."""
        is_coming = isinstance(available, Ready) or available.stage is Stage.COMING
        if self._refusal is not None or not is_coming:
            return False
        return not self.forks(available) and bool(self._proof or self._reference or self._early)

    def waits(self, available: ForkAvailability) -> bool:
        """Return whether a free slot should wait for a forked kernel instead of starting one."""
        with self._lock:
            if not self.forks_soon(available):
                return False
            now_s = time.monotonic()
            is_coming = isinstance(available, Unready)
            if self._early and (is_coming or self._has_forked_early):
                # After an early start, kernels are forked before the proof. So a slot waits for the
                # zygote, but not for the proof.
                return is_coming and now_s - self._early[1] < _EARLY_LIMIT_S
            if self._reference is None:
                return False
            match available:
                case Ready() if self._proving_since_s is not None:
                    return now_s - self._proving_since_s < available.saved_s
                case Unready() if self._proving_since_s is None:
                    return now_s - self._referred_at_s < 2 * self._reference.duration_s
            return False

    def coverage(self, origin: KernelOrigin) -> Coverage:
        """Return the facts for a trial's metadata about how its kernel was made.

        Args:
            origin: How the trial's kernel was made: started or forked.
        """
        if not origin.is_forked:
            return Coverage(reason=origin.reason)
        if self._proof is None:
            return Coverage(proof=Proof.PENDING if self._has_forked_early else None)
        if self._proof is Proof.NONE or self._reference is None:
            return Coverage(proof=self._proof)
        return Coverage(proof=self._proof, proven_by=self._reference.spec.run_id)

    def offer_reference(self, reference: Reference) -> None:
        """Use a trial that completed in a fresh kernel as the reference, if there is none yet.

        The proof runs this trial again in forked kernels, and compares the results.
        """
        with self._lock:
            if self._reference is None and self._refusal is None:
                self._reference, self._referred_at_s = reference, time.monotonic()

    def prove(self, available: ForkAvailability, repeat: Repeat, *, trials_left: int) -> None:
        """Run the reference trial again in forked kernels, to prove that forking changes no result.

        Do nothing if no trial has become the reference, if no process can fork kernels now, or if a
        proof is under way or has led to a decision. If forking saves no more time in the trials
        that are left than the proof takes, decide instead that kernels are never forked. But always
        make the proof if kernels were forked before it.

        Args:
            available: Whether kernels can be forked now.
            repeat: Function that runs the reference trial again.
            trials_left: Number of trials that have not begun. Forking saves time in each of them.
        """
        with self._lock:
            reference = self._reference
            is_due = self._proof is None and self._refusal is None and self._proving_since_s is None
            if reference is None or not is_due or not isinstance(available, Ready):
                return
            # A proof is made only if forking saves more time in the trials that are left than the
            # two repetitions of the reference take.
            saved_s = available.saved_s
            cost_s = self.runs_of_a_proof * reference.forked_s(saved_s)
            # If outcomes are withheld, the proof is always made: without it, their trials would
            # have to run again, which takes longer.
            if not self._has_forked_early and saved_s * trials_left <= cost_s:
                self._refusal = (
                    f"too few trials are left: it takes {cost_s:.1f} s to test that forked kernels "
                    f"give the same results, and forking saves {saved_s:.1f} s in each of "
                    f"{max(0, trials_left)} trials"
                )
                return
            self._proving_since_s = started_s = time.monotonic()
        decided: Proven | Refused | Undecided
        try:
            decided = _prove(reference, repeat, self.runs_of_a_proof)
        except Exception as error:  # noqa: BLE001  A proof only saves time, so it must not fail a trial.
            _log.info("the proof of forked kernels raised an error", exc_info=True)
            decided = Refused(f"{type(error).__name__}: {error}")
        with self._lock:
            self._proving_since_s = None
            match decided:
                case Proven(proof, reservation):
                    self._proof = proof
                    if reservation is not None:
                        self._find(f"kernels are forked: {reservation}")
                case Refused(why):
                    self._refuse(why)
        _log.info(
            "the proof of forked kernels with trial %s took %.2f s",
            reference.spec.run_id,
            time.monotonic() - started_s,
        )

    def doubts_failure(self, kind: Hashable) -> bool:
        """Return whether a trial that failed in a forked kernel must run again in a started one.

        Return True for the first failure of each kind, and note the kind: to repeat a similar
        failure would show nothing new.

        Args:
            kind: Value that is equal for similar failures.
        """
        with self._lock:
            is_new = kind not in self._compared_failures
            self._compared_failures.add(kind)
            return is_new

    def refuse_for_failure(self, run_id: str, message: str) -> None:
        """Fork no more kernels, because a trial failed in a forked kernel but not in a started one.

        Args:
            run_id: Run id of the trial.
            message: Message of its failure in the forked kernel.
        """
        with self._lock:
            self._refuse(
                f"trial {run_id} failed in a forked kernel ({message}), but not in a started one; "
                f"{SWITCH_OFF}"
            )

    def _refuse(self, why: str) -> None:
        """Fork no more kernels, and tell users why their trials take longer."""
        self._refusal = why
        self._find(f"each trial's kernel is started, not forked, which takes longer: {why}")

    def _find(self, finding: str) -> None:
        self.finding = finding
        _log.info("%s", finding)
