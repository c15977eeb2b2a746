"""Kernels are forked only after a proof: a trial is run again in them, with the same results."""

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
    Verdict,
)
from sweeper.notebooks.compare import Execution
from sweeper.trials import RunningTrial, TrialSpec

MakeSpec = Callable[..., TrialSpec]
FORKED = KernelOrigin(is_forked=True)


def run_of(val: float = 0.5, *, is_silent: bool = False, uses_gpu: bool = False) -> Run:
    printed = new_output("stream", name="stdout", text="ran")
    cell = new_code_cell(outputs=[] if is_silent else [printed])
    execution = Execution(cells=[cell], scores={"val": val}, series={"val": [(1, val)]})
    return Run(execution=execution, uses_gpu=uses_gpu)


#: The state of a zygote that can fork kernels. A fork saves 3 s of imports.
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
    """Let the policy run its reference trial again, with these results or two equal ones.

    Return for each run whether its kernel was started or forked.
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
        ([run_of(), run_of(0.6), run_of()], None, "but not in a second fresh kernel"),
        ([run_of(0.6), run_of(0.7)], Proof.IN_KIND, "are forked: the notebook is not reproducible"),
        ([run_of(0.6), Failed("In [2]: NameError: y")], Proof.IN_KIND, "in its end: In [2]: Name"),
        ([run_of(uses_gpu=True), run_of()], None, "whether it uses the GPU"),
        ([run_of(0.6, uses_gpu=True), run_of(0.7)], None, "whether it uses the GPU"),
        ([run_of(is_silent=True), run_of(0.7)], None, "started, not forked"),
        (
            [Failed("In [3]: no")],
            None,
            "failed there: In [3]: no; set `kernels: cold` to skip the attempt to fork kernels",
        ),
    ],
)
def test_kernels_are_forked_only_if_a_repeated_trial_gives_equal_results_or_differs_only_by_chance(
    runs: list[Repetition], proof: Proof | None, words: str, policy: ForkPolicy
) -> None:
    assert len(proven(policy, *runs)) == len(runs)
    assert policy.forks(READY) is (proof is not None)
    assert policy.coverage(FORKED) == Coverage(proof=proof, proven_by="0007" if proof else "")
    assert words in (policy.finding or "")
    assert (policy.finding is None) == (proof is Proof.EQUAL)


def test_kernels_of_new_trials_are_not_forked_before_a_trial_was_run_again_in_forked_kernels(
    policy: ForkPolicy,
) -> None:
    assert not policy.forks(READY)
    assert "has not been run again" in policy.origin(READY).reason
    assert proven(ForkPolicy()) == [], "no trial has completed that could be run again"
    assert proven(policy, available=Unready(Stage.COMING, "it imports")) == []
    assert [origin.is_forked for origin in proven(policy)] == [True, True]
    assert policy.origin(READY) == FORKED
    assert proven(policy) == []


@pytest.mark.parametrize("runs", [[Inconclusive()], [run_of(0.6), Inconclusive()]])
def test_a_comparison_of_forked_with_fresh_kernels_that_was_stopped_is_made_again(
    runs: list[Repetition], policy: ForkPolicy
) -> None:
    proven(policy, *runs)
    assert policy.finding is None
    assert len(proven(policy)) == 2


@pytest.mark.parametrize(("trials_left", "is_due"), [(4, False), (5, True)])
def test_forked_kernels_are_not_compared_with_started_ones_if_too_few_trials_are_left_to_save_time(
    trials_left: int, *, is_due: bool, policy: ForkPolicy
) -> None:
    # Forking saves 3.3 s per trial. The comparison, two runs, takes 13.4 s: it pays off from
    # 5 trials on.
    assert bool(proven(policy, trials_left=trials_left)) is is_due
    assert ("too few trials are left" in policy.origin(READY).reason) is not is_due
    assert policy.finding is None, "no time is lost"


@pytest.mark.parametrize(("kernels", "is_forked"), [("fork", True), ("cold", False)])
def test_with_kernels_fork_or_kernels_cold_no_forked_kernel_is_compared_with_a_fresh_one(
    kernels: Literal["fork", "cold"], *, is_forked: bool, reference: Reference
) -> None:
    policy = ForkPolicy(kernels)
    policy.offer_reference(reference)
    assert policy.origin(READY).is_forked is is_forked
    assert proven(policy) == []
    assert policy.coverage(FORKED).proof == (Proof.NONE if is_forked else None)
    assert policy.finding is None


def test_a_permanent_obstacle_to_forking_kernels_is_reported_as_a_finding(
    policy: ForkPolicy,
) -> None:
    there_is = Unready(Stage.NEVER, "they run bash")
    assert policy.origin(there_is).reason == "they run bash"
    assert "which takes longer: they run bash" in str(policy.finding)


def test_only_the_first_failure_of_a_kind_in_a_forked_kernel_is_checked_in_a_started_one(
    policy: ForkPolicy,
) -> None:
    assert policy.doubts_failure("no score")
    assert not policy.doubts_failure("no score")
    assert policy.doubts_failure("an exception")


def test_no_kernel_is_forked_any_more_after_a_failure_that_happened_only_in_a_forked_one(
    policy: ForkPolicy,
) -> None:
    proven(policy)
    policy.refuse_for_failure("0009", "In [3]: RuntimeError: CUDA")
    assert not policy.forks(READY)
    assert "trial 0009 failed in a forked kernel (In [3]: RuntimeError: CUDA)" in str(
        policy.finding
    )


def test_a_free_slot_waits_until_kernels_can_be_forked_unless_the_first_trial_took_no_time(
    make_spec: MakeSpec, reference: Reference
) -> None:
    preparing, policy = Unready(Stage.COMING, "it imports"), ForkPolicy()
    assert not policy.waits(preparing), "the first trials import as well"
    policy.offer_reference(reference)
    assert policy.waits(preparing)
    assert not policy.waits(READY), "the slot itself compares forked kernels with fresh ones"
    assert not policy.waits(Unready(Stage.IMPORTS_UNKNOWN, "no trial")), (
        "no trial has shown what to import"
    )
    impatient = ForkPolicy("fork")
    impatient.offer_reference(Reference(spec=make_spec(), run=run_of(), duration_s=0.0))
    assert not impatient.waits(preparing)


@pytest.mark.parametrize(("import_s", "waits"), [(3.0, True), (-0.3, False)])
def test_a_free_slot_waits_for_the_comparison_of_kernels_only_if_a_fork_saves_time(
    import_s: float, *, waits: bool, policy: ForkPolicy
) -> None:
    waited: list[bool] = []

    def repeat(*_: object) -> Run:
        waited.append(policy.waits(Ready(import_s=import_s)))
        return run_of()

    policy.prove(READY, repeat, trials_left=50)
    assert waited == [waits, waits]
    assert not policy.waits(READY)


# --- an early start: kernels are forked before the proof ------------------------------------------

COMING = Unready(Stage.COMING, "it imports")


@pytest.fixture
def early() -> tuple[ForkPolicy, RunningTrial]:
    """Return a policy after `start_early(2)`, and the first trial, which gets a fresh kernel."""
    policy, first = ForkPolicy(), RunningTrial()
    assert policy.start_early(2)
    assert policy.starts_at_once(first, is_usual=True)
    return policy, first


def test_trials_forked_during_the_first_one_are_recorded_if_it_gives_equal_results_in_a_fork(
    early: tuple[ForkPolicy, RunningTrial], reference: Reference
) -> None:
    policy, first = early
    second = RunningTrial()
    assert not policy.starts_at_once(second, is_usual=True)
    assert policy.waits(COMING), "a slot waits only for the zygote"
    resumed = RunningTrial()
    assert policy.starts_at_once(resumed, is_usual=False)
    assert policy.early_origin(resumed, READY, is_usual=False) is None
    assert policy.early_origin(first, READY, is_usual=True) != FORKED
    assert policy.early_origin(second, READY, is_usual=True) == FORKED
    assert not policy.waits(READY)
    assert policy.coverage(FORKED).proof is Proof.PENDING
    assert policy.verdict(READY) is Verdict.PENDING
    policy.offer_reference(reference)
    assert len(proven(policy, run_of(), trials_left=0)) == 1, "although few trials are left"
    assert policy.verdict(READY) is Verdict.COUNTS
    assert policy.early_origin(second, READY, is_usual=True) is None


@pytest.mark.parametrize("runs", [[run_of(0.6), run_of()], [Failed("In [3]: no")]])
def test_trials_forked_during_the_first_one_run_again_if_its_repetition_differs_or_fails(
    runs: list[Repetition], early: tuple[ForkPolicy, RunningTrial], reference: Reference
) -> None:
    policy, _ = early
    policy.early_origin(RunningTrial(), READY, is_usual=True)
    policy.offer_reference(reference)
    proven(policy, *runs)
    assert policy.verdict(READY) is Verdict.RUN_AGAIN


def test_trials_forked_during_the_first_one_run_again_if_forking_becomes_impossible(
    early: tuple[ForkPolicy, RunningTrial],
) -> None:
    policy, _ = early
    assert policy.early_origin(RunningTrial(), READY, is_usual=True) == FORKED
    assert policy.verdict(Unready(Stage.NEVER, "it died")) is Verdict.RUN_AGAIN


def test_another_trial_gets_a_fresh_kernel_to_compare_with_if_the_first_one_did_not_complete(
    early: tuple[ForkPolicy, RunningTrial],
) -> None:
    policy, first = early
    idle = [policy.is_idle]
    first.control.end()
    idle.append(policy.is_idle)
    assert policy.starts_at_once(RunningTrial(), is_usual=True)
    assert [*idle, policy.is_idle] == [False, True, False]


def test_kernels_are_started_while_too_many_outcomes_of_forked_ones_await_the_comparison(
    early: tuple[ForkPolicy, RunningTrial],
) -> None:
    policy, _ = early
    policy.withhold(4)
    assert policy.early_origin(RunningTrial(), READY, is_usual=True) is None
    policy.withhold(-1)
    assert policy.early_origin(RunningTrial(), READY, is_usual=True) == FORKED


def test_with_kernels_fork_a_slot_waits_for_a_fork_once_early_forks_are_allowed() -> None:
    policy = ForkPolicy("fork")
    assert not policy.waits(COMING)
    assert policy.start_early(2)
    assert policy.waits(COMING)
    assert not policy.starts_at_once(RunningTrial(), is_usual=True)
    assert not ForkPolicy("cold").start_early(2)
