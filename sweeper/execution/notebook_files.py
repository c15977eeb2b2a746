"""Find out which files next to the notebook a trial has overwritten.

All trials of a sweep run in the notebook's folder. A notebook that saves its best model as
`best.pt` overwrites the file of the trial before, and may read that of a trial beside it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

#: At most this many files and folders are looked at (chosen, not measured).
_MOST_ENTRIES = 2000


class NotebookFiles:
    """Files in the notebook's folder and its subfolders whose names stand in the trials' code.

    A file whose name is made of a trial's params or run id is not one of them. The language of the
    code does not matter.

    Args:
        folder: Working folder of the trials.
        code: Code of the trials.
    """

    def __init__(self, folder: Path, code: str) -> None:
        self._folder, self._code = folder, code

    def versions(self) -> Mapping[str, int]:
        """Return the time of the last change of each file in nanoseconds, by its relative path."""
        found: dict[str, int] = {}
        for entry in self._entries():
            if entry.name in self._code and self._is_named(entry.name):
                try:
                    found[os.path.relpath(entry.path, self._folder)] = entry.stat().st_mtime_ns
                except OSError:  # Another trial has just removed it.
                    continue
        return found

    def overwritten_since(self, before: Mapping[str, int]) -> tuple[str, ...]:
        """Return the paths of the files that were there before, and have changed since then."""
        now = self.versions()
        return tuple(path for path in sorted(before) if now.get(path, before[path]) != before[path])

    def _is_named(self, name: str) -> bool:
        """Return whether a text in the code ends with this name, alone or behind a folder."""
        return re.search(rf"""['"/\\]{re.escape(name)}['"]""", self._code) is not None

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        """Yield the files of the folder and of its subfolders, but of no deeper ones."""
        left = _MOST_ENTRIES
        folders = [str(self._folder)]
        for folder in folders:
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        if (left := left - 1) < 0:
                            return
                        if entry.is_file():
                            yield entry
                        elif folder == folders[0] and entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
            except OSError:
                continue
