"""A study's SQLite file that no sweep has open: what is in it, and what moves with it.

Optuna lets nobody change a trial that has ended, so this goes to its tables; a test compares with
what Optuna reads afterwards.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from ..trials import TrialState
from .trial_codec import RECORD

_FACTS = "sweeper"
_BEGUN = """
SELECT trials.number, attributes.trial_user_attribute_id, attributes.value_json
FROM trials
JOIN studies ON studies.study_id = trials.study_id
JOIN trial_user_attributes AS attributes ON attributes.trial_id = trials.trial_id
WHERE studies.study_name = ? AND attributes.key = ?
"""


def is_storage(file: Path) -> bool:
    """Whether a file may be a storage: whoever opens one that is not makes it one."""
    if not file.exists():
        return False
    try:
        uri = f"{file.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            found = "SELECT name FROM sqlite_master WHERE name = 'study_user_attributes'"
            return connection.execute(found).fetchone() is not None
    except sqlite3.Error:
        return True  # whoever opens it says what is wrong with it


def facts_in(file: Path, study: str) -> dict[str, Any] | None:
    """The facts of a study in a storage's file; None when it is not in there.

    Raises:
        sqlite3.Error: the file is no such storage.
    """
    if not file.exists():
        return None
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        tables = "SELECT name FROM sqlite_master WHERE name = 'study_user_attributes'"
        if connection.execute(tables).fetchone() is None:
            return None  # it is just being made, or whoever made it was killed
        found = connection.execute(
            "SELECT value_json FROM study_user_attributes NATURAL JOIN studies "
            "WHERE study_name = ? AND key = ?",
            (study, _FACTS),
        ).fetchone()
    return None if found is None else dict(json.loads(found[0]))


def begun_in(file: Path, study: str) -> dict[int, bool]:
    """The numbers of the trials that have a record, and whether a trial writes their checkpoints.

    That may be a later one, which tries it again.
    """
    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute(_BEGUN, (study, RECORD)).fetchall()
    records = {number: json.loads(told) for number, _, told in rows}
    running = {n: told for n, told in records.items() if told["state"] == TrialState.RUNNING}
    written = {*running, *(told.get("retry_of") for told in running.values())}
    return {number: number in written for number in records}


def move_records(
    file: Path, study: str, *, notebook_of: Callable[[int], Path], **facts: Any
) -> None:
    """Have a study whose files lie elsewhere now say so.

    Args:
        notebook_of: from a trial's number to its executed notebook.
        **facts: about the study as a whole, which replace earlier ones.
    """
    with closing(sqlite3.connect(file)) as connection, connection:
        for number, row, told in connection.execute(_BEGUN, (study, RECORD)).fetchall():
            record = {**json.loads(told), "notebook": str(notebook_of(number))}
            connection.execute(
                "UPDATE trial_user_attributes SET value_json = ? WHERE trial_user_attribute_id = ?",
                (json.dumps(record), row),
            )
        row, told = connection.execute(
            "SELECT study_user_attribute_id, value_json FROM study_user_attributes "
            "NATURAL JOIN studies WHERE study_name = ? AND key = ?",
            (study, _FACTS),
        ).fetchone()
        connection.execute(
            "UPDATE study_user_attributes SET value_json = ? WHERE study_user_attribute_id = ?",
            (json.dumps({**json.loads(told), **facts}), row),
        )
