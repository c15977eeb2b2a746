"""Change a study from another terminal: stop its sweep, queue a trial, retry trials."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import SettingsError, StudyError
from ..study_folder.ownership import is_held
from ..study_folder.requests import ALL, NO_MORE, ask_to_stop
from ..trials import Params, TrialRecord, TrialState, display_path, run_id_of
from .lookup import ExistingStudy

if TYPE_CHECKING:
    from ..settings import Settings
    from ..study.study import Study

_POLL_INTERVAL_S = 0.2
#: Wait this many seconds longer than `limits.grace` for a trial to stop, because its kernel is
#: interrupted twice before it is killed (chosen, not measured).
_PATIENCE_S = 60.0


def stop(existing: ExistingStudy, run_ids: Sequence[str], *, running_finish: bool) -> ExistingStudy:
    """Ask a study's sweep to stop trials, or to end, and wait until it has done so.

    After the search, the sweep may run the best trials again on fresh seeds, in the study
    NAME-confirm. While it does so, `run_ids` are trials of NAME-confirm.

    Args:
        existing: The study.
        run_ids: Trials to stop for good. If empty, the whole sweep stops, and the next sweep of the
            study runs the interrupted trials again.
        running_finish: Whether to let the running trials finish and only begin no new ones. Then
            the call returns at once.

    Returns:
        The study on which the sweep works now: the given study or NAME-confirm.

    Raises:
        StudyError: No sweep of the study is alive, a trial does not run, the request cannot be
            written, or the sweep has not stopped in time.
    """
    search = existing
    existing, process = existing.at_work()
    if process is None:
        raise StudyError(
            f"the study {existing.study.name!r} in {display_path(existing.paths.folder)} is not "
            "being swept, so there is nothing to stop"
        )
    if not is_held(existing.paths):
        raise StudyError(
            f"the study {existing.study.name!r} is being swept by {process}, "
            f"from another folder than {display_path(existing.paths.folder)}; run this command on "
            "the machine and in the folder of that sweep"
        )
    for run_id in run_ids:
        if existing.record(run_id).state.has_ended:
            running = ", ".join(sorted(_running(existing))) or "none"
            raise StudyError(f"trial {run_id} is not running; running: {running}")
    for request in run_ids or [NO_MORE if running_finish else ALL]:
        try:
            ask_to_stop(existing.paths.requests, request)
        except OSError as error:
            raise StudyError(
                "the request to stop cannot be written to "
                f"{display_path(existing.paths.requests)} ({error.strerror or error}); run this "
                f"command as the user of the sweep, or send SIGTERM to {process}"
            ) from error
    if running_finish:
        return existing
    patience_s = _PATIENCE_S + search.settings.limits.grace
    end_s = time.monotonic() + patience_s
    while time.monotonic() < end_s:
        time.sleep(_POLL_INTERVAL_S)
        if run_ids and not _running(existing).intersection(run_ids):
            return existing
        if existing.swept_by() is None:
            return existing
    raise StudyError(
        f"the sweep of {existing.study.name!r} ({process}) was asked to stop, and still "
        f"runs after {patience_s:g} s; wait, or send SIGTERM to {process}"
    )


def enqueue(existing: ExistingStudy, stated: Params, *, like: str | None) -> tuple[str, Params]:
    """Queue a trial with given params, in addition to the trials that the study plans.

    Args:
        existing: The study.
        stated: Some or all params of the trial. The sampler chooses the others.
        like: Run id of a trial whose params are used if `stated` does not give them.

    Returns:
        The run id of the queued trial, and the params with which it is queued.

    Raises:
        StudyError: There is no trial `like`.
        SettingsError: Neither params nor `like` were given, or a param is fixed in the study or
            outside of its search space.
    """
    settings = existing.settings
    if like is None and not stated:
        raise SettingsError("no params to run; give NAME=VALUE, or --like RUN_ID")
    before = {} if like is None else existing.record(like).params
    params = _joined(settings, before, stated)
    return run_id_of(existing.opened().enqueue(params)), params


def retry(existing: ExistingStudy, run_ids: Sequence[str]) -> list[tuple[str, str]]:
    """Queue trials again as new trials, with the same params, seed and checkpoints.

    Args:
        existing: The study.
        run_ids: Trials that failed or were stopped by hand. If empty, all failed trials that were
            not retried since.

    Returns:
        Pairs of the old and the new run id.

    Raises:
        StudyError: There is no such trial, or it neither failed nor was stopped by hand, or a retry
            of it is already queued, running or interrupted.
    """
    study = existing.opened()
    chosen = [existing.record(run_id) for run_id in dict.fromkeys(run_ids)]
    for record in chosen:
        if record.state is TrialState.STOPPED and not record.is_final:
            raise StudyError(
                f"trial {record.run_id} was interrupted with its sweep; the same command runs it "
                "again, so there is nothing to retry"
            )
        if not record.is_final or record.state in (TrialState.COMPLETED, TrialState.PRUNED):
            raise StudyError(
                f"trial {record.run_id} is {record.state}, and only failed or stopped trials are "
                f"retried; to run its params again: enqueue --like {record.run_id}"
            )
        if record.first_number in study.open_retries():
            raise StudyError(
                f"a retry of trial {record.run_id} waits or runs already; wait for its end"
            )
    # Retry each trial only once, because two retries would use the same checkpoints.
    chosen = [*{record.first_number: record for record in chosen}.values()]
    if not run_ids:
        chosen = _failed(study)
    queued: list[tuple[str, str]] = []
    for record in chosen:
        number = study.enqueue(record.params, again=record)
        queued.append((record.run_id, run_id_of(number)))
    return queued


def _failed(study: Study) -> list[TrialRecord]:
    """Return the failed trials that were not retried since.

    If a trial and its retries have failed, only the last of them is returned.
    """
    last: dict[int, TrialRecord] = {}
    for record in study.records():
        if record.state is TrialState.FAILED:
            last[record.first_number] = record
    done = study.tried_again()
    return [record for first, record in sorted(last.items()) if first not in done]


def _joined(settings: Settings, before: Params, stated: Params) -> dict[str, Any]:
    """Return the params of `before`, overridden by those of `stated`.

    Some params exist only with certain values of another param (a branch of the search space). A
    param of `before` is left out if it does not exist with the new values.

    Raises:
        SettingsError: A param is fixed in the study, or outside of its search space.
    """
    space = settings.search_space
    for name in stated:
        if name in settings.fixed:
            raise SettingsError(
                f"{name}={stated[name]}: {name} is fixed to {settings.fixed[name]!r} in this "
                "study; for another value, begin another study with --set, --study and -o"
            )
    both: Mapping[str, Any] = {**before, **stated}
    params: dict[str, Any] = {}
    for name in space:
        if name in both and (name in stated or space.exists(name, params)):
            params[name] = both[name]
    settings.check_params({**stated, **params})
    return space.completed(params)


def _running(existing: ExistingStudy) -> set[str]:
    """Return the run ids of the running trials."""
    records = existing.study.records()
    return {record.run_id for record in records if not record.state.has_ended}
