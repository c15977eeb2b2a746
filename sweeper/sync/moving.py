"""Correct the paths that a study has stored, after its outputs were moved or copied by hand."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..settings.addresses import Address
from ..study.files import is_storage, move_records
from ..study.moves import Move
from ..study_folder.ownership import while_unswept
from ..tracking.files import move_artifacts
from ..trials import StudyPaths, display_path

_log = logging.getLogger(__name__)


def follow_unswept(move: Move) -> None:
    """Correct the paths in a study that was moved, unless it is being swept."""
    with while_unswept(move.now) as is_unswept:
        if is_unswept:
            follow(move)


def follow(move: Move) -> None:
    """Correct the paths in a study that was moved and that no other process sweeps.

    If this process is killed, the next call corrects the paths again. If the files cannot be
    written, a warning is logged.
    """
    before, now = move.before, move.now
    changes = _changes(move)
    try:
        if now.tracking.is_file():
            move_artifacts(
                now.tracking, before=before.artifacts.as_uri(), now=now.artifacts.as_uri()
            )
        # A database that is missing has no records to correct, and `rebuild` makes a new one.
        if is_storage(now.storage):
            _move_records(now, changes)
        replace(move.facts, **changes).write(now.facts, study=now.study)
    except (OSError, sqlite3.Error) as error:
        _log.warning(
            "%s: the outputs were moved from %s, and the new paths cannot be stored: %s",
            display_path(now.folder),
            before.root,
            error,
        )


def _move_records(now: StudyPaths, changes: Mapping[str, Any]) -> None:
    try:
        move_records(now.storage, now, **changes)
    except sqlite3.OperationalError:
        raise  # The disk is full or read-only, and the database is intact.
    except (sqlite3.DatabaseError, ValueError) as error:
        _log.info("%s is damaged, and can be rebuilt: %s", display_path(now.storage), error)


def _changes(move: Move) -> dict[str, Any]:
    """Return new values for the fields of `StudyFacts` that contain paths."""
    facts, before, now = move.facts, move.before, move.now
    changes: dict[str, Any] = {"template": now.template}
    if Address.of(facts.tracking_uri).file == before.tracking:
        changes["tracking_uri"] = str(Address.of_file(now.tracking))
    # The research notebook may have been moved together with its outputs.
    notebook = os.path.normpath(now.root / os.path.relpath(facts.notebook, before.root))
    if facts.notebook and Path(notebook).is_file():
        changes["notebook"] = notebook
    return changes
