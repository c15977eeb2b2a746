"""Which version of each file a copy has: the one that is there now, or an earlier one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..notebooks import read_metadata
from ..study import BegunTrial
from ..trials import TrialState
from .contents import Contents, kind_of, may_be_incomplete
from .manifest import Entry
from .objects import Objects


class Selection:
    """The files besides the databases that one copy has.

    Args:
        begun: the trials of the copied study; None where that is on a server.
        before: the files of the previous copy.
        is_last: whether nothing changes any more.
    """

    def __init__(
        self,
        contents: Contents,
        objects: Objects,
        *,
        begun: Mapping[int, BegunTrial] | None,
        before: Mapping[str, Entry],
        is_last: bool,
    ) -> None:
        self._contents = contents
        self._objects = objects
        self._begun = begun
        self._before = before
        self._is_last = is_last
        self._entries: dict[str, Entry] = {}
        #: Checkpoints that could not be read now and are not in the previous copy either.
        self._missed: set[str] = set()

    def take(self, *, of_running: bool) -> None:
        """Send files that have changed.

        Args:
            of_running: send only the checkpoints of trials that have not ended, or all others. A
                running trial can continue from an older checkpoint, so those come last.
        """
        for name, file in self._contents.files(self._begun):
            is_open = self._is_open(name)
            if of_running and not is_open:
                continue
            entry = self._before.get(name)
            is_waiting = is_open and not self._is_last and may_be_incomplete(file)
            if of_running is is_open and not is_waiting:
                now = self._objects.of_file(name, file, before=entry)
                entry = entry if self._has_ended_since(name, file) else now
            if entry is not None:
                self._entries[name] = entry
            elif is_open:
                self._missed.add(name)

    @property
    def files(self) -> dict[str, Entry]:
        """What was taken, and the previous copy's checkpoints of trials whose new ones were missed.

        Numbered checkpoints replace each other under new names, so those of a kind are compared.
        """
        kinds = set(map(kind_of, self._missed)) - set(map(kind_of, self._entries))
        earlier = {n: entry for n, entry in self._before.items() if kind_of(n) in kinds}
        return {**self._entries, **earlier}

    def _is_open(self, name: str) -> bool:
        """Whether a name is that of a checkpoint whose trial has not ended in the copied study.

        All checkpoints of an ended trial must be in the copy together with the trial's end.
        """
        folder, _, rest = name.partition("/")
        run_id = rest.partition("/")[0]
        if folder != "checkpoints" or not run_id.isdigit():
            return False
        trial = None if self._begun is None else self._begun.get(int(run_id))
        return trial is None or trial.has_open_checkpoints

    def _has_ended_since(self, name: str, file: Path) -> bool:
        """Whether a notebook states the end of a trial that had not ended in the copied study.

        A study that is restored takes the end from the notebook, but the trial's last checkpoints
        may not be in this copy yet; without the end it runs the trial again.
        """
        folder, _, rest = name.partition("/")
        run_id, _, ending = rest.partition(".")
        is_notebook = folder == "notebooks" and ending == "ipynb"
        trial = self._begun.get(int(run_id)) if self._begun and is_notebook else None
        if self._is_last or trial is None or not trial.is_running:
            return False
        return (read_metadata(file) or {}).get("state") != TrialState.RUNNING
