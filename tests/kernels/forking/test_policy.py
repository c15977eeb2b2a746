"""Kernels are forked only after a proof."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
from nbformat.v4 import new_code_cell, new_output

from sweeper.kernels.forking.origins import ForkAvailability, KernelOrigin, Ready, Stage, Unready
from sweeper.kernels.forking.policy import (
    Coverage,
    Failed,
    ForkPolicy,
    Inconclusive,
    Proof,
    Reference,
    Repetition,
    Run,
)
from sweeper.notebooks.compare import Execution
from sweeper.trials import TrialSpec

MakeSpec = Callable[..., TrialSpec]
FORKED = KernelOrigin(is_forked=True)


def run_of(val: float = 0.5, *, is_silent: bool = False, uses_gpu: bool = False) -> Run:
    printed = new_output("stream", name="stdout", text="ran")
    cell = new_code_cell(outputs=[] if is_silent else [printed])
    execution = Execution(cells=[cell], scores={"val": val}, series={"val": [(1, val)]})
    return Run(execution=execution, uses_gpu=uses_gpu)


#: Kernels can be forked now, which saves 3 s of imports.
READY = Ready(import_s=3.0)


@pytest.fixture
def reference(make_spec: MakeSpec) -> Reference:
    return Reference(spec=make_spec(), run=run_of(), duration_s=10.0)


@pytest.fixture
def policy(reference: Reference) -> ForkPolicy:
    policy = ForkPolicy()
    policy.offer_reference(reference)
    return policy


def proven(
    policy: ForkPolicy,
    *runs: Repetition,
    trials_left: int = 50,
    available: ForkAvailability = READY,
) -> list[KernelOrigin]:
    """Let the policy prove forking by runs with these results.

    Return how their kernels were made.
    """
    origins: list[KernelOrigin] = []
    left: list[Repetition] = list(runs or [run_of(), run_of()])

    def repeat(_: Reference, origin: KernelOrigin) -> Repetition:
        origins.append(origin)
        return left.pop(0)

    policy.prove(available, repeat, trials_left=trials_left)
    return origins


@pytest.mark.parametrize(
    ("runs", "proof", "words"),
    [
        ([run_of(), run_of()], Proof.EQUAL, ""),
        ([run_of(0.6), run_of()], None, "differed in val: from step 1 on 0.5 → 0.6"),
        ([run_of(), run_of(0.6), run_of()], None, "but not in a second started kernel"),
        ([run_of(0.6), run_of(0.7)], Proof.IN_KIND, "are forked: the notebook is not reproducible"),
        ([run_of(0.6), Failed("In [2]: NameError: y")], Proof.IN_KIND, "in its end: In [2]: Name"),
        ([run_of(uses_gpu=True), run_of()], None, "whether it uses the GPU"),
        ([run_of(0.6, uses_gpu=True), run_of(0.7)], None, "whether it uses the GPU"),
        ([run_of(is_silent=True), run_of(0.7)], None, "started, not forked"),
        (
            [Failed("In [3]: no")],
            None,
            "failed there: In [3]: no; `kernels: cold` skips the attempt",
        ),
    ],
)
def test_a_proof_compares_the_results_of_started_and_forked_runs(
    runs: list[Repetition], proof: Proof | None, words: str, policy: ForkPolicy
) -> None:
    assert len(proven(policy, *runs)) == len(runs)
    assert policy.forks(READY) is (proof is not None)
    assert policy.coverage(FORKED) == Coverage(proof=proof, proven_by="0007" if proof else "")
    assert words in (policy.finding or "")
    assert (policy.finding is None) == (proof is Proof.EQUAL)


def test_kernels_are_started_until_the_reference_was_run_again_in_forked_ones(
    policy: ForkPolicy,
) -> None:
    assert not policy.forks(READY)
    assert "has not been run again" in policy.origin(READY).reason
    assert proven(ForkPolicy()) == [], "it has no reference"
    assert proven(policy, available=Unready(Stage.COMING, "it imports")) == []
    assert [origin.is_forked for origin in proven(policy)] == [True, True]
    assert policy.origin(READY) == FORKED
    assert proven(policy) == []


@pytest.mark.parametrize("runs", [[Inconclusive()], [run_of(0.6), Inconclusive()]])
def test_a_proof_of_forked_kernels_that_was_stopped_is_repeated(
    runs: list[Repetition], policy: ForkPolicy
) -> None:
    proven(policy, *runs)
    assert policy.finding is None
    assert len(proven(policy)) == 2


@pytest.mark.parametrize(("trials_left", "is_due"), [(4, False), (5, True)])
def test_a_proof_of_forked_kernels_that_takes_longer_than_it_saves_is_not_made(
    trials_left: int, *, is_due: bool, policy: ForkPolicy
) -> None:
    # Forking saves 3.3 s per trial. The proof takes 13.4 s for two runs.
    assert bool(proven(policy, trials_left=trials_left)) is is_due
    assert ("too few trials are left" in policy.origin(READY).reason) is not is_due
    assert policy.finding is None, "it costs nobody anything"


@pytest.mark.parametrize(("kernels", "is_forked"), [("fork", True), ("cold", False)])
def test_the_setting_kernels_overrides_the_proof_of_forked_kernels(
    kernels: Literal["fork", "cold"], *, is_forked: bool, reference: Reference
) -> None:
    policy = ForkPolicy(kernels)
    policy.offer_reference(reference)
    assert policy.origin(READY).is_forked is is_forked
    assert proven(policy) == []
    assert policy.coverage(FORKED).proof == (Proof.NONE if is_forked else None)
    assert policy.finding is None


def test_a_permanent_obstacle_to_forking_is_a_finding(policy: ForkPolicy) -> None:
    there_is = Unready(Stage.NEVER, "they run bash")
    assert policy.origin(there_is).reason == "they run bash"
    assert "which takes longer: they run bash" in str(policy.finding)


def test_each_kind_of_failure_in_forked_kernels_is_compared_once(policy: ForkPolicy) -> None:
    assert policy.doubts_failure("no score")
    assert not policy.doubts_failure("no score")
    assert policy.doubts_failure("an exception")


def test_a_failure_that_only_happens_in_forked_kernels_ends_forking(policy: ForkPolicy) -> None:
    proven(policy)
    policy.refuse_for_failure("0009", "In [3]: RuntimeError: CUDA")
    assert not policy.forks(READY)
    assert "trial 0009 failed in a forked kernel (In [3]: RuntimeError: CUDA)" in str(
        policy.finding
    )


def test_a_free_slot_waits_for_imports_twice_as_long_as_the_first_trial_took(
    make_spec: MakeSpec, reference: Reference
) -> None:
    preparing, policy = Unready(Stage.COMING, "it imports"), ForkPolicy()
    assert not policy.waits(preparing), "the first trials import as well"
    policy.offer_reference(reference)
    assert policy.waits(preparing)
    assert not policy.waits(READY), "it proves forking"
    assert not policy.waits(Unready(Stage.IMPORTS_UNKNOWN, "no trial")), (
        "no trial has shown what to import"
    )
    impatient = ForkPolicy("fork")
    impatient.offer_reference(Reference(spec=make_spec(), run=run_of(), duration_s=0.0))
    assert not impatient.waits(preparing)


@pytest.mark.parametrize(("import_s", "waits"), [(3.0, True), (-0.3, False)])
def test_a_free_slot_waits_for_the_proof_at_most_the_time_that_a_fork_saves(
    import_s: float, *, waits: bool, policy: ForkPolicy
) -> None:
    waited: list[bool] = []

    def repeat(*_: object) -> Run:
        waited.append(policy.waits(Ready(import_s=import_s)))
        return run_of()

    policy.prove(READY, repeat, trials_left=50)
    assert waited == [waits, waits]
    assert not policy.waits(READY)
