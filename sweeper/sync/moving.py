"""Correct the paths that a study has stored, after its outputs were moved or copied by hand."""

from __future__ import annotations

import logging
import os
import sqlite3
from dataclasses import replace
from pathlib import Path

from ..settings.addresses import Address
from ..study.facts import StudyFacts
from ..study.files import is_storage, move_records
from ..study.moves import Move
from ..study_folder.ownership import while_unswept
from ..tracking.files import move_artifacts
from ..trials import display_path

_log = logging.getLogger(__name__)


def follow_unswept(move: Move) -> None:
    """Correct the paths that a moved study has stored, unless a sweep of it is running.

    Args:
        move: The study, with the paths that it has stored and its paths now.
    """
    with while_unswept(move.now) as is_unswept:
        if is_unswept:
            follow(move)


def follow(move: Move) -> None:
    """Correct the paths that a moved study has stored. No other process may sweep the study.

    If this process is killed, the next call corrects the paths again. If the files cannot be
    written, a warning is logged.

    Args:
        move: The study, with the paths that it has stored and its paths now.
    """
    before, now = move.before, move.now
    try:
        if now.tracking.is_file():
            move_artifacts(
                now.tracking, before=before.artifacts.as_uri(), now=now.artifacts.as_uri()
            )
        # A database that is missing has no records to correct, and `rebuild` makes a new one.
        if is_storage(now.storage):
            _move_records(move)
        _corrected(move.facts, move).write(now.facts, study=now.study)
    except (OSError, sqlite3.Error) as error:
        _log.warning(
            "%s: the outputs were moved from %s, and the new paths cannot be stored: %s",
            display_path(now.folder),
            before.root,
            error,
        )


def _move_records(move: Move) -> None:
    now = move.now
    try:
        move_records(now.storage, now, lambda facts: _corrected(facts, move))
    except sqlite3.OperationalError:
        raise  # The disk is full or read-only, and the database is intact.
    except (sqlite3.DatabaseError, ValueError) as error:
        _log.info("%s is damaged, and can be rebuilt: %s", display_path(now.storage), error)


def _corrected(facts: StudyFacts, move: Move) -> StudyFacts:
    """Return the stored facts of a moved study, with the present paths of its files."""
    before, now = move.before, move.now
    # The research notebook may have been moved together with its outputs.
    notebook = os.path.normpath(now.root / os.path.relpath(facts.notebook, before.root))
    if facts.notebook and Path(notebook).is_file():
        facts = replace(facts, notebook=notebook)
    if Address.of(facts.tracking_uri).file == before.tracking:
        facts = replace(facts, tracking_uri=str(Address.of_file(now.tracking)))
    return replace(facts, template=now.template)
