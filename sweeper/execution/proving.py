"""Run the reference trial again in forked kernels, before other trials may have one."""

from __future__ import annotations

import errno
import logging
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from ..kernels import Ending, KernelOrigin, KernelResult, Reference, Run, Verdict, judge
from ..kernels.forking.origins import SWITCH_OFF
from ..notebooks.compare import Execution
from ..notebooks.executed import ExecutedNotebook
from ..trials import Reason, RunningTrial, TrialOutcome, TrialState
from .notebook_runner import NotebookRunner

_log = logging.getLogger(__name__)

#: A repetition may take three times as long as the reference trial, and a minute.
_LIMIT_FACTOR, _LIMIT_SLACK_S = 3.0, 60.0
#: A slot that waits for a forked kernel looks this often.
_POLL_S = 0.02
_FORKED = KernelOrigin(is_forked=True)
_STARTED = KernelOrigin(reason="a second run in a started kernel")


def prove_forking(runner: NotebookRunner, running: RunningTrial) -> None:
    """Prove that kernels may be forked, where that is due before the next trial, or wait for it.

    Args:
        running: the trial that the caller runs next; a stop of it ends the proof.
    """
    pool = runner.pool
    while running.stop_reason is None and pool.waits:
        running.waits_for = "the imports and the proof of forked kernels"
        time.sleep(_POLL_S)
    running.waits_for = ""
    trials_left = running.trials_left + 1 + runner.places.waiting
    reference = pool.policy.claim(pool.available, trials_left=trials_left)
    if reference is None:
        return
    verdict, started_s = None, time.monotonic()
    try:
        verdict = _prove(runner, reference, running)
    except Exception as error:  # noqa: BLE001  what only saves time must not fail a trial
        _log.exception("proof of forked kernels")
        verdict = Verdict(proof=None, finding=f"{type(error).__name__}: {error}")
    finally:
        pool.policy.settle(verdict)
    _log.info("proof: trial %s, %.2f s", reference.spec.run_id, time.monotonic() - started_s)


def run_of(file: ExecutedNotebook, result: KernelResult, outcome: TrialOutcome) -> Run:
    """What two runs of a trial are compared by."""
    execution = Execution(cells=file.node.cells, scores=outcome.scores, series=outcome.series)
    return Run(execution=execution, uses_gpu=result.gpu_bytes is not None)


def _prove(runner: NotebookRunner, reference: Reference, running: RunningTrial) -> Verdict | None:
    """Run the trial in two forked kernels, and in a started one where they differ."""
    forked: list[Run] = []
    while len(forked) < 2 and not any(map(reference.run.difference, forked)):
        run = _repeat(runner, reference, running, _FORKED)
        if isinstance(run, str):
            found = f"trial {reference.spec.run_id}, run again in a forked kernel, failed there: "
            return Verdict(proof=None, finding=f"{found}{run}; {SWITCH_OFF}")
        if run is None:
            return None
        forked.append(run)
    again = None
    if any(map(reference.run.difference, forked)):
        again = _repeat(runner, reference, running, _STARTED)
        if again is None:
            return None
    return judge(reference, forked, again)


def _repeat(
    runner: NotebookRunner, reference: Reference, running: RunningTrial, origin: KernelOrigin
) -> Run | str | None:
    """One more run of the reference trial; why it failed; None where that shows nothing."""
    repeated = RunningTrial()
    temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # it may still be written
    with temporary as folder, running.passed_on(repeated):
        # A folder of its own: the repetition must not go on from the reference's checkpoints.
        spec = replace(reference.spec, checkpoint_dir=Path(folder) / "checkpoints")
        spec = replace(spec, artifact_dir=Path(folder) / "artifacts")
        file = runner.new_file(spec)
        result, outcome = runner.run(
            file,
            spec,
            repeated,
            limit_s=_LIMIT_FACTOR * reference.duration_s + _LIMIT_SLACK_S,
            write=_write_nothing,
            origin=origin,
        )
    if outcome.state is TrialState.COMPLETED:
        return run_of(file, result, outcome)
    has_no_kernel = result.is_orphan or result.ending is Ending.NOT_STARTED
    is_short = outcome.reason in (Reason.OUT_OF_MEMORY, Reason.OUT_OF_HOST_MEMORY)
    is_short |= os.strerror(errno.ENOSPC) in outcome.message  # in the folder of its own
    shows_nothing = has_no_kernel or is_short or outcome.state is TrialState.STOPPED
    return None if shows_nothing else outcome.message


def _write_nothing() -> None:
    """Keep the repetition's outputs in memory only."""
