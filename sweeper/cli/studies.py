"""Commands about a study that is there already."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from ..errors import SettingsError
from .codes import OK
from .console_output import ConsoleOutput

_RUN_ID = re.compile(r"\d{4,}")


def status(options: argparse.Namespace) -> int:
    """State of a study, from its storage."""
    from ..control.lookup import clean_up_after_crash, find_studies
    from ..control.status import look

    talk = ConsoleOutput(options)
    found = []
    for existing in find_studies(
        options.study, storage=options.storage, tracking_uri=options.tracking_uri
    ):
        clean_up_after_crash(existing)
        result, snapshot = look(existing)
        talk.status(result, snapshot, existing.owner)
        found.append({**result.to_json(), "running": existing.owner is not None})
    talk.json(found[0] if len(found) == 1 else found)
    return OK


def stop(options: argparse.Namespace) -> int:
    """Stop a running trial, or the sweep."""
    from ..control import steering
    from ..control.lookup import clean_up_after_crash, find_study

    talk = ConsoleOutput(options)
    targets = list(options.targets)
    wanted = None if not targets or _is_run_id(targets[0]) else targets.pop(0)
    existing = find_study(wanted, storage=options.storage, tracking_uri=options.tracking_uri)
    clean_up_after_crash(existing)
    steering.stop(existing, targets, running_finish=options.finish)
    if options.finish:
        said = f"{existing.study.name}: no new trials; running ones finish"
    elif targets:
        said = f"{existing.study.name}: stopped {', '.join(targets)}; retry runs them again"
    else:
        said = f"{existing.study.name}: the sweep was stopped; the same command goes on from here"
    talk.say(said)
    talk.json({"study": existing.study.name, "stopped": targets})
    return OK


def enqueue(options: argparse.Namespace) -> int:
    """Add a trial by hand."""
    from ..control import steering
    from ..control.lookup import clean_up_after_crash, find_study
    from ..settings.flags import read_value

    talk = ConsoleOutput(options)
    targets = list(options.targets)
    wanted = None if not targets or "=" in targets[0] else targets.pop(0)
    given = dict(read_value(text, flag="") for text in targets)
    existing = find_study(wanted, storage=options.storage, tracking_uri=options.tracking_uri)
    clean_up_after_crash(existing)
    run_id, params = steering.enqueue(existing, given, like=options.like)
    talk.queued(existing, run_id, params)
    talk.json({"study": existing.study.name, "run_id": run_id, "params": params})
    return OK


def retry(options: argparse.Namespace) -> int:
    """Queue failed trials again."""
    from ..control import steering
    from ..control.lookup import clean_up_after_crash, find_study

    talk = ConsoleOutput(options)
    targets = list(options.targets)
    wanted = None if not targets or _is_run_id(targets[0]) else targets.pop(0)
    if options.failed == bool(targets):
        raise SettingsError("say which trials to retry: either --failed or their run ids")
    existing = find_study(wanted, storage=options.storage, tracking_uri=options.tracking_uri)
    clean_up_after_crash(existing)
    queued = steering.retry(existing, targets)
    for before, now in queued:
        talk.say(f"{existing.study.name}: queued {now}, which tries {before} again")
    talk.say(talk.when(existing) if queued else "no trial has failed that was not retried since")
    talk.json({"study": existing.study.name, "queued": dict(queued)})
    return OK


def _is_run_id(target: str) -> bool:
    return _RUN_ID.fullmatch(target) is not None and not Path(target).exists()
