"""Which version of each file a copy has: the one that is there now, or an earlier one."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from ..notebooks.metadata import read_metadata
from ..trials import TrialRecord
from .contents import Contents
from .manifest import Entry
from .objects import Objects

#: A checkpoint that was changed within this time may be incomplete.
_SETTLED_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The files besides the databases that one copy has.

    Attributes:
        begun: the trials of the copied study by number; None where that is on a server.
        before: the files of the previous copy.
        is_last: whether nothing changes any more.
    """

    contents: Contents
    objects: Objects
    begun: Mapping[int, TrialRecord] | None
    before: Mapping[str, Entry]
    is_last: bool

    def settled(self) -> dict[str, Entry]:
        """Send all files but the checkpoints of running trials."""
        taken = {}
        for name, file in self.contents.files(self.begun):
            if not self._is_open(name):
                entry = self.objects.of_file(name, file)
                if entry is None or self._has_ended_since(name, file):
                    entry = self.before.get(name)
                if entry is not None:
                    taken[name] = entry
        return taken

    @property
    def checkpoints_before(self) -> dict[str, Entry]:
        """The checkpoints of running trials that the previous copy has."""
        return {name: entry for name, entry in self.before.items() if self._is_open(name)}

    def checkpoints_of_running(self) -> dict[str, Entry]:
        """Send the checkpoints of trials that have not ended.

        One that cannot be read now stays as it was. Numbered checkpoints replace each other under
        new names, so where one is missed, those of its folder before it stay.
        """
        taken, missed = {}, set()
        for name, file in self.contents.files(self.begun):
            if self._is_open(name):
                may_be_half = not self.is_last and _may_be_incomplete(file)
                entry = None if may_be_half else self.objects.of_file(name, file)
                entry = entry or self.before.get(name)
                if entry is None:
                    missed.add(PurePosixPath(name).parent)
                else:
                    taken[name] = entry
        before = self.checkpoints_before.items()
        kept = {name: stamp for name, stamp in before if PurePosixPath(name).parent in missed}
        return kept | taken

    def _is_open(self, name: str) -> bool:
        """Whether a name is that of a checkpoint whose trial has not ended in the copied study.

        All checkpoints of an ended trial must be in the copy together with the trial's end.
        """
        folder, _, rest = name.partition("/")
        run_id = rest.partition("/")[0]
        if folder != "checkpoints" or not run_id.isdigit():
            return False
        number = int(run_id)
        return self.begun is None or number not in self.begun or number in self._written

    @cached_property
    def _written(self) -> Set[int]:
        """The trials whose checkpoints are written now, by themselves or by a later try."""
        begun = (self.begun or {}).values()
        return {record.first_number for record in begun if not record.state.has_ended}

    def _has_ended_since(self, name: str, file: Path) -> bool:
        """Whether a notebook states the end of a trial that had not ended in the copied study.

        A study that is restored takes the end from the notebook, but the trial's last checkpoints
        may not be in this copy yet; without the end it runs the trial again.
        """
        folder, _, rest = name.partition("/")
        run_id, _, ending = rest.partition(".")
        is_notebook = folder == "notebooks" and ending == "ipynb"
        trial = self.begun.get(int(run_id)) if self.begun and is_notebook else None
        if self.is_last or trial is None or trial.state.has_ended:
            return False
        metadata = read_metadata(file)
        return metadata is None or metadata.state.has_ended


def _may_be_incomplete(file: Path) -> bool:
    """Whether a checkpoint is so new that it may still be written to, and no complete ZIP file."""
    with suppress(OSError):
        is_fresh = 0 <= time.time() - file.stat().st_mtime < _SETTLED_S
        return is_fresh and not zipfile.is_zipfile(file)  # as ours and those of torch are
    return False
