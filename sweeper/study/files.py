"""Reads and changes a study's SQLite file while no sweep has it open.

Optuna refuses changes to trials that have ended, so this module works on Optuna's tables; a test
compares the result with what Optuna reads afterwards.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..trials import TrialState
from .stored import FACTS, FACTS_OF_STUDY
from .trial_codec import RECORD

_RECORDS = """
SELECT trials.number, attributes.trial_user_attribute_id, attributes.value_json
FROM trials
JOIN studies ON studies.study_id = trials.study_id
JOIN trial_user_attributes AS attributes ON attributes.trial_id = trials.trial_id
WHERE studies.study_name = ? AND attributes.key = ?
"""


def is_storage(file: Path) -> bool:
    """Whether a file may be an Optuna storage. Opening any other file would turn it into one."""
    if not file.exists():
        return False
    try:
        uri = f"{file.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            found = "SELECT name FROM sqlite_master WHERE name = 'study_user_attributes'"
            return connection.execute(found).fetchone() is not None
    except sqlite3.Error:
        return True  # opening the file will raise an error that names the problem


def facts_in(file: Path, study: str) -> dict[str, Any] | None:
    """The facts of a study in a storage's file; None when the file does not have the study.

    Raises:
        sqlite3.Error: the file is no Optuna storage.
    """
    if not is_storage(file):
        return None  # the file is just being created, or its creator was killed
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        found = connection.execute(FACTS_OF_STUDY, (study, FACTS)).fetchone()
    return None if found is None else dict(json.loads(found[0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunTrial:
    """A trial that has begun.

    Attributes:
        is_running: whether it has not ended.
        has_open_checkpoints: whether it or a later trial that tries it again writes checkpoints.
    """

    is_running: bool
    has_open_checkpoints: bool


def begun_in(file: Path, study: str) -> dict[int, BegunTrial]:
    """The trials that have begun in a study's file, by number."""
    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute(_RECORDS, (study, RECORD)).fetchall()
    records = {number: json.loads(text) for number, _, text in rows}
    running = {
        n: record for n, record in records.items() if not TrialState(record["state"]).has_ended
    }
    written = {*running, *(record.get("retry_of") for record in running.values())}
    return {
        number: BegunTrial(is_running=number in running, has_open_checkpoints=number in written)
        for number in records
    }


def move_records(
    file: Path, study: str, *, notebook_of: Callable[[int], Path], **facts: Any
) -> None:
    """Write new paths into a study whose files were moved.

    Args:
        notebook_of: from a trial's number to its executed notebook.
        **facts: about the study as a whole; each replaces the earlier fact of that name.
    """
    with closing(sqlite3.connect(file)) as connection, connection:
        for number, row, text in connection.execute(_RECORDS, (study, RECORD)).fetchall():
            record = {**json.loads(text), "notebook": str(notebook_of(number))}
            connection.execute(
                "UPDATE trial_user_attributes SET value_json = ? WHERE trial_user_attribute_id = ?",
                (json.dumps(record), row),
            )
        row, text = connection.execute(
            "SELECT study_user_attribute_id, value_json FROM study_user_attributes "
            "NATURAL JOIN studies WHERE study_name = ? AND key = ?",
            (study, FACTS),
        ).fetchone()
        connection.execute(
            "UPDATE study_user_attributes SET value_json = ? WHERE study_user_attribute_id = ?",
            (json.dumps({**json.loads(text), **facts}), row),
        )
