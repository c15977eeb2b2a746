"""Decide the outcome of a trial from the end of its execution and the scores in its notebook."""

from __future__ import annotations

import logging
import math
import re
import signal
from collections.abc import Mapping
from dataclasses import replace

from ..kernels import CellFailed, Finished, KernelDied, KernelResult, NotStarted
from ..machine.faults import Fault, fault_in
from ..notebook_api.messages import StopReason
from ..notebooks.executed import ExecutedNotebook
from ..notebooks.metadata import BLANK, read_metadata
from ..notebooks.reading import code_cells
from ..notebooks.scores import Scraped, scrape
from ..settings import Settings
from ..settings.patterns import LIMIT_S, TRIAL_LIMIT_S, compile_pattern
from ..settings.printed_numbers import read_numbers
from ..settings.sections import ScoreSource
from ..study_folder.patience import is_of_the_machine
from ..trials import (
    Control,
    Disagreement,
    Reason,
    RunningTrial,
    TrialOutcome,
    TrialSpec,
    TrialState,
)
from .disagreements import disagreements

_log = logging.getLogger(__name__)

#: Reason of a failed trial for each fault that means a lack of memory. Such a trial runs once more,
#: alone.
_OUT_OF: Mapping[Fault | None, Reason] = {
    Fault.GPU_MEMORY: Reason.OUT_OF_MEMORY,
    Fault.MAYBE_GPU_MEMORY: Reason.OUT_OF_MEMORY,
    Fault.HOST_MEMORY: Reason.OUT_OF_HOST_MEMORY,
}


def judge(
    file: ExecutedNotebook,
    result: KernelResult,
    running: RunningTrial,
    settings: Settings,
    *,
    was_short: bool = False,
) -> TrialOutcome:
    """Return the outcome of a trial. It completes only with a finite score for each objective.

    Args:
        file: Executed notebook of the trial.
        result: Result of the kernel.
        running: The trial, which knows whether it was stopped.
        settings: Settings of the sweep.
        was_short: Whether the system has killed a process for lack of memory while the trial ran.
    """
    scraped = scrape(
        file.node.cells, file.metadata, sources=settings.scores, objectives=settings.objective
    )
    found: list[Disagreement] = []
    if isinstance(result.ending, Finished):
        # Compare the sources of a score only in a notebook that finished. One that ended early may
        # have changed a variable without having printed its new value.
        for name, given in scraped.given.items():
            found += disagreements(name, given)
        language = file.node.metadata.get("language_info", {}).get("name", "python")
        unread = result.answer.unread
        outcome = _judge_scores(
            scraped,
            settings,
            unread,
            is_python=language == "python",
            has_widgets="widgets" in file.node.metadata,
        )
    else:
        was_short = was_short or _lacked_shared_memory(file)
        outcome = _ended_early(result, running, settings.limits.trial, was_short=was_short)
        if outcome.reason is Reason.CELL_ERROR and _had_scores(file, scraped, settings):
            names = " and ".join(settings.objective)
            hint = (
                f"{names} had a value before this cell: tag the cell `skip` to leave it out of "
                "trials"
            )
            outcome = replace(outcome, message=f"{outcome.message}; {hint}")
    file.note_ranks(scraped.ranks)
    return replace(
        outcome,
        scores=scraped.scores,
        series=scraped.series,
        disagreements=tuple(found),
    )


def _had_scores(file: ExecutedNotebook, scraped: Scraped, settings: Settings) -> bool:
    """Return whether each objective had a value before the failing cell began.

    If so, trials do not need the failing cell.
    """
    failing = [
        cell
        for cell in code_cells(file.node)
        if any(output.output_type == "error" for output in cell.outputs)
    ]
    if not failing or any(name not in scraped.scores for name in settings.objective):
        return False
    source = failing[-1].source
    printed = "".join(output.get("text", "") for output in failing[-1].outputs)
    patterns = [
        named.pattern
        for name in settings.objective
        if (named := settings.scores.get(name)) is not None and named.pattern
    ]
    is_given_here = any(re.search(rf"\b{re.escape(name)}\b", source) for name in settings.objective)
    is_printed_here = any(_is_found(pattern, printed) for pattern in patterns)
    return not is_given_here and not is_printed_here


def _is_found(pattern: str, text: str) -> bool:
    try:
        return next(read_numbers(compile_pattern(pattern), text), None) is not None
    except TimeoutError:
        return True


def failed(reason: Reason, message: str) -> TrialOutcome:
    """Return the outcome of a failed trial, with its reason in words."""
    return TrialOutcome(state=TrialState.FAILED, reason=reason, message=message)


def fault_of(result: KernelResult) -> Fault | None:
    """Return the fault that is named in the error of a cell, or in the last text of a kernel.

    Returns:
        None if no known fault is named.
    """
    match result.ending:
        case CellFailed(error=error):
            return fault_in(error)
        case KernelDied() | NotStarted():
            return fault_in(result.stderr_tail)
    return None


def internal_failure(spec: TrialSpec, error: Exception) -> TrialOutcome:
    """Return the outcome of a trial that a bug of the sweeper has ended, and log the bug."""
    _log.exception("trial %s", spec.run_id)
    message = f"{type(error).__name__}: {error}"
    if is_of_the_machine(error):  # The sweep lacks memory, for example: run the trial again.
        return TrialOutcome(state=TrialState.STOPPED, reason=Reason.INTERNAL, message=message)
    return failed(Reason.INTERNAL, message)


def lost_while_frozen(outcome: TrialOutcome) -> TrialOutcome:
    """Return the outcome of a trial whose kernel died while the trial was frozen (paused).

    Such a trial ends as stopped, so that it runs again, unless it ran out of memory.
    """
    if outcome.state is not TrialState.FAILED or outcome.reason in _OUT_OF.values():
        return outcome
    return replace(
        outcome,
        state=TrialState.STOPPED,
        reason=Reason.KERNEL_DIED,
        message=f"{outcome.message}, while the trial was frozen",
    )


def full_again(outcome: TrialOutcome, spec: TrialSpec) -> TrialOutcome:
    """Return the outcome of a trial, as a failure if it has found a full disk for the second time.

    A full disk stops the sweep, whose next start runs the trial again. If the trial itself fills
    the disk, because of its params, the sweep would never get beyond it.
    """
    if outcome.reason is not Reason.FILE or spec.continues is None:
        return outcome
    if (read_metadata(spec.continues) or BLANK).reason is not Reason.FILE:
        return outcome
    return failed(
        Reason.FILE,
        f"{outcome.message}; the previous attempt of this trial ended in the same way, so its "
        "params may fill the disk; if not, free space, and run the trial again with `retry`",
    )


def _judge_scores(
    scraped: Scraped,
    settings: Settings,
    unread: Mapping[str, str],
    *,
    is_python: bool,
    has_widgets: bool,
) -> TrialOutcome:
    scores = scraped.scores
    for name in settings.objective:
        if name in scraped.too_slow:
            return failed(
                Reason.NO_SCORE,
                f"scores.{name}.pattern: {settings.scores[name].pattern!r} took longer than "
                f"{LIMIT_S:g} s on one printed line, or {TRIAL_LIMIT_S:g} s on all slow lines; "
                f"write it without nested repetitions, as in '{name}=([0-9.eE+-]+)'",
            )
        if name in scraped.unread:
            text = scraped.unread[name]
            return failed(
                Reason.NO_SCORE,
                f"the pattern of {name} matched {text!r} in the printed text, which is not a "
                "number; print the plain number there, as {value:.6g} does in an f-string",
            )
        if name not in scores and name in settings.scores:
            source = settings.scores[name]
            kind = next(key for key in ScoreSource.model_fields if getattr(source, key) is not None)
            given = getattr(source, kind)
            error = f" ({unread[given]})" if given in unread else ""
            remedy = f"correct it, or leave it out to use a variable named {name}"
            if kind == "pattern" and has_widgets:
                remedy = (
                    "it does not see text in widgets, such as the bars of tqdm.notebook: use "
                    f"`from tqdm import tqdm`, or print the score; or {remedy}"
                )
            return failed(
                Reason.NO_SCORE,
                f"scores.{name}: the {kind} {given!r} gave no number at the end of the notebook"
                f"{error}; {remedy}",
            )
        if name not in scores:
            found = ", ".join(scores) or "no score at all"
            remedy = "print it, and name a pattern under scores"
            if is_python:
                keys = " or ".join(ScoreSource.model_fields)
                remedy = f"report it, name a {keys} under scores, or assign a number to {name}"
            return failed(
                Reason.NO_SCORE,
                f"the notebook completed without a value of {name} (found: {found}); {remedy}",
            )
        if not math.isfinite(scores[name]):
            return failed(Reason.NOT_FINITE, f"{name} is {scores[name]}")
    return TrialOutcome(state=TrialState.COMPLETED)


def _lacked_shared_memory(file: ExecutedNotebook) -> bool:
    """Return whether a traceback of torch says that a data loader ran out of shared memory.

    torch says so in an earlier exception than the one that ends the cell.
    """
    outputs = (output for cell in file.node.cells for output in cell.get("outputs", ()))
    return any("out of shared memory" in "".join(output.get("traceback", ())) for output in outputs)


def _ended_early(
    result: KernelResult, running: RunningTrial, limit_s: float | None, *, was_short: bool
) -> TrialOutcome:
    said = f"; it said: {result.stderr_tail}" if result.stderr_tail else ""
    match result.ending:
        case NotStarted(why):
            # No cell has run, so the params cannot be the cause: stop the trial, to run it again.
            message = f"the kernel did not start: {why}{said}"
            state, reason = TrialState.STOPPED, Reason.KERNEL_START
            return TrialOutcome(state=state, reason=reason, message=message)
        case KernelDied():
            return _died(result, said, was_short=was_short)
        case CellFailed(error=error):
            return _cell_failed(error, was_short=was_short)
    return _stopped(running.control, limit_s)


def _stopped(control: Control, limit_s: float | None) -> TrialOutcome:
    match control.stop_reason:
        case StopReason.TIME_LIMIT:
            limit = "its limit" if limit_s is None else f"limits.trial ({limit_s:g} s)"
            return failed(Reason.TIME_LIMIT, f"ran longer than {limit}")
        case StopReason.PRUNED:
            state, reason, message = TrialState.PRUNED, Reason.PRUNED, control.message
        case StopReason.BY_HAND:
            state, reason, message = TrialState.STOPPED, Reason.BY_HAND, control.message
        case _:
            state, reason = TrialState.STOPPED, Reason.INTERRUPTED
            message = "the sweep was stopped"
    return TrialOutcome(state=state, reason=reason, message=message)


def _died(result: KernelResult, said: str, *, was_short: bool) -> TrialOutcome:
    if was_short and result.exit_code == -signal.SIGKILL and not result.is_orphan:
        return failed(
            Reason.OUT_OF_HOST_MEMORY,
            "the machine or its container ran out of memory, and the system killed the "
            f"kernel{said}",
        )
    # A library that aborts its process prints the reason first. So look for a fault in the printed
    # text.
    fault = fault_of(result) if result.exit_code == -signal.SIGABRT else None
    message = f"the kernel died: {_death(result.exit_code)}{said}"
    return failed(_OUT_OF.get(fault, Reason.KERNEL_DIED), message)


def _cell_failed(error: str, *, was_short: bool) -> TrialOutcome:
    fault = fault_in(error)
    if fault in _OUT_OF:
        return failed(_OUT_OF[fault], error)
    if fault is Fault.DISK:  # Every other trial would find it full, too, so the sweep stops.
        message = f"a disk or /dev/shm is full, or a file cannot be written: {error}"
        return TrialOutcome(state=TrialState.STOPPED, reason=Reason.FILE, message=message)
    if was_short and fault is Fault.LOST_PROCESS:
        return failed(
            Reason.OUT_OF_HOST_MEMORY,
            "the machine or its container ran out of memory, and the system killed a process of "
            f"the notebook: {error}",
        )
    return failed(Reason.CELL_ERROR, error)


def _death(exit_code: int | None) -> str:
    if exit_code is None:
        return "exit code unknown"
    if exit_code == -9:
        return "killed by signal 9, often because memory ran out"
    return f"killed by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
