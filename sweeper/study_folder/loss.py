"""Notices that a file was removed while a sweep was using it.

An open file can still be written after its removal, but the data is lost when it is closed.
Databases do not notice the removal of their file.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ..errors import BrokenError, StorageAwayError, SweepError, root_cause
from ..trials import display_path


class LostFileError(BrokenError):
    """A file was removed or replaced while a sweep was using it."""

    def __init__(self, file: Path) -> None:
        lost = [path for path in (file, *file.parents) if not path.exists()]
        what = (
            f"{display_path(lost[-1])} was removed"
            if lost
            else f"{display_path(file)} was replaced"
        )
        super().__init__(f"{what} while the sweep was using it")
        self.file = file


class Presence:
    """Compares files in use with their state when they were first found.

    Args:
        files: in the order in which losses are reported; None for a store that is no file. A file
            that does not exist counts from the moment on at which it does.
    """

    def __init__(self, *files: Path | None) -> None:
        self._files = {file: _identity(file) for file in files if file is not None}
        self._lost: Path | None = None

    def lost(self) -> Path | None:
        """The first file that was removed or replaced; None when all are unchanged.

        A lost file stays lost, because a new file may get the inode number of the old one.
        """
        for file, known in self._files.items():
            with suppress(OSError):  # a file system that does not answer proves no loss
                now = _identity(file)
                if known is None:
                    self._files[file] = now
                elif now != known:
                    self._lost = self._lost or file
        return self._lost


def loss_message(error: Exception, *, storage: str, tracking: Path | None) -> str:
    """One line about the error that ended a sweep, with the remedy.

    Args:
        storage: the study's storage, as messages name it.
        tracking: MLflow's file; None where its store is no file.
    """
    if isinstance(error, StorageAwayError):
        return (
            f"{error}; it stayed away, so the sweep has ended; when it is back, the same command "
            "goes on, and runs no trial again that has come to its end"
        )
    if isinstance(error, LostFileError) and error.file == tracking:
        return (
            f"{error}; the running trials were stopped; the same command goes on, and tells a new "
            "store of all trials"
        )
    if isinstance(error, LostFileError):
        return f"{error}; the running trials were stopped, their executed notebooks were kept"
    return str(error) if isinstance(error, SweepError) else f"{storage}: {root_cause(error)}"


def _identity(file: Path) -> tuple[int, int] | None:
    """Device and inode number of a file; None where there is no file."""
    try:
        status = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino
