"""Which kernels are forked, and what has to be proven before."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from sweeper.kernels import (
    Evidence,
    ForkPolicy,
    KernelOrigin,
    Proof,
    Reference,
    Way,
)
from sweeper.kernels.forking.evidence import Output
from sweeper.kernels.forking.origins import Offer
from sweeper.trials import TrialSpec

MakeSpec = Callable[..., TrialSpec]


def run_of(val: float = 0.5, text: str = "") -> Evidence:
    return Evidence(
        scores={"val": val}, series={}, cells=[[Output(kind="stdout", texts={"text": text})]]
    )


def offer(**stated: Any) -> Offer:
    return Offer(**{"is_settled": True, "can_fork": True, "import_s": 3.0, **stated})


@pytest.fixture
def policy(make_spec: MakeSpec) -> ForkPolicy:
    """One that has a reference trial of 10 seconds."""
    policy = ForkPolicy()
    policy.offer_reference(Reference(spec=make_spec(), evidence=run_of(), duration_s=10.0))
    return policy


def settle(
    policy: ForkPolicy, there_is: Offer, evidence: Evidence | str | None, *, way: Way
) -> None:
    experiment = policy.claim(there_is, trials_left=50)
    assert experiment is not None
    assert experiment.way is way
    policy.settle(experiment, evidence, there_is)


def test_kernels_are_started_until_a_forked_one_has_repeated_the_reference(
    policy: ForkPolicy,
) -> None:
    there_is = offer()
    assert policy.way(there_is) is Way.STARTED
    settle(policy, there_is, run_of(), way=Way.FORKED)
    assert policy.way(there_is) is Way.FORKED
    assert policy.coverage(KernelOrigin(way=Way.FORKED)) == {"proof": "equal", "proven_by": "0007"}
    assert policy.coverage(KernelOrigin(way=Way.STARTED)) == {}
    assert policy.claim(there_is, trials_left=50) is None
    assert policy.findings == []


def test_there_is_no_experiment_without_a_reference_or_while_libraries_are_imported(
    policy: ForkPolicy,
) -> None:
    assert ForkPolicy().claim(offer(), trials_left=50) is None
    assert policy.claim(offer(is_settled=False), trials_left=50) is None


def test_one_slot_at_a_time_makes_an_experiment_and_a_stopped_one_proves_nothing(
    policy: ForkPolicy,
) -> None:
    there_is = offer()
    experiment = policy.claim(there_is, trials_left=50)
    assert experiment is not None
    assert policy.claim(there_is, trials_left=50) is None
    policy.settle(experiment, None, there_is)
    assert policy.way(there_is) is Way.STARTED
    assert policy.claim(there_is, trials_left=50) is not None


def mostly_imports(
    make_spec: MakeSpec, *, leading_s: float = 6.0, boot_s: float = 1.0
) -> ForkPolicy:
    """One whose reference took 10 seconds, of which a forked kernel spares some."""
    policy = ForkPolicy()
    reference = Reference(
        spec=make_spec(), evidence=run_of(), duration_s=10.0, boot_s=boot_s, leading_s=leading_s
    )
    policy.offer_reference(reference)
    return policy


def waits(policy: ForkPolicy, there_is: Offer, *, trials_left: int = 50, s: float = 0.0) -> bool:
    return policy.is_worth_waiting(there_is, trials_left=trials_left, waited_s=s)


def test_a_trial_that_is_mostly_imports_waits_for_a_forked_kernel(make_spec: MakeSpec) -> None:
    policy = mostly_imports(make_spec)
    importing = offer(is_settled=False, can_fork=False)
    assert waits(policy, importing)
    experiment = policy.claim(offer(), trials_left=50)
    assert experiment is not None
    assert waits(policy, offer()), "another slot makes the experiment"
    policy.settle(experiment, run_of(), offer())
    assert not waits(policy, offer()), "there are forked kernels"


def test_no_trial_waits_that_a_forked_kernel_does_not_halve(
    policy: ForkPolicy, make_spec: MakeSpec
) -> None:
    importing = offer(is_settled=False, can_fork=False)
    assert not waits(ForkPolicy(), importing), "no reference"
    assert not waits(policy, importing), "nothing is known to be spared"
    assert not waits(mostly_imports(make_spec, leading_s=3.5), importing)


def test_no_trial_waits_for_what_takes_longer_than_expected_or_never_comes(
    make_spec: MakeSpec,
) -> None:
    policy = mostly_imports(make_spec)
    importing = offer(is_settled=False, can_fork=False)
    assert not waits(policy, importing, trials_left=1), "the last trial has nothing to gain"
    assert not waits(policy, offer(can_fork=False, obstacle="none", is_lasting=True))
    assert not waits(policy, offer()), "nobody makes an experiment"
    settle(policy, offer(), "NameError: y", way=Way.FORKED)
    assert not waits(policy, importing), "forking is refused"


def test_where_one_trial_has_waited_in_vain_no_other_waits(make_spec: MakeSpec) -> None:
    policy = mostly_imports(make_spec)
    importing = offer(is_settled=False, can_fork=False)
    assert waits(policy, importing, s=19.0)
    assert not waits(policy, importing, s=21.0)
    assert not waits(policy, importing)


def test_no_trial_waits_for_a_proof_that_takes_longer_than_the_imports(
    make_spec: MakeSpec,
) -> None:
    policy = mostly_imports(make_spec, boot_s=0.0)
    quick = offer(import_s=0.0)  # a kernel's boot is taken for 0.3 s at least
    assert policy.claim(quick, trials_left=50) is not None
    assert waits(policy, quick)
    time.sleep(0.31)
    assert not waits(policy, quick)


def test_a_proof_that_costs_more_than_the_remaining_trials_save_is_not_made(
    policy: ForkPolicy,
) -> None:
    # 3.3 s for each of 2 trials, and 6.7 s for the proof.
    assert policy.claim(offer(), trials_left=2) is None
    assert policy.way(offer()) is Way.STARTED
    assert policy.has_refused(Way.FORKED)


def test_a_notebook_that_forking_changes_is_run_in_started_kernels(policy: ForkPolicy) -> None:
    there_is = offer()
    settle(policy, there_is, run_of(0.6), way=Way.FORKED)
    settle(policy, there_is, run_of(), way=Way.STARTED)  # comes to the same in a started one
    assert policy.way(there_is) is Way.STARTED
    (finding,) = policy.findings
    assert "val: 0.5 and 0.6" in finding
    assert "seed generators after the imports" in finding


@pytest.mark.parametrize(("acc", "way"), [(5, Way.FORKED), (6, Way.STARTED)])
def test_numbers_that_two_started_kernels_print_differently_are_not_compared(
    acc: int, way: Way, make_spec: MakeSpec
) -> None:
    policy, there_is = ForkPolicy(), offer()
    evidence = run_of(text="noise 0.1, acc 5")
    policy.offer_reference(Reference(spec=make_spec(), evidence=evidence, duration_s=10.0))
    settle(policy, there_is, run_of(text=f"noise 0.2, acc {acc}"), way=Way.FORKED)
    settle(policy, there_is, run_of(text="noise 0.3, acc 5"), way=Way.STARTED)
    assert policy.way(there_is) is way


def test_a_notebook_that_is_close_to_itself_has_to_be_as_close_when_forked(
    make_spec: MakeSpec,
) -> None:
    for forked, proof in ((0.5 + 3e-10, Proof.CLOSE), (0.9, None)):
        policy = ForkPolicy()
        policy.offer_reference(Reference(spec=make_spec(), evidence=run_of(), duration_s=10.0))
        settle(policy, offer(), run_of(forked), way=Way.FORKED)
        settle(policy, offer(), run_of(0.5 + 1e-10), way=Way.STARTED)
        assert policy.coverage(KernelOrigin(way=Way.FORKED)).get("proof") == proof


def test_a_notebook_that_never_comes_to_the_same_is_a_finding(
    policy: ForkPolicy,
) -> None:
    there_is = offer()
    settle(policy, there_is, run_of(0.6), way=Way.FORKED)
    settle(policy, there_is, run_of(0.7), way=Way.STARTED)
    assert policy.way(there_is) is Way.FORKED
    assert policy.coverage(KernelOrigin(way=Way.FORKED)) == {"proof": "none"}
    (finding,) = policy.findings
    assert "not reproducible" in finding
    assert "val: 0.5 and 0.7" in finding


def test_such_a_notebook_is_not_forked_either_where_imports_draw_numbers(
    policy: ForkPolicy,
) -> None:
    there_is = offer(has_acting_imports=True)
    settle(policy, there_is, run_of(0.6), way=Way.FORKED)
    settle(policy, there_is, run_of(0.7), way=Way.STARTED)
    assert policy.way(there_is) is Way.STARTED


def test_a_reference_that_fails_in_a_forked_kernel_ends_forking(policy: ForkPolicy) -> None:
    there_is = offer()
    settle(policy, there_is, "In [3]: RuntimeError", way=Way.FORKED)
    assert policy.way(there_is) is Way.STARTED
    assert "RuntimeError" in policy.findings[0]


def test_a_trial_that_fails_in_forked_kernels_only_ends_forking(policy: ForkPolicy) -> None:
    there_is = offer()
    settle(policy, there_is, run_of(), way=Way.FORKED)
    assert policy.doubts_failures
    policy.compare_failure("0009", "In [3]: RuntimeError", also_started=False)
    assert policy.way(there_is) is Way.STARTED
    assert "trial 0009 failed in a forked one" in policy.findings[0]


def test_a_failure_that_is_the_notebooks_own_is_compared_once(policy: ForkPolicy) -> None:
    there_is = offer()
    settle(policy, there_is, run_of(), way=Way.FORKED)
    policy.compare_failure("0009", "In [3]: ValueError", also_started=True)
    assert not policy.doubts_failures
    assert policy.way(there_is) is Way.FORKED


def test_a_reference_that_fails_in_a_second_started_kernel_is_reported_as_a_failure(
    policy: ForkPolicy,
) -> None:
    there_is = offer()
    settle(policy, there_is, run_of(0.6), way=Way.FORKED)
    settle(policy, there_is, "In [3]: FileExistsError: runs", way=Way.STARTED)
    (finding,) = policy.findings
    assert "completed in one started kernel and failed in another" in finding
    assert "FileExistsError: runs" in finding
    assert "differed" not in finding


# --- why a kernel is started ----------------------------------------------------------------------


def test_the_reason_for_a_started_kernel_is_part_of_its_origin(make_spec: MakeSpec) -> None:
    policy = ForkPolicy()
    importing = offer(can_fork=False, is_settled=False, obstacle="libraries are being imported")
    assert policy.origin(importing).reason == "libraries are being imported"
    assert "no trial has completed" in policy.origin(offer()).reason
    policy.offer_reference(Reference(spec=make_spec(), evidence=run_of(), duration_s=10.0))
    assert "trial 0007 has not been repeated" in policy.origin(offer()).reason
    settle(policy, offer(), run_of(), way=Way.FORKED)
    assert policy.origin(offer()) == KernelOrigin(way=Way.FORKED)
    assert policy.findings == []


def test_a_trial_records_why_its_kernel_was_started(policy: ForkPolicy) -> None:
    assert policy.claim(offer(), trials_left=2) is None
    reason = policy.coverage(policy.origin(offer()))["kernel_reason"]
    assert "takes 6.7 s more" in reason
    assert "saves 3.3 s for each trial that begins after it, 2 as far" in reason
    assert "more trials make it worth its time" in reason
    assert policy.findings == [], "nothing that users should change"


def test_what_keeps_a_notebook_from_being_forked_is_a_finding_with_a_remedy(
    policy: ForkPolicy,
) -> None:
    obstacle = "an import initialises CUDA; let a cell do so after the imports"
    there_is = offer(can_fork=False, obstacle=obstacle, is_lasting=True)
    assert policy.findings == []
    assert policy.origin(there_is).reason == obstacle
    (finding,) = policy.findings
    assert finding == f"each trial's kernel is started, not forked, which takes longer: {obstacle}"
