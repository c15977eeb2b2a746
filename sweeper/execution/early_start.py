"""Let no slot wait at the start of a sweep: fork kernels before forking is proven to be safe.

The zygote, the process from which kernels are forked, starts with the sweep. It imports the
libraries that the notebook's code names. A trial whose kernel was forked before the proof ends as
usual, and frees its slot for the next trial. Its outcome is *withheld*: recorded only when forking
is proven to give the same results as fresh kernels. If the proof fails, the trial runs again, in a
fresh kernel.
"""

from __future__ import annotations

import re
import time

from ..kernels import KernelOrigin, KernelResult, Stopped, Verdict
from ..notebook_api.messages import StopReason
from ..notebook_code.shown_imports import shown_imports
from ..trials import Reason, RunningTrial, TrialOutcome, TrialSpec, TrialState
from .attempt import Attempt
from .kernel_inputs import changed_since
from .proving import POLL_S, is_usual, prove
from .site import Site
from .verdict import judge
from .workload import Workload

#: Kernels are forked early (before the proof) only if more than this number of trials per slot are
#: left to begin (chosen, not measured). With fewer trials, the proof would not pay, because it
#: takes as long as one trial.
_FEWEST_LEFT = 2
#: A forked kernel is assumed to save at most this many seconds (chosen). The true number is known
#: only after the zygote has imported the libraries.
_SAVES_S = 10.0
#: Matches the calls by which a notebook saves checkpoints. The trials of such a notebook are long,
#: and their checkpoints would be lost if the sweep was interrupted before the proof. So their
#: kernels are not forked early.
_CHECKPOINTS = re.compile(r"\b(save_checkpoint|load_checkpoint|checkpoint_dir)\b")
#: A trial whose outcome waits for the proof of forked kernels makes this proof itself, if no other
#: trial begins it within the first number of seconds (chosen, not measured). Usually, the next
#: trial in the slot makes the proof at once. The second number is for pruned trials. They should
#: not make the proof, because their stop also stops the run that is to be compared.
_PATIENCE_S, _PATIENCE_OF_PRUNED_S = 2.0, 10.0
_WAITS_FOR = "the proof of forked kernels"
#: Only trials that were not stopped (None), and pruned ones, wait until it is proven that forking
#: their kernel has changed no result.
_NO_STOP = (None, StopReason.PRUNED)


def start_early(site: Site, spec: TrialSpec, running: RunningTrial) -> bool:
    """Start the zygote, the process from which kernels are forked, before a kernel has run.

    Do so only if no zygote was started before, if it pays (see `pays`), and if the code of a Python
    notebook shows which modules the zygote must import.

    Args:
        site: Resources that the trials of this machine use.
        spec: Spec of a trial that begins.
        running: The trial.

    Returns:
        Whether the trial begins at once in a fresh kernel, instead of waiting for the zygote.
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
    """Predict whether it pays to start the zygote (process to fork from) before a kernel has run.

    Kernels are then forked before the proof that forking changes no result. It pays if it saves
    time and no checkpoint of a trial can be lost. With `kernels: fork`, none can be lost, because
    no proof is needed.

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
    """Return how a trial's kernel must be made: started, or forked before the proof.

    The proof is a test that forking changes no result. Return None if the fork policy decides
    later, when the kernel is made.

    Args:
        site: Resources that the trials of this machine use.
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
    """Wait for the proof that forking changes no result, if the kernel was forked before it.

    If forking was not proven, replace the attempt's outcome, so that the trial runs again. While
    the trial waits, its slot is free, and its outcome is in memory only. So if the sweep is killed,
    the trial runs again.

    Args:
        site: Resources that the trials of this machine use.
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
    """Wait for the decision whether outcomes of kernels that were forked before the proof count.

    If no other trial makes the proof, this trial makes it.

    Returns:
        False if the trial is stopped first, other than by pruning. Otherwise True, even if there is
        no proof because no trial has completed in a fresh kernel.
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
        # The trial holds no slot, so show that it waits: otherwise, it would count as running.
        control.waits_for = _WAITS_FOR
        prove(site, running)
    return control.stop_reason in _NO_STOP
