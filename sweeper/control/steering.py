"""What can be asked of a study from another terminal: to stop, and to try something."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import SettingsError, StudyError
from ..settings import Settings
from ..study_folder.requests import ALL, NO_MORE, ask_to_stop
from ..trials import Params, TrialRecord, TrialState, display_path, run_id_of
from .lookup import ExistingStudy

_POLL_INTERVAL_S = 0.2
#: How long a trial may take to stop: two interrupts with their time of grace, and the kill.
_PATIENCE_S = 60.0


def stop(existing: ExistingStudy, run_ids: Sequence[str], *, running_finish: bool) -> None:
    """Ask the sweep of a study to stop trials, or to end; returns when that is done.

    Args:
        run_ids: trials to stop for good; none for the whole sweep, whose trials are run again by
            the next.
        running_finish: start no more trials, and let those that run come to their end.

    Raises:
        StudyError: nobody sweeps the study, or a trial does not run.
    """
    if not existing.is_swept():
        raise StudyError(
            f"the study {existing.study.name!r} in {display_path(existing.paths.folder)} is not "
            "being "
            "swept, so there is nothing to stop"
        )
    for run_id in run_ids:
        if _state(existing, run_id) is not TrialState.RUNNING:
            raise StudyError(f"trial {run_id} does not run; {_running(existing)}")
    for what in run_ids or [NO_MORE if running_finish else ALL]:
        ask_to_stop(existing.paths.requests, what)
    if running_finish:
        return
    for _ in _until(_PATIENCE_S):
        if run_ids and all(_state(existing, r) is not TrialState.RUNNING for r in run_ids):
            return
        if not existing.is_swept():
            return
    raise StudyError(
        f"the sweep of {existing.study.name!r} ({existing.owner}) was asked to stop, and has not "
        f"within {_PATIENCE_S:g} s"
    )


def enqueue(existing: ExistingStudy, given: Params, *, like: str | None) -> tuple[str, Params]:
    """Queue a trial by hand, beside those that the study plans.

    Args:
        given: some or all of its params; the sampler chooses the others.
        like: the run id of a trial whose params it has where `given` says nothing.

    Returns:
        its run id, and the params that are settled.

    Raises:
        StudyError: there is no trial `like`.
        SettingsError: the params are not of the study's space.
    """
    settings = _settings_of(existing)
    if like is None and not given:
        raise SettingsError("nothing to try; give NAME=VALUE, or --like RUN_ID")
    before = {} if like is None else _record(existing, like).params
    params = _joined(settings, before, given)
    return run_id_of(existing.study.enqueue(params)), params


def retry(existing: ExistingStudy, run_ids: Sequence[str]) -> list[tuple[str, str]]:
    """Queue trials again, with the same params, seed and checkpoints, as trials of their own.

    Args:
        run_ids: of failed trials, or such that were stopped by hand; none for all failed trials
            that no later one has tried again.

    Returns:
        pairs of the old and the new run id.

    Raises:
        StudyError: there is no such trial, or it neither failed nor was stopped.
    """
    records = existing.study.records()
    chosen = [_record(existing, run_id) for run_id in run_ids]
    for record in chosen:
        if not record.is_final or record.state in (TrialState.COMPLETED, TrialState.PRUNED):
            raise StudyError(
                f"trial {record.run_id} is {record.state}, and only failed or stopped trials are "
                f"retried; to try its params again: enqueue --like {record.run_id}"
            )
    if not run_ids:
        failed = (record for record in records if record.state is TrialState.FAILED)
        # Of a trial that failed again and again, only the last.
        last = {r.first_number: r for r in failed}
        done = existing.study.tried_again()
        chosen = [record for first, record in sorted(last.items()) if first not in done]
    study = existing.study
    return [(r.run_id, run_id_of(study.enqueue(r.params, again=r))) for r in chosen]


def _joined(settings: Settings, before: Params, given: Params) -> dict[str, Any]:
    """`given` over `before`, without what `given` has put out of its branch."""
    space = settings.search_space
    for name in given:
        if name in settings.fixed:
            raise SettingsError(
                f"{name}={given[name]}: {name} is fixed to {settings.fixed[name]!r} in this study; "
                "give another --study and --set for a study of its own"
            )
    settings.check_params(given)
    both: Mapping[str, Any] = {**before, **given}
    params: dict[str, Any] = {}
    for name in space:
        if name in both and (name in given or space.exists(name, params)):
            params[name] = both[name]
    settings.check_params(params)
    return params


def _settings_of(existing: ExistingStudy) -> Settings:
    told = existing.study.facts.get("settings")
    if told is None:
        raise StudyError(
            f"the study {existing.study.name!r} has not written down its settings; sweep it once"
        )
    return Settings.from_mapping(told)


def _record(existing: ExistingStudy, run_id: str) -> TrialRecord:
    records = {record.run_id: record for record in existing.study.records()}
    if run_id not in records:
        known = f"it has {min(records)} to {max(records)}" if records else "it has none yet"
        raise StudyError(f"the study {existing.study.name!r} has no trial {run_id}; {known}")
    return records[run_id]


def _state(existing: ExistingStudy, run_id: str) -> TrialState:
    return _record(existing, run_id).state


def _running(existing: ExistingStudy) -> str:
    records = existing.study.records()
    running = [record.run_id for record in records if record.state is TrialState.RUNNING]
    return f"running: {', '.join(running) or 'none'}"


def _until(limit_s: float) -> Iterator[None]:
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        time.sleep(_POLL_INTERVAL_S)
        yield
