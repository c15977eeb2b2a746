"""Prove that forked kernels give the same results as fresh ones.

A fresh kernel is a new process. A forked kernel is a fork of a process that has already imported
the notebook's libraries. A trial that completed in a fresh kernel, the *reference*, is repeated in
forked kernels, and all results are compared.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..kernels import Failed, Inconclusive, KernelOrigin, Ready, Reference, Repetition
from ..trials import Chore, ChoreKind, Reason, RunningTrial, TrialSpec, TrialState
from .attempt import Attempt
from .kernel_inputs import changed_since
from .site import Site

#: Seconds between two checks in a slot that waits for a proof (chosen, not measured).
POLL_S = 0.02
#: Time limit of a repetition: this many times the duration of the reference trial, plus this many
#: seconds (chosen, not measured).
_LIMIT_FACTOR, _LIMIT_SLACK_S = 3.0, 60.0


def prove_forking(site: Site, running: RunningTrial) -> None:
    """Prove that forked kernels give the same results, if the proof is due.

    `ForkPolicy.prove` says when it is due. First wait, for a limited time, while the zygote (the
    process from which kernels are forked) imports libraries, or another slot makes the proof.

    Args:
        site: Resources that the trials of this machine use.
        running: Trial whose slot makes the proof. A stop of this trial ends the proof.
    """
    control = running.control
    with control.waiting():
        while control.stop_reason is None and site.pool.waits:
            control.waits_for = "the imports and the proof of forked kernels"
            time.sleep(POLL_S)
    prove(site, running)


def prove(site: Site, running: RunningTrial) -> None:
    """Prove that forked kernels give the same results, if the proof is due.

    Do nothing while another slot makes the proof.

    Args:
        site: Resources that the trials of this machine use.
        running: Trial that makes the proof. A stop of this trial ends the proof.
    """
    available = site.pool.fork_server.available
    saved_s = available.saved_s if isinstance(available, Ready) else 0.0
    try:
        site.pool.policy.prove(
            available,
            partial(_repeat, site, running, saved_s=saved_s),
            trials_left=running.trials_left + 1 + site.places.waiting,
        )
    finally:
        running.control.chore = None


def is_usual(site: Site, spec: TrialSpec) -> bool:
    """Return whether a trial can be the reference, which forked kernels repeat for the proof.

    Two kinds of trials cannot. A trial that resumes from a checkpoint has other outputs than a
    whole run. A trial that began before the parameters file changed may need other values in the
    cells tagged `shared`, which run once for all forked kernels.
    """
    return spec.continues is None and not changed_since(site.workload, spec)


def learn_of_kernels(site: Site, attempt: Attempt, duration_s: float) -> None:
    """Use a completed trial for the proof of forked kernels, or for advice on the tag `shared`.

    Do nothing if the trial has not completed, or if `is_usual` excludes it. A trial in a fresh
    kernel is offered as the reference, which forked kernels repeat for the proof. The times of the
    cells in a forked kernel show which cells to tag `shared`, so that they run once for all trials.

    Args:
        site: Resources that the trials of this machine use.
        attempt: Last attempt at the trial.
        duration_s: Duration of the trial in seconds, including the wait for its kernel.
    """
    spec, origin = attempt.spec, attempt.result.origin
    if attempt.outcome.state is not TrialState.COMPLETED or not is_usual(site, spec):
        return
    if not origin.is_forked:
        reference = Reference(spec=spec, run=attempt.comparable, duration_s=duration_s)
        site.pool.policy.offer_reference(reference)
    elif not attempt.result.shared_cells:
        site.pool.record_times(attempt.file.node, site.workload.own_names)


def _repeat(
    site: Site,
    running: RunningTrial,
    reference: Reference,
    origin: KernelOrigin,
    *,
    saved_s: float,
) -> Repetition:
    """Run the reference trial once more, in a temporary folder.

    Args:
        site: Resources that the trials of this machine use.
        running: Trial whose slot makes the proof.
        reference: Trial to repeat.
        origin: How the kernel of the repetition must be made.
        saved_s: Seconds that a forked kernel saves, to predict when the proof will end.

    Returns:
        The run, to be compared with the reference. `Inconclusive` if it was stopped, lost its
        kernel or lacked memory. `Failed` if it did not complete for another reason.
    """
    if running.control.chore is None:
        expected_s = site.pool.policy.runs_of_a_proof * reference.forked_s(saved_s)
        chore = Chore(kind=ChoreKind.PROVING, since_s=time.monotonic(), expected_s=expected_s)
        running.control.chore = chore
    repeated = RunningTrial()
    # Use the sweep's private folder, which is removed even after a kill. Ignore errors of the
    # clean-up, because a kernel may still write into the temporary folder.
    temporary = tempfile.TemporaryDirectory(dir=site.folder, ignore_cleanup_errors=True)
    with temporary as folder, running.control.passed_on(repeated.control):
        spec = replace(
            reference.spec,
            notebook=Path(folder) / "repeated.ipynb",
            # Use an empty folder, so that the repetition does not resume from a checkpoint.
            checkpoint_dir=Path(folder) / "checkpoints",
            artifact_dir=Path(folder) / "artifacts",
        )
        limit_s = _LIMIT_FACTOR * reference.duration_s + _LIMIT_SLACK_S
        attempt = Attempt(spec, repeated, site, origin=origin, repetition_limit_s=limit_s)
        outcome = attempt.execute()
    if outcome.state is TrialState.COMPLETED:
        return attempt.comparable
    is_short = outcome.reason in (Reason.OUT_OF_MEMORY, Reason.OUT_OF_HOST_MEMORY)
    is_stopped = outcome.state is TrialState.STOPPED
    shows_nothing = attempt.result.lost_its_kernel or is_short or is_stopped
    return Inconclusive() if shows_nothing else Failed(outcome.message)
