"""Commands for a study from another terminal: stop it, queue a trial, retry trials."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import SettingsError, StudyError
from ..study_folder.ownership import is_held
from ..study_folder.requests import ALL, NO_MORE, ask_to_stop
from ..trials import Params, TrialState, display_path, run_id_of
from .lookup import ExistingStudy

if TYPE_CHECKING:
    from ..settings import Settings

_POLL_INTERVAL_S = 0.2
#: How long a trial may take to stop: two interrupts with their grace time, and the kill.
_PATIENCE_S = 60.0


def stop(existing: ExistingStudy, run_ids: Sequence[str], *, running_finish: bool) -> None:
    """Ask the sweep of a study to stop trials or to end, and wait until it has done so.

    A sweep that runs the study's best trials again is still the study's, and ends, too.

    Args:
        run_ids: trials to stop for good; none stops the whole sweep, and the next sweep runs its
            interrupted trials again.
        running_finish: start no more trials, but let the running ones finish; does not wait.

    Raises:
        StudyError: no sweep of the study is alive, a trial does not run, the request cannot be
            left, or the sweep has not stopped within a minute.
    """
    existing = existing.at_work()
    process = existing.swept_by()
    if process is None:
        raise StudyError(
            f"the study {existing.study.name!r} in {display_path(existing.paths.folder)} is not "
            "being swept, so there is nothing to stop"
        )
    if not is_held(existing.paths):
        raise StudyError(
            f"the study {existing.study.name!r} is being swept by {process}, which does not "
            f"use {display_path(existing.paths.folder)} here; call this on that machine"
        )
    for run_id in run_ids:
        if existing.record(run_id).state.has_ended:
            running = ", ".join(sorted(_running(existing))) or "none"
            raise StudyError(f"trial {run_id} does not run; running: {running}")
    for request in run_ids or [NO_MORE if running_finish else ALL]:
        try:
            ask_to_stop(existing.paths.requests, request)
        except OSError as error:
            raise StudyError(
                f"a request to stop is a file in {display_path(existing.paths.requests)}, which "
                f"cannot be written: {error.strerror or error}; call this as the user of the sweep "
                f"({process}), or send SIGTERM to it"
            ) from error
    if running_finish:
        return
    end_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end_s:
        time.sleep(_POLL_INTERVAL_S)
        if run_ids and not _running(existing).intersection(run_ids):
            return
        if existing.swept_by() is None:
            return
    raise StudyError(
        f"the sweep of {existing.study.name!r} ({process}) was asked to stop, and has not "
        f"within {_PATIENCE_S:g} s"
    )


def enqueue(existing: ExistingStudy, stated: Params, *, like: str | None) -> tuple[str, Params]:
    """Queue a trial by hand, in addition to those that the study plans.

    Args:
        stated: some or all of the trial's params; the sampler chooses the others.
        like: the run id of a trial that has the params which `stated` leaves open.

    Returns:
        the run id of the queued trial, and those of its params that are settled.

    Raises:
        StudyError: there is no trial `like`.
        SettingsError: the params are not of the study's space.
    """
    settings = existing.settings
    if like is None and not stated:
        raise SettingsError("nothing to try; give NAME=VALUE, or --like RUN_ID")
    before = {} if like is None else existing.record(like).params
    params = _joined(settings, before, stated)
    return run_id_of(existing.opened().enqueue(params)), params


def retry(existing: ExistingStudy, run_ids: Sequence[str]) -> list[tuple[str, str]]:
    """Queue trials again, with the same params, seed and checkpoints, as trials of their own.

    Args:
        run_ids: trials that failed or were stopped by hand; none for all failed trials that were
            not retried since.

    Returns:
        pairs of the old and the new run id.

    Raises:
        StudyError: there is no such trial, or it neither failed nor was stopped.
    """
    study = existing.opened()
    chosen = [existing.record(run_id) for run_id in dict.fromkeys(run_ids)]
    for record in chosen:
        if not record.is_final or record.state in (TrialState.COMPLETED, TrialState.PRUNED):
            raise StudyError(
                f"trial {record.run_id} is {record.state}, and only failed or stopped trials are "
                f"retried; to try its params again: enqueue --like {record.run_id}"
            )
    if not run_ids:
        failed = (record for record in study.records() if record.state is TrialState.FAILED)
        # Of a trial that failed several times, only the last try is tried again.
        last = {r.first_number: r for r in failed}
        done = study.tried_again()
        chosen = [record for first, record in sorted(last.items()) if first not in done]
    return [(r.run_id, run_id_of(study.enqueue(r.params, again=r))) for r in chosen]


def _joined(settings: Settings, before: Params, stated: Params) -> dict[str, Any]:
    """`stated` over `before`, without those of `before` that are outside their branch now."""
    space = settings.search_space
    for name in stated:
        if name in settings.fixed:
            raise SettingsError(
                f"{name}={stated[name]}: {name} is fixed to {settings.fixed[name]!r} in this "
                "study; give --set, another --study and -o for a study of its own"
            )
    both: Mapping[str, Any] = {**before, **stated}
    params: dict[str, Any] = {}
    for name in space:
        if name in both and (name in stated or space.exists(name, params)):
            params[name] = both[name]
    settings.check_params({**stated, **params})
    return params


def _running(existing: ExistingStudy) -> set[str]:
    """The run ids of the trials that run."""
    records = existing.study.records()
    return {record.run_id for record in records if not record.state.has_ended}
