"""Run the reference trial again in a forked kernel, before other trials may have one; wait for it.

The kernel pool's policy decides which experiment is due and what its evidence means.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..kernels import Ending, Evidence, Experiment, KernelResult, gather
from ..notebooks import ExecutedNotebook
from ..notebooks.reading import cell_tags
from ..notebooks.shared_cells import SHARED_TAG
from ..trials import Reason, RunningTrial, TrialOutcome, TrialState
from .notebook_runner import NotebookRunner

_log = logging.getLogger(__name__)

#: How much longer than before the reference trial may take when it is run again.
_LIMIT_FACTOR, _LIMIT_SLACK_S = 3.0, 60.0
#: How often a slot that waits looks whether kernels can be forked.
_LOOK_S = 0.02
_IMPORTING = re.compile(r"^(import|from)\s", re.MULTILINE)


def wait_for_fork(runner: NotebookRunner, running: RunningTrial) -> None:
    """Prove forking where that is due; wait where it is being made ready and a wait is sooner.

    Args:
        running: the trial that the caller runs next; a stop of it ends the wait.
    """
    began_s = time.monotonic()
    trials_left = running.trials_left + 1 + runner.places.waiting
    _prove_forking(runner, running, trials_left)
    while running.stop_reason is None:
        waited_s = time.monotonic() - began_s
        if not runner.pool.is_worth_waiting(trials_left, waited_s=waited_s):
            break
        if waited_s < _LOOK_S:  # the first look
            _log.info("the next trial waits for a forked kernel, as trials are mostly imports")
        time.sleep(_LOOK_S)
        _prove_forking(runner, running, trials_left)


def _prove_forking(runner: NotebookRunner, running: RunningTrial, trials_left: int) -> None:
    """Run the reference trial again, as often as the policy asks for it now."""
    pool = runner.pool
    while experiment := pool.claim_experiment(trials_left):
        evidence: Evidence | str | None = None
        started_s = time.monotonic()
        try:
            evidence = _repeat(runner, experiment, running)
        except Exception as error:  # noqa: BLE001  what only saves time must not fail a trial
            _log.exception("proof of forked kernels")
            evidence = f"{type(error).__name__}: {error}"
        finally:
            pool.settle(experiment, evidence)
        run_id, took_s = experiment.reference.spec.run_id, time.monotonic() - started_s
        _log.info("proof: trial %s in a %s kernel, %.2f s", run_id, experiment.way, took_s)
        if evidence is None:
            return


def evidence_of(file: ExecutedNotebook, result: KernelResult, outcome: TrialOutcome) -> Evidence:
    """What two executions of a trial are compared by."""
    return gather(
        file.node,
        scores=outcome.scores,
        series=outcome.series,
        at_start=result.states_at_start,
        at_end=result.states_at_end,
        seeded=result.seeded,
    )


def leading_s(node: Any) -> float:
    """How long cells ran that forked kernels do not run, or whose libraries they have, in seconds.

    Args:
        node: an executed notebook.
    """
    return sum(
        cell.metadata.get("papermill", {}).get("duration") or 0.0
        for cell in node.cells
        if cell.cell_type == "code"
        and (SHARED_TAG in cell_tags(cell) or _IMPORTING.search(cell.source))
    )


def _repeat(
    runner: NotebookRunner, experiment: Experiment, running: RunningTrial
) -> Evidence | str | None:
    """The evidence of the experiment; why it failed; None where it was stopped."""
    reference, repeated = experiment.reference, RunningTrial()
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
            origin=experiment.origin,
        )
    if outcome.state is TrialState.COMPLETED:
        return evidence_of(file, result, outcome)
    has_no_kernel = result.is_orphan or result.ending is Ending.NOT_STARTED
    is_short = outcome.reason in (Reason.OUT_OF_MEMORY, Reason.OUT_OF_HOST_MEMORY)
    is_short |= os.strerror(errno.ENOSPC) in outcome.message  # in the folder of its own
    shows_nothing = has_no_kernel or is_short or outcome.state is TrialState.STOPPED
    return None if shows_nothing else outcome.message


def _write_nothing() -> None:
    """Keep the repetition's outputs in memory only."""
