"""Whether a trial's kernel is forked: decided here, with the reason in words.

A notebook may come to other numbers in a forked kernel than in a started one: its libraries were
imported before its first cell, and shared cells ran once for all trials. So the first forked kernel
runs a reference trial again, one that has completed in a started kernel. Kernels are started until
both runs agree. No outcome of a forked kernel ever reaches the study before that proof.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ...trials import TrialSpec
from .evidence import CLOSENESS, Difference, Evidence, difference, scores_distance
from .origins import KernelOrigin, Offer, Way

_log = logging.getLogger(__name__)

#: What a forked kernel saves at least beside the imports: a started one takes this to boot.
_BOOT_S = 0.3
_SWITCH_OFF = "execution.kernels: cold spares the attempt"


class Proof(StrEnum):
    """What is known of trials in forked kernels, as `metadata.sweeper.proof` has it."""

    EQUAL = "equal"  # the reference trial came to the same, to the last bit
    CLOSE = "close"  # to 1e-6: in started kernels it does not come to the same bits either
    NONE = "none"  # it comes to something else each time, in started kernels too


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A trial that completed in a started kernel.

    Attributes:
        duration_s: how long the trial took there, with the wait for the kernel.
        boot_s: how long the trial waited for the kernel.
        leading_s: how long those cells took there which a forked kernel most likely does not run,
            or whose libraries it has.
    """

    spec: TrialSpec
    evidence: Evidence
    duration_s: float
    boot_s: float = 0.0
    leading_s: float = 0.0

    def saved_s(self, way: Way, offer: Offer) -> float:
        """What each trial saves by a way of coming to its kernel, in seconds."""
        if way is Way.STARTED:
            return 0.0
        shared_s = 0.0 if offer.shared is None else offer.shared.duration_s
        return max(_BOOT_S, self.boot_s) + offer.import_s + shared_s

    @property
    def is_mostly_spared(self) -> bool:
        """Whether forked kernels are expected to need no more than half as long for a trial."""
        # Both times are of one run: what other kernels did to the machine meanwhile met both.
        return self.boot_s + self.leading_s >= self.duration_s / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """The reference trial, to be run again in a kernel that comes to be in a certain way."""

    reference: Reference
    origin: KernelOrigin

    @property
    def way(self) -> Way:
        """How the kernel comes to be."""
        return self.origin.way


@dataclass(frozen=True, slots=True, kw_only=True)
class _Doubt:
    """An experiment that differed from the reference, until a second started kernel has run it."""

    experiment: Experiment
    evidence: Evidence
    difference: Difference


class ForkPolicy:
    """Decides for each kernel how it comes to be. Safe to use from any thread.

    Args:
        proofs: ways that are trusted from the start; for tests of the kernels themselves.
    """

    def __init__(self, proofs: Mapping[Way, Proof] | None = None) -> None:
        self._lock = threading.Lock()
        self._reference: Reference | None = None
        #: Evidence of the reference in a second started kernel.
        self._twin: Evidence | None = None
        self._doubt: _Doubt | None = None
        #: When the experiment began that is being made, on the monotonic clock.
        self._claimed_at_s: float | None = None
        #: Whether a trial has waited longer for the imports than a wait is worth.
        self._is_slow = False
        self._proofs = dict(proofs or {})
        #: By way, why no kernel comes to be so.
        self._refusals: dict[Way, str] = {}
        self._is_failure_compared = False
        self._findings: dict[Way, str] = {}
        self._last_reason = ""

    # --- for each kernel --------------------------------------------------------------------------

    def origin(self, offer: Offer) -> KernelOrigin:
        """How the kernel of the next trial should come to be; if it is started, also why."""
        way = self.way(offer)
        reason = self._why_started(offer) if way is Way.STARTED else ""
        with self._lock:
            if offer.is_lasting:
                self._findings.setdefault(Way.FORKED, _as_finding(offer.obstacle))
            if reason not in ("", self._last_reason):
                _log.info("kernels are started: %s", reason)
            self._last_reason = reason
        return _origin(way, offer, reason)

    def way(self, offer: Offer) -> Way:
        """How the kernel of the next trial should come to be, without the reason."""
        if offer.can_fork and Way.FORKED in self._proofs:
            return Way.FORKED
        return Way.STARTED

    def _why_started(self, offer: Offer) -> str:
        """The one answer to why a kernel is started and not forked."""
        if Way.FORKED in self._refusals:
            return self._refusals[Way.FORKED]
        if offer.obstacle:
            return offer.obstacle
        if self._reference is None:
            return (
                "no trial has completed in a started kernel yet, to be compared with a forked one"
            )
        run_id = self._reference.spec.run_id
        return f"trial {run_id} has not been repeated in a forked kernel yet, to compare both runs"

    def has_refused(self, way: Way) -> bool:
        """Whether no trial will ever have a kernel that comes to be so."""
        return way in self._refusals

    def coverage(self, origin: KernelOrigin) -> Mapping[str, str]:
        """What a trial's metadata states about its kernel: why it was started, or the proof."""
        if origin.way is Way.STARTED:
            return {"kernel_reason": origin.reason} if origin.reason else {}
        proof = self._proofs.get(origin.way)
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
        """Take a trial that has completed in a started kernel as the reference, if none is."""
        with self._lock:
            self._reference = self._reference or reference

    @property
    def findings(self) -> list[str]:
        """What costs users time and how they change that, for the last lines of a sweep."""
        return list(self._findings.values())

    # --- proofs -----------------------------------------------------------------------------------

    def claim(self, offer: Offer, *, trials_left: int) -> Experiment | None:
        """The experiment that the caller has to make before its next trial; `settle` follows.

        Args:
            trials_left: how many trials would begin after the experiment; each saves time by it.
        """
        with self._lock:
            if self._claimed_at_s is not None or self._reference is None or not offer.is_settled:
                return None
            way = self._next_way(self._reference, offer, trials_left)
            if way is None:
                return None
            self._claimed_at_s = time.monotonic()
            return Experiment(reference=self._reference, origin=_origin(way, offer))

    def settle(self, experiment: Experiment, evidence: Evidence | str | None, offer: Offer) -> None:
        """Judge an experiment.

        Args:
            evidence: of an execution to the end; or the error that ended it before; None where the
                execution was stopped and proves nothing.
        """
        with self._lock:
            self._claimed_at_s = None
            if experiment.way is Way.STARTED:
                self._settle_doubt(evidence, offer)
            elif isinstance(evidence, Evidence):
                self._compare(experiment, evidence)
            elif evidence is not None:
                self._refuse(experiment.way, self._why_failed(experiment.way, evidence))

    def is_worth_waiting(self, offer: Offer, *, trials_left: int, waited_s: float) -> bool:
        """Whether the next trial should wait for a forked kernel, and not have a started one now.

        A started kernel would import everything on the cores that the zygote, and then the
        experiment, could have. So a trial waits where a forked kernel spares most of it: for the
        imports at most twice as long as the reference took, then for the proof no longer than the
        imports took.

        Args:
            trials_left: how many trials have no kernel yet, with this one.
            waited_s: how long the caller has waited.
        """
        with self._lock:
            reference, claimed_at_s = self._reference, self._claimed_at_s
            is_known = self.way(offer) is not Way.STARTED or offer.is_lasting
            if is_known or reference is None or self.has_refused(Way.FORKED):
                return False
            if trials_left < 2 or not reference.is_mostly_spared:
                return False
            if not offer.is_settled:
                # One that has waited in vain is enough: the others start kernels at once.
                self._is_slow = self._is_slow or waited_s >= 2 * reference.duration_s
                return not self._is_slow
            spared_s = reference.saved_s(Way.FORKED, offer)
            return claimed_at_s is not None and time.monotonic() - claimed_at_s < spared_s

    def _next_way(self, reference: Reference, offer: Offer, trials_left: int) -> Way | None:
        if self._doubt is not None:
            way = self._doubt.experiment.way
            if reference.saved_s(way, offer) * trials_left > reference.duration_s:
                return Way.STARTED
            self._refuse(way, self._why_different(way, self._doubt.difference))
            self._doubt = None
        way = Way.FORKED
        if not offer.can_fork or way in self._proofs or way in self._refusals:
            return None
        reason = _why_not_worth(way, reference, offer, trials_left)
        if not reason:
            return way
        self._refusals[way] = reason
        return None

    def _compare(self, experiment: Experiment, evidence: Evidence) -> None:
        way, reference = experiment.way, experiment.reference.evidence
        found = difference(reference, evidence, twin=self._twin)
        if found is None:
            self._accept(way, Proof.EQUAL)
        elif self._twin is None:
            # Only a second started kernel can show whether the notebook comes to something else
            # each time, or only in a forked kernel.
            self._doubt = _Doubt(experiment=experiment, evidence=evidence, difference=found)
        elif difference(reference, evidence, twin=self._twin, closeness=self._closeness) is None:
            self._accept(way, Proof.CLOSE)
        else:
            self._refuse(way, self._why_different(way, found))

    @property
    def _closeness(self) -> float:
        """How far forked kernels may be off: as far as two started ones are, and no more."""
        assert self._reference is not None
        assert self._twin is not None
        apart = scores_distance(self._reference.evidence, self._twin)
        return CLOSENESS if 0.0 < apart <= CLOSENESS else 0.0

    def _settle_doubt(self, twin: Evidence | str | None, offer: Offer) -> None:
        if self._doubt is None or self._reference is None or twin is None:
            return
        doubt, self._doubt = self._doubt, None
        reference = self._reference.evidence
        if isinstance(twin, Evidence) and scores_distance(reference, twin) <= CLOSENESS:
            self._twin = twin
            self._compare(doubt.experiment, doubt.evidence)
            return
        why = _why_not_reproducible(self._reference, twin)
        if offer.has_acting_imports:
            self._refusals[Way.FORKED] = why
        else:
            self._proofs[Way.FORKED] = Proof.NONE
        kernels = "started" if offer.has_acting_imports else "forked without a proof"
        self._find(Way.FORKED, f"{why}. Kernels are {kernels} meanwhile")

    def _accept(self, way: Way, proof: Proof) -> None:
        self._proofs[way] = proof
        _log.info("kernels are %s: the reference trial came to the same (%s)", way, proof)

    def _refuse(self, way: Way, why: str) -> None:
        """Let no kernel come to be in a way, which costs users time."""
        self._refusals[way] = why
        self._find(way, _as_finding(why))

    def _why_failed(self, way: Way, error: str) -> str:
        return f"{self._rerun(way)} failed there: {error}; {_SWITCH_OFF}"

    def _why_different(self, way: Way, found: Difference) -> str:
        if found.is_output:
            ending = f"put out something else in {found}; its scores were the same"
            return f"{self._rerun(way)} {ending}; {_SWITCH_OFF}"
        remedy = "seed generators" if self._twin is not None else "seed all that it draws,"
        return f"{self._rerun(way)} differed in {found}; {remedy} after the imports"

    def _rerun(self, way: Way) -> str:
        assert self._reference is not None
        return f"trial {self._reference.spec.run_id}, run again in a kernel that was {way},"

    # --- failures -------------------------------------------------------------------------------

    @property
    def doubts_failures(self) -> bool:
        """Whether a trial that failed in a forked kernel should be run in a started one, too."""
        return not self._is_failure_compared

    def compare_failure(self, run_id: str, message: str, *, also_started: bool) -> None:
        """Judge a trial that has failed in a forked kernel and was run again in a started one.

        Args:
            also_started: whether it failed there, too; if not, kernels are started from now on.
        """
        with self._lock:
            self._is_failure_compared = True
            if not also_started:
                why = (
                    f"trial {run_id} failed in a forked one ({message}), and not in one that was "
                    f"started; {_SWITCH_OFF}"
                )
                self._proofs = {}
                self._refusals = {Way.FORKED: why}
                self._find(Way.FORKED, f"kernels are started anew from now on: {why}")

    def _find(self, way: Way, finding: str) -> None:
        self._findings[way] = finding
        _log.info("%s", finding)


def _origin(way: Way, offer: Offer, reason: str = "") -> KernelOrigin:
    shared = offer.shared if way is Way.FORKED else None
    return KernelOrigin(way=way, shared=shared, reason=reason)


def _as_finding(why: str) -> str:
    return f"each trial's kernel is started, not forked, which takes longer: {why}"


def _why_not_worth(way: Way, reference: Reference, offer: Offer, trials_left: int) -> str:
    """Why a proof would take longer than it saves; empty if it does not."""
    saves_s = reference.saved_s(way, offer)
    cost_s = max(0.0, reference.duration_s - saves_s)
    if saves_s * trials_left > cost_s:
        return ""
    return (
        f"to prove that trial {reference.spec.run_id} comes to the same in a forked kernel takes "
        f"{cost_s:.1f} s more, and forking saves {saves_s:.1f} s for each trial that begins after "
        f"it, {max(0, trials_left)} as far as is known; more trials make it worth its time"
    )


def _why_not_reproducible(reference: Reference, twin: Evidence | str) -> str:
    run_id = reference.spec.run_id
    if isinstance(twin, str):
        return (
            f"the notebook is not reproducible: trial {run_id} completed in one started kernel and "
            f"failed in another with the same params and seed ({twin}). Make sure that it runs "
            "again where files of its first run lie, and any trial can be run again"
        )
    return (
        f"the notebook is not reproducible: trial {run_id}, run twice in started kernels with the "
        f"same params and seed, differed in {difference(reference.evidence, twin)}. Seed all that "
        "it draws (sweeper.seed_everything), and any trial can be run again"
    )
