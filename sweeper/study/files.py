"""Read and change a study's files while no sweep has them open.

Optuna refuses changes to trials that have ended. So this module changes Optuna's tables by SQL. A
test checks that Optuna reads the result.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from ..errors import StudyError
from ..search.trial_codec import RECORD
from ..settings.addresses import Address
from ..trials import StudyPaths, facts_beside, run_id_of
from .access import close_storage, open_storage
from .facts import ATTRIBUTE, StudyFacts

_RECORDS = """
SELECT trials.number, attributes.trial_user_attribute_id, attributes.value_json
FROM trials
JOIN studies ON studies.study_id = trials.study_id
JOIN trial_user_attributes AS attributes ON attributes.trial_id = trials.trial_id
WHERE studies.study_name = ? AND attributes.key = ?
"""


def is_storage(file: Path) -> bool:
    """Return whether a file may be a complete Optuna storage.

    Optuna would turn any other file into a storage by opening it.
    """
    if not file.exists():
        return False
    try:
        uri = f"{file.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    except sqlite3.Error:
        return True  # Opening the file will raise an error that names the problem.
    # Optuna makes the table of user attributes early and `alembic_version` last. If both exist, no
    # table is missing.
    return {"study_user_attributes", "alembic_version"} <= tables


def study_id_in(file: Path, name: str) -> str | None:
    """Return the id of a study in a SQLite file. Return None if the file does not contain it.

    Raises:
        StudyError: The file cannot be read.
    """
    if not is_storage(file):
        return None
    storage = open_storage(Address.of_file(file), is_known=True)
    try:
        for study in storage.get_all_studies():
            if study.study_name == name and StudyFacts.are_in(study.user_attrs):
                return StudyFacts.of(study.user_attrs).id
        return None
    finally:
        close_storage(storage)


def has_study(file: Path, name: str, study_id: str) -> bool:
    """Return whether a SQLite file contains a study, and not another study with the same name.

    Return True if the file cannot be read: opening it will raise an error that names the problem.
    """
    try:
        return study_id_in(file, name) == study_id
    except StudyError:
        return True


def why_lost(storage: Path) -> str | None:
    """Return why a study's database is lost, in words. Return None if nothing shows a loss.

    If `study.json` next to it cannot be read, only a missing or empty database counts as lost.

    Args:
        storage: Path of the database in the study's folder.
    """
    if not storage.exists() or storage.stat().st_size == 0:
        return "it is missing or empty"
    try:
        name, facts = StudyFacts.read(facts_beside(storage))
    except StudyError:
        return None  # The next sweep writes the missing or damaged facts again.
    return None if has_study(storage, name, facts.id) else "it is another study's database"


def move_records(
    file: Path, paths: StudyPaths, correct: Callable[[StudyFacts], StudyFacts]
) -> None:
    """Write new paths into the database of a study whose files were moved.

    Args:
        file: SQLite file of the storage.
        paths: The study's paths after the move.
        correct: Function that returns the study's facts with their new paths.

    Raises:
        sqlite3.Error: The file is not a storage.
        ValueError: The file does not contain the study, or contains it in an unknown form.
    """
    with closing(sqlite3.connect(file)) as connection, connection:
        for number, row, text in connection.execute(_RECORDS, (paths.study, RECORD)).fetchall():
            notebook = paths.notebook(run_id_of(number))
            record = {**_mapping(text), "notebook": str(notebook)}
            connection.execute(
                "UPDATE trial_user_attributes SET value_json = ? WHERE trial_user_attribute_id = ?",
                (json.dumps(record), row),
            )
        found = connection.execute(
            "SELECT study_user_attribute_id, value_json FROM study_user_attributes "
            "NATURAL JOIN studies WHERE study_name = ? AND key = ?",
            (paths.study, ATTRIBUTE),
        ).fetchone()
        if found is None:
            raise ValueError(f"{file}: there is no study {paths.study!r}")
        row, text = found
        facts = correct(StudyFacts.decode(_mapping(text)))
        connection.execute(
            "UPDATE study_user_attributes SET value_json = ? WHERE study_user_attribute_id = ?",
            (json.dumps(facts.encode()), row),
        )


def _mapping(text: object) -> dict[str, Any]:
    """Return the JSON object in a column of the database.

    Raises:
        ValueError: The text is not a JSON object.
    """
    found = json.loads(text) if isinstance(text, str) else None
    if not isinstance(found, dict):
        raise ValueError(f"expected a JSON object; got {text!r}")
    return found
