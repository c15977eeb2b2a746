"""Select the version of each file for a copy: the present version or that of the previous copy."""

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

#: A checkpoint may be incomplete for this many seconds after its last change (chosen, not
#: measured).
_SETTLED_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Selects and sends the files of a study for one copy, except the databases.

    Attributes:
        contents: The files of the study on this machine.
        objects: Sender of files to the store.
        begun: Trials in the snapshot of the study's database for this copy, by number.
            None if the study is on a server.
        before: Files of the previous copy whose objects the store still has, by name.
        is_last: Whether this is the last copy of the sweep, so that no file changes any more.
    """

    contents: Contents
    objects: Objects
    begun: Mapping[int, TrialRecord] | None
    before: Mapping[str, Entry]
    is_last: bool

    def settled(self) -> dict[str, Entry]:
        """Send all files except the checkpoints of running trials.

        Returns:
            The manifest's entries by the names of the files. If a file cannot be copied now, its
            entry is that of the previous copy, if any.
        """
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
        """The entries of running trials' checkpoints in the previous copy, by name."""
        return {name: entry for name, entry in self.before.items() if self._is_open(name)}

    def checkpoints_of_running(self) -> dict[str, Entry]:
        """Send the checkpoints of trials that have not ended.

        If a checkpoint cannot be read now, the copy keeps its previous version. Numbered
        checkpoints replace each other under new names. So if a new one cannot be read, the copy
        keeps all previous ones in its folder.

        Returns:
            The manifest's entries by the names of the files.
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
        """Return whether a file is a checkpoint of a trial that has not ended in the copied study.

        The checkpoints of an ended trial do not count: they must be in the same manifest as the
        trial's end. If the study is on a server, the checkpoints of all trials count.
        """
        folder, _, rest = name.partition("/")
        run_id = rest.partition("/")[0]
        if folder != "checkpoints" or not run_id.isdigit():
            return False
        number = int(run_id)
        return self.begun is None or number not in self.begun or number in self._written

    @cached_property
    def _written(self) -> Set[int]:
        """Numbers of the trials whose checkpoints may change now.

        A running retry changes the checkpoints of the trial that it retries.
        """
        begun = (self.begun or {}).values()
        return {record.first_number for record in begun if not record.state.has_ended}

    def _has_ended_since(self, name: str, file: Path) -> bool:
        """Return whether a notebook may state the end of a trial that runs in the copied study.

        Such a notebook is not copied now. A restored study would use the end in the notebook, but
        this copy may lack the trial's last checkpoints. Without the end, the restored study runs
        the trial again.
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
    """Return whether a checkpoint was changed in the last second and is not a complete ZIP file."""
    with suppress(OSError):
        is_fresh = 0 <= time.time() - file.stat().st_mtime < _SETTLED_S
        # Checkpoints of the sweep and of torch are ZIP files. A complete one has an index at its
        # end.
        return is_fresh and not zipfile.is_zipfile(file)
    return False
