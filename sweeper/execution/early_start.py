"""Let no slot wait at the start of a sweep: fork kernels before forking is proven to be safe.

The zygote, from which kernels are forked, starts with the sweep and imports what the notebook's
code shows. A trial whose kernel was forked before the proof ends as usual, and frees its slot. Its
outcome is *withheld*: recorded only when forking is proven to give the same results as fresh
kernels. If the proof fails, the trial runs again, in a fresh kernel.
"""

from __future__ import annotations

import re
import time

from ..kernels import KernelOrigin, KernelResult, Stopped, Verdict
from ..notebook_api.messages import StopReason
from ..notebooks.shown_imports import shown_imports
from ..trials import Reason, RunningTrial, TrialOutcome, TrialSpec, TrialState
from .attempt import Attempt
from .kernel_inputs import changed_since
from .proving import POLL_S, is_usual, prove
from .site import Site
from .verdict import judge
from .workload import Workload

#: Kernels are forked early if more trials are left than this number for each slot (chosen, not
#: measured). The proof takes the time of one trial.
_FEWEST_LEFT = 2
#: Seconds that a forked kernel is assumed to save at most (chosen). The true number is known only
#: after the imports of the process that kernels are forked from.
_SAVES_S = 10.0
#: Matches the calls by which a notebook saves checkpoints. The trials of such a notebook are long,
#: and their checkpoints would be lost if the sweep was interrupted before the proof. So their
#: kernels are not forked early.
_CHECKPOINTS = re.compile(r"\b(save_checkpoint|load_checkpoint|checkpoint_dir)\b")
#: A trial whose outcome waits for the proof of forked kernels makes this proof itself, if no other
#: trial begins it within this number of seconds (chosen, not measured). Usually, the next trial in
#: the slot makes the proof at once. The second number is for pruned trials. They should not make
#: the proof, because their stop also stops the run that is to be compared.
_PATIENCE_S, _PATIENCE_OF_PRUNED_S = 2.0, 10.0
_WAITS_FOR = "the proof of forked kernels"
#: Only a trial that was not stopped (None), or that was pruned, waits for the proof.
_NO_STOP = (None, StopReason.PRUNED)


def start_early(site: Site, spec: TrialSpec, running: RunningTrial) -> bool:
    """Start the process to fork from with the first trial of a sweep, if that saves time.

    Args:
        site: Site of the trial.
        spec: Spec of a trial that begins.
        running: The trial.

    Returns:
        Whether the trial does not wait for that process, because its kernel is started.
    """
    workload, pool = site.workload, site.pool
    is_python = workload.notebook.language == "python"
    if is_python and pool.fork_server.can_start_early and pays(workload, running, site.slots):
        modules = shown_imports(
            workload.notebook.code, workload.frozen.values(), folder=workload.cwd
        )
        if modules and pool.policy.start_early(site.slots):
            pool.fork_server.start_early(modules)
    return pool.policy.starts_at_once(running, is_usual=is_usual(site, spec))


def pays(workload: Workload, running: RunningTrial, slots: int) -> bool:
    """Return whether forking before the proof likely saves time, before any kernel has run.

    Args:
        workload: What the trials have in common.
        running: Trial that begins.
        slots: Number of trials that run at once.
    """
    if slots == 1 or running.trials_left <= _FEWEST_LEFT * slots:
        return False
    if workload.settings.kernels == "fork":  # No proof is needed, so no work can be lost.
        return True
    proof_s, saved_s = running.usual_s or 0.0, _SAVES_S * running.trials_left
    return proof_s < saved_s and _CHECKPOINTS.search(workload.code) is None


def origin_of(site: Site, spec: TrialSpec, running: RunningTrial) -> KernelOrigin | None:
    """Return how the kernel of a trial must be made. None if the fork policy decides.

    Args:
        site: Site of the trial.
        spec: Spec of the trial.
        running: The trial.
    """
    changed = changed_since(site.workload, spec)
    if changed:
        # Cells tagged `shared` have run with the present value of the parameters file. This trial
        # began with another value, so it must run these cells itself, in a fresh kernel.
        names = ", ".join(changed)
        return KernelOrigin(reason=f"the trial began with another value of {names}")
    policy, available = site.pool.policy, site.pool.fork_server.available
    return policy.early_origin(running, available, is_usual=spec.continues is None)


def withhold(site: Site, attempt: Attempt) -> None:
    """Wait for the proof, if an attempt's kernel was forked before it.

    If forking was not proven, replace the attempt's outcome, so that the trial runs again. The
    trial's slot is free meanwhile. The outcome is in memory only, so a trial whose sweep is
    killed runs again.

    Args:
        site: Site of the trial.
        attempt: Attempt that has ended.
    """
    if not attempt.is_early or attempt.outcome.state is TrialState.STOPPED:
        return
    policy = site.pool.policy
    if attempt.verdict is Verdict.PENDING:
        policy.withhold(1)
        attempt.running.control.withhold()
        try:
            if not _has_verdict(site, attempt):
                result, settings = KernelResult(ending=Stopped()), site.workload.settings
                attempt.outcome = judge(attempt.file, result, attempt.running, settings)
                return
        finally:
            policy.withhold(-1)
    if attempt.verdict is not Verdict.COUNTS:
        attempt.outcome = TrialOutcome(
            state=TrialState.STOPPED,
            reason=Reason.UNPROVEN,
            message="forked kernels were not proven to give the same results",
        )


def _has_verdict(site: Site, attempt: Attempt) -> bool:
    """Wait for a verdict. Return False if the trial is stopped first.

    If no other trial makes the proof, this trial makes it. Without a reference trial there can be
    no proof: then the function returns True, although the verdict is still pending.
    """
    policy, running = site.pool.policy, attempt.running
    control = running.control
    idle_since_s = time.monotonic()
    patience_s = _PATIENCE_S if control.stop_reason is None else _PATIENCE_OF_PRUNED_S
    with control.waiting():
        control.waits_for = _WAITS_FOR
        while attempt.verdict is Verdict.PENDING:
            if control.stop_reason not in _NO_STOP:
                return False
            if not policy.is_idle:
                idle_since_s = time.monotonic()
            elif time.monotonic() - idle_since_s > patience_s:
                break
            time.sleep(POLL_S)
    if attempt.verdict is Verdict.PENDING:
        control.waits_for = _WAITS_FOR  # It holds no slot, so it does not count as running.
        prove(site, running)
    return control.stop_reason in _NO_STOP
