"""Store the notes that people write about trials, in the study's folder."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ..errors import OutputError, StudyError, first_line
from ..files import PRIVATE, write_atomically
from ..trials import NO_NOTE, TrialNote, display_path

_log = logging.getLogger(__name__)

#: Seconds to wait for another process that changes the notes (chosen, not measured). A change takes
#: milliseconds.
_PATIENCE_S = 5.0
_RUN_ID = re.compile(r"[0-9]{4,12}")


class Notes:
    """The notes about the trials of a study. Several processes and threads may use them at once.

    Args:
        file: The file with the notes, in the study's folder. It need not exist.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> dict[str, TrialNote]:
        """Return the notes by run id.

        If the file cannot be read, log a warning and return no notes, because no sweep depends on
        them.
        """
        try:
            return self._load()
        except StudyError as error:
            _log.warning("%s", error)
            return {}

    def change(self, changes: Mapping[str, Mapping[str, Any]]) -> dict[str, TrialNote]:
        """Change fields of the notes. Return all notes.

        Args:
            changes: Fields to change, by run id, such as `{"0003": {"starred": True}}`.

        Raises:
            ValueError: A run id or a field is not valid. Nothing is changed.
            StudyError: The file with the notes is damaged.
            OutputError: The folder cannot be written, or another process holds the lock.
        """
        with self.locked():
            notes = self._load()
            for run_id, parts in changes.items():
                if not _RUN_ID.fullmatch(run_id):
                    raise ValueError(f"{run_id[:20]!r} is not a run id")
                try:
                    notes[run_id] = notes.get(run_id, NO_NOTE).changed(parts)
                except (ValueError, TypeError) as error:
                    raise ValueError(f"{run_id}: {error}") from error
            notes = {run_id: note for run_id, note in sorted(notes.items()) if note != NO_NOTE}
            stored = {run_id: note.to_json() for run_id, note in notes.items()}
            try:
                write_atomically(self._file, json.dumps(stored, indent=1, ensure_ascii=False))
            except OSError as error:
                raise self._unwritable(error) from error
        return notes

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Prevent changes of the notes during the block.

        Raises:
            OutputError: The folder cannot be written, or another process holds the lock.
        """
        if not self._file.parent.is_dir():  # The lock would make a removed folder again.
            raise self._unwritable(FileNotFoundError("the study's folder does not exist"))
        lock = FileLock(self._file.with_suffix(".lock"), mode=PRIVATE)
        try:
            lock.acquire(timeout=_PATIENCE_S)
        except Timeout as error:
            raise self._unwritable(TimeoutError("another process holds its lock")) from error
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            yield
        finally:
            lock.release()

    def _load(self) -> dict[str, TrialNote]:
        try:
            stored = json.loads(self._file.read_text(encoding="utf-8"))
            return {run_id: NO_NOTE.changed(parts) for run_id, parts in stored.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise StudyError(
                f"{display_path(self._file)}: the notes cannot be read: {first_line(error)}; "
                "correct or remove the file"
            ) from error

    def _unwritable(self, error: OSError) -> OutputError:
        where = display_path(self._file)
        return OutputError(f"{where}: cannot be written: {error.strerror or error}")
