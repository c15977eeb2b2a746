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
from ..notebooks.printed_numbers import read_numbers
from ..notebooks.reading import code_cells
from ..notebooks.scores import Scraped, scrape
from ..settings import Settings
from ..settings.patterns import LIMIT_S, TRIAL_LIMIT_S, compile_pattern
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
    file.note_ranks(scraped.ranks)
    found: list[Disagreement] = []
    if isinstance(result.ending, Finished):
        # Compare the sources of a score only in a notebook that finished. One that ended early may
        # have changed a variable without having printed its new value.
        for name, given in scraped.given.items():
            found += disagreements(name, given)
        outcome = _judge_scores(file, scraped, settings, unread=result.answer.unread)
    else:
        was_short = was_short or _lacked_shared_memory(file)
        outcome = _ended_early(result, running, settings.limits.trial, was_short=was_short)
        if outcome.reason is Reason.CELL_ERROR and _had_scores(file, scraped, settings):
            names = " and ".join(settings.objective)
            message = (
                f"{outcome.message}; {names} had a value before this cell: tag the cell `skip` to "
                "leave it out of trials"
            )
            outcome = replace(outcome, message=message)
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
    failing = None
    for cell in code_cells(file.node):
        if any(output.output_type == "error" for output in cell.outputs):
            failing = cell
    if failing is None or any(name not in scraped.scores for name in settings.objective):
        return False
    printed = "".join(output.get("text", "") for output in failing.outputs)
    for name in settings.objective:
        if re.search(rf"\b{re.escape(name)}\b", failing.source):
            return False
        source = settings.scores.get(name)
        if source is not None and source.pattern and _is_found(source.pattern, printed):
            return False
    return True


def _is_found(pattern: str, text: str) -> bool:
    try:
        first = next(read_numbers(compile_pattern(pattern), text), None)
    except TimeoutError:
        return True
    return first is not None


def failed(reason: Reason, message: str) -> TrialOutcome:
    """Return the outcome of a failed trial, with its reason in words."""
    return TrialOutcome(state=TrialState.FAILED, reason=reason, message=message)


def fault_of(result: KernelResult) -> Fault | None:
    """Return the known fault, such as a lack of GPU memory, that has ended a kernel or a cell.

    It is named in the error of the cell, or in the last text of the kernel's process on stderr.

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
    """Return the outcome of a trial that an error of the sweeper has ended, and log the error.

    The outcome is a failure. If the machine may be the cause, the trial counts as stopped instead,
    so that it runs again.
    """
    _log.exception("trial %s", spec.run_id)
    message = f"{type(error).__name__}: {error}"
    # The machine may be the cause, for example if the sweep lacks memory: run the trial again.
    if is_of_the_machine(error):
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
    """Return a failure if a trial has found a full disk twice in a row, else the given outcome.

    A full disk stops the sweep, and the next sweep runs the trial again. If the trial itself fills
    the disk, because of its params, it would stop every sweep.
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
    file: ExecutedNotebook, scraped: Scraped, settings: Settings, *, unread: Mapping[str, str]
) -> TrialOutcome:
    """Return the outcome of a trial whose notebook finished.

    Args:
        file: Executed notebook of the trial.
        scraped: Scores of the notebook.
        settings: Settings of the sweep.
        unread: Variables and expressions that could not be read after the last cell, with the
            error.
    """
    for name in settings.objective:
        why = _why_unknown(name, scraped, settings)
        if why is not None:
            return failed(Reason.NO_SCORE, why)
        if name not in scraped.scores:
            if name in settings.scores:
                why = _why_source_failed(file, name, settings.scores[name], unread)
            else:
                why = _why_missing(file, name, scraped)
            return failed(Reason.NO_SCORE, why)
        if not math.isfinite(scraped.scores[name]):
            return failed(Reason.NOT_FINITE, f"{name} is {scraped.scores[name]}")
    return TrialOutcome(state=TrialState.COMPLETED)


def _why_unknown(name: str, scraped: Scraped, settings: Settings) -> str | None:
    """Return why the last printed value of a score is unknown. None if there is no such reason.

    It is unknown if the score's pattern took too long, or matched a text that is not a number.
    """
    if name in scraped.too_slow:
        return (
            f"scores.{name}.pattern: {settings.scores[name].pattern!r} took longer than "
            f"{LIMIT_S:g} s on one printed line, or {TRIAL_LIMIT_S:g} s on all slow lines; "
            f"write it without nested repetitions, as in '{name}=([0-9.eE+-]+)'"
        )
    if name in scraped.unread:
        return (
            f"the pattern of {name} matched {scraped.unread[name]!r} in the printed text, which is "
            "not a number; print the plain number there, as {value:.6g} does in an f-string"
        )
    return None


def _why_source_failed(
    file: ExecutedNotebook, name: str, source: ScoreSource, unread: Mapping[str, str]
) -> str:
    """Return why the source that the parameters file names gave no score, and a remedy."""
    kind, given = next((key, value) for key, value in source if value is not None)
    error = f" ({unread[given]})" if given in unread else ""
    remedy = f"correct it, or leave it out to use a variable named {name}"
    if kind == "pattern" and "widgets" in file.node.metadata:
        remedy = (
            "it does not see text in widgets, such as the bars of tqdm.notebook: use "
            f"`from tqdm import tqdm`, or print the score; or {remedy}"
        )
    return (
        f"scores.{name}: the {kind} {given!r} gave no number at the end of the notebook{error}; "
        f"{remedy}"
    )


def _why_missing(file: ExecutedNotebook, name: str, scraped: Scraped) -> str:
    """Return a message that no source gave the score, with a remedy."""
    found = ", ".join(scraped.scores) or "no score at all"
    language = file.node.metadata.get("language_info", {}).get("name", "python")
    if language == "python":
        keys = " or ".join(ScoreSource.model_fields)
        remedy = f"report it, name a {keys} under scores, or assign a number to {name}"
    else:
        remedy = "print it, and name a pattern under scores"
    return f"the notebook completed without a value of {name} (found: {found}); {remedy}"


def _lacked_shared_memory(file: ExecutedNotebook) -> bool:
    """Return whether a traceback of torch says that a data loader ran out of shared memory.

    torch says so in an earlier exception than the one that ends the cell.
    """
    for cell in file.node.cells:
        for output in cell.get("outputs", ()):
            if "out of shared memory" in "".join(output.get("traceback", ())):
                return True
    return False


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
    if fault is Fault.DISK:  # Every other trial would find the disk full, too: stop the sweep.
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
