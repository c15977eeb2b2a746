"""Whether a trial's kernel is forked: decided here, with the reason in words.

A notebook may come to other numbers in a forked kernel than in a started one: what its libraries
did when they were imported happened before its first cell, and what shared cells did happened
once. So the first forked kernel runs a reference trial again, one that has completed in a started
kernel, and until both agree kernels are started. No outcome of a forked kernel that was not proven
ever reaches the study.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ...trials import TrialSpec
from .evidence import CLOSENESS, Difference, Evidence, difference, scores_distance
from .sharing import SharedRun

_log = logging.getLogger(__name__)

#: What a forked kernel saves at least beside the imports: a started one takes this to boot.
_BOOT_S = 0.3
#: Cells that took less are as well run again: to replay their outputs costs about as much.
_LITTLE_S = 0.05


class Way(StrEnum):
    """How a kernel comes to be."""

    STARTED = "started"
    FORKED = "forked"
    SHARED = "shared"  # forked after leading cells that have run once for all trials


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelOrigin:
    """How one kernel comes to be.

    Attributes:
        way: started, or forked.
        shared: the cells after which it is forked; None unless `way` is SHARED.
    """

    way: Way = Way.STARTED
    shared: SharedRun | None = None


class Proof(StrEnum):
    """What is known of trials in forked kernels, as `metadata.sweeper.proof` has it."""

    EQUAL = "equal"  # the reference trial came to the same, to the last bit
    CLOSE = "close"  # to 1e-6: in started kernels it does not come to the same bits either
    NONE = "none"  # it comes to something else each time, in started kernels too


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What kernels can be forked from now.

    Attributes:
        is_settled: whether that will stay so; False while libraries are imported or cells run.
        can_fork: whether there is a zygote.
        shared: the leading cells that have run.
        import_s: how long the imports took that a forked kernel has behind it.
        has_acting_imports: whether imports have effects that each fork has to repeat.
    """

    is_settled: bool = False
    can_fork: bool = False
    shared: SharedRun | None = None
    import_s: float = 0.0
    has_acting_imports: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A trial that completed in a started kernel.

    Attributes:
        duration_s: how long it took there, with what it waited for the kernel.
        boot_s: how long it waited for the kernel.
    """

    spec: TrialSpec
    evidence: Evidence
    duration_s: float
    boot_s: float = 0.0

    def saved_s(self, way: Way, offer: Offer) -> float:
        """What each trial saves by a way of coming to its kernel, in seconds."""
        if way is Way.STARTED:
            return 0.0
        shared_s = offer.shared.duration_s if way is Way.SHARED and offer.shared else 0.0
        return max(_BOOT_S, self.boot_s) + offer.import_s + shared_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A reference trial that has to be run again, in a kernel that came to be in a certain way."""

    reference: Reference
    origin: KernelOrigin

    @property
    def way(self) -> Way:
        """How its kernel comes to be."""
        return self.origin.way


class ForkPolicy:
    """Decides for each kernel how it comes to be. Safe to use from any thread.

    Args:
        proofs: ways that are trusted from the start; for tests of the kernels themselves.
    """

    def __init__(self, proofs: Mapping[Way, Proof] | None = None) -> None:
        self._lock = threading.Lock()
        self._reference: Reference | None = None
        self._twin: Evidence | None = None
        self._pending: tuple[Experiment, Evidence, Difference] | None = None
        self._is_claimed = False
        #: By way: the proof; or None where it was refused.
        self._proofs: dict[Way, Proof | None] = dict(proofs or {})
        self._is_failure_compared = False
        self._findings: dict[Way, str] = {}

    # --- what trials ask ------------------------------------------------------------------------

    def origin(self, offer: Offer) -> KernelOrigin:
        """How the kernel of the next trial should come to be."""
        return _origin(self.way(offer), offer)

    def way(self, offer: Offer) -> Way:
        """The same without the cells that it is forked after."""
        if offer.shared is not None and self._proofs.get(Way.SHARED):
            return Way.SHARED
        if offer.can_fork and self._proofs.get(Way.FORKED):
            return Way.FORKED
        return Way.STARTED

    def has_refused(self, way: Way) -> bool:
        """Whether no trial will ever have such a kernel."""
        return way in self._proofs and self._proofs[way] is None

    def coverage(self, way: Way) -> Mapping[str, str]:
        """What covers a trial in such a kernel, for its metadata: a proof and its trial."""
        proof = self._proofs.get(way)
        if proof is None or self._reference is None:
            return {}
        if proof is Proof.NONE:
            return {"proof": str(proof)}
        return {"proof": str(proof), "proven_by": self._reference.spec.run_id}

    @property
    def wants_reference(self) -> bool:
        """Whether a trial that completes in a started kernel would be the reference."""
        return self._reference is None

    def offer_reference(self, reference: Reference) -> None:
        """A trial has completed in a started kernel; the first one counts."""
        with self._lock:
            self._reference = self._reference or reference

    @property
    def findings(self) -> list[str]:
        """What users should know, for the sweep's last lines."""
        # Where nothing is forked, it says nothing more that cells are not shared.
        ways = (Way.FORKED,) if Way.FORKED in self._findings else (Way.SHARED,)
        return [self._findings[way] for way in ways if way in self._findings]

    # --- proofs -----------------------------------------------------------------------------------

    def claim(self, offer: Offer, *, trials_left: int) -> Experiment | None:
        """What the caller has to try before its next trial; it then says so by `settle`.

        Args:
            trials_left: how many trials have not begun.
        """
        with self._lock:
            if self._is_claimed or self._reference is None or not offer.is_settled:
                return None
            way = self._next_way(self._reference, offer, trials_left)
            self._is_claimed = way is not None
            if way is None:
                return None
            return Experiment(reference=self._reference, origin=_origin(way, offer))

    def settle(self, experiment: Experiment, evidence: Evidence | str | None, offer: Offer) -> None:
        """What an experiment has come to.

        Args:
            evidence: of an execution to the end; why it did not come there; None where it was
                stopped, and says nothing.
        """
        with self._lock:
            self._is_claimed = False
            if experiment.way is Way.STARTED:
                self._settle_pending(evidence, offer)
            elif isinstance(evidence, Evidence):
                self._compare(experiment, evidence, offer)
            elif evidence is not None:
                self._refuse(experiment.way, failure=evidence)

    def _next_way(self, reference: Reference, offer: Offer, trials_left: int) -> Way | None:
        if self._pending is not None:
            way = self._pending[0].way
            if self._is_worth(reference.duration_s, reference.saved_s(way, offer), trials_left):
                return Way.STARTED
            self._refuse(way, self._pending[2])
            self._pending = None
        for way, can in ((Way.SHARED, offer.shared is not None), (Way.FORKED, offer.can_fork)):
            if not can or way in self._proofs:
                if can and self._proofs[way]:
                    return None  # there is no better one
                continue
            saves_s = reference.saved_s(way, offer)
            is_little = way is Way.SHARED and offer.shared and offer.shared.duration_s < _LITTLE_S
            cost_s = max(0.0, reference.duration_s - saves_s)
            if not is_little and self._is_worth(cost_s, saves_s, trials_left):
                return way
            self._proofs[way] = None
            _log.info("kernels are not %s: to prove it would take more than it saves", way)
        return None

    def _is_worth(self, cost_s: float, saves_s: float, trials_left: int) -> bool:
        return saves_s * trials_left > cost_s

    def _compare(self, experiment: Experiment, evidence: Evidence, offer: Offer) -> None:
        reference = experiment.reference.evidence
        found = difference(reference, evidence, twin=self._twin)
        if found is None:
            self._accept(experiment.way, Proof.EQUAL)
        elif self._twin is None:
            # Only a second started kernel tells a notebook that never comes to the same again from
            # one that comes to something else because its kernel was forked.
            self._pending = (experiment, evidence, found)
        elif difference(reference, evidence, twin=self._twin, closeness=self._closeness) is None:
            self._accept(experiment.way, Proof.CLOSE)
        else:
            self._refuse(experiment.way, found)

    @property
    def _closeness(self) -> float:
        """How far forked kernels may be off: as far as two started ones are, and no more."""
        assert self._reference is not None
        assert self._twin is not None
        apart = scores_distance(self._reference.evidence, self._twin)
        return CLOSENESS if 0.0 < apart <= CLOSENESS else 0.0

    def _settle_pending(self, twin: Evidence | str | None, offer: Offer) -> None:
        if self._pending is None or self._reference is None or twin is None:
            return
        (experiment, evidence, _), self._pending = self._pending, None
        if isinstance(twin, Evidence) and (
            scores_distance(self._reference.evidence, twin) <= CLOSENESS
        ):
            self._twin = twin
            self._compare(experiment, evidence, offer)
            return
        where = twin if isinstance(twin, str) else difference(self._reference.evidence, twin)
        self._proofs[Way.SHARED] = None
        self._proofs[Way.FORKED] = None if offer.has_acting_imports else Proof.NONE
        run_id = self._reference.spec.run_id
        kernels = "started" if offer.has_acting_imports else "forked without a proof"
        self._say(
            f"the notebook is not reproducible: trial {run_id}, run twice in started kernels with "
            f"the same params and seed, differed in {where}; kernels are {kernels}. Seed all that "
            "it draws (sweeper.seed_everything), and any trial can be run again"
        )

    def _accept(self, way: Way, proof: Proof) -> None:
        self._proofs[way] = proof
        _log.info("kernels are %s: the reference trial came to the same (%s)", way, proof)

    def _refuse(self, way: Way, found: Difference | None = None, *, failure: str = "") -> None:
        """Never have such a kernel.

        Args:
            found: the first difference between the reference there and in a started kernel.
            failure: how the reference ended there instead.
        """
        self._proofs[way] = None
        assert self._reference is not None
        what, kernel = (
            ("leading cells are not shared, every trial runs them", "forked after them")
            if way is Way.SHARED
            else ("each trial's kernel is started, not forked, which takes longer", "forked")
        )
        if failure:
            ending = f"failed there: {failure}"
        elif found is not None and found.is_output:
            ending = f"showed something else in {found}; its scores were the same"
        elif self._twin is not None:
            ending = f"differed in {found}; seed generators after the imports"
        else:
            ending = f"differed in {found}; seed all that it draws, after the imports"
        run_id = self._reference.spec.run_id
        self._say(f"{what}: trial {run_id}, run again in a kernel that was {kernel}, {ending}", way)

    # --- failures -------------------------------------------------------------------------------

    @property
    def doubts_failures(self) -> bool:
        """Whether a trial that failed in a forked kernel should be run in a started one, too."""
        return not self._is_failure_compared

    def compare_failure(self, run_id: str, message: str, *, also_started: bool) -> None:
        """A trial has failed in a forked kernel and was run again in a started one.

        Args:
            also_started: whether it failed there, too; if not, kernels are started from now on.
        """
        with self._lock:
            self._is_failure_compared = True
            if not also_started:
                self._proofs = dict.fromkeys((Way.SHARED, Way.FORKED))
                self._say(
                    f"kernels are started anew from now on: trial {run_id} failed in a forked one "
                    f"({message}), and not in one that was started"
                )

    def _say(self, finding: str, about: Way = Way.FORKED) -> None:
        self._findings[about] = finding
        _log.info("%s", finding)


def _origin(way: Way, offer: Offer) -> KernelOrigin:
    return KernelOrigin(way=way, shared=offer.shared if way is Way.SHARED else None)
