"""List the files of a study for its remote copy, with their names in the copy and their paths."""

from __future__ import annotations

import glob
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import SyncError
from ..files import below, files_within
from ..trials import StudyPaths, display_path

STUDY, TRACKING, NOTES = "study.db", "mlflow.db", "notes.json"
#: Pattern of the names that executed notebooks have in the copy. The groups are the run id and the
#: ending. The notebook of an earlier attempt at a trial has an ending such as `.attempt1.ipynb`.
NOTEBOOK = re.compile(r"notebooks/([0-9]+)((?:\.attempt[0-9]+)?\.ipynb)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The files of one study on this machine.

    Attributes:
        paths: Paths of the study.
        storage: SQLite file of the study. None if the study is on a server.
        tracking: SQLite file of MLflow's store. None if MLflow's store is on a server.
    """

    paths: StudyPaths
    storage: Path | None
    tracking: Path | None

    @property
    def databases(self) -> dict[str, Path]:
        """The databases by their names in the remote copy, in the order in which they are copied.

        A run in MLflow starts after its trial starts, and ends after its trial ends. MLflow is
        copied first, so that the copy has no run without its trial. The other files are copied
        last, so that a trial that has completed in the copied study has its final notebook and
        artifacts in the copy.
        """
        found = {TRACKING: self.tracking, STUDY: self.storage}
        return {name: file for name, file in found.items() if file is not None}

    def check_study(self) -> None:
        """Check that the study's SQLite file exists. Do nothing if the study is on a server.

        If a user has removed the study from this machine, the copy must stay as it is.

        Raises:
            SyncError: The file does not exist.
        """
        if self.storage is not None and not self.storage.exists():
            where = display_path(self.storage)
            raise SyncError(f"remote copy: {where} was removed; the copy stays as it was")

    def files(self, begun: Collection[int] | None) -> Iterator[tuple[str, Path]]:
        """Yield the name in the remote copy and the path of each file except the databases.

        Args:
            begun: Numbers of the trials in the copied study. Notebooks, checkpoints and artifacts
                of later trials are left out: when the copy is restored, their numbers may get other
                params, and a trial must not resume checkpoints of other params. None for all files.
        """
        for run_id, notebook in self.paths.written_run_ids().items():
            if begun is None or int(run_id) in begun:
                yield f"notebooks/{run_id}.ipynb", notebook
                for earlier in notebook.parent.glob(f"{glob.escape(notebook.stem)}.attempt*.ipynb"):
                    name = f"notebooks/{run_id}{earlier.name[len(notebook.stem) :]}"
                    if NOTEBOOK.fullmatch(name):  # A person may have added files with other names.
                        yield name, earlier
        if self.paths.notes.exists():
            yield NOTES, self.paths.notes
        for folder, path in self._folders.items():
            for name, file in files_within(path):
                number = name.partition("/")[0]
                is_later = begun is not None and number.isdigit() and int(number) not in begun
                if not is_later or folder not in ("checkpoints", "saved"):
                    yield f"{folder}/{name}", file

    @property
    def _folders(self) -> dict[str, Path]:
        """Folders in which files of any name are copied, by folder names in the remote copy.

        Only the checkpoints and artifacts of trials that are not in the copied study are left out
        (see `files`).
        """
        paths = self.paths
        return {
            "code": paths.code,
            "checkpoints": paths.all_checkpoints,
            "saved": paths.all_saved,
            "inputs": paths.inputs,
            **({} if self.tracking is None else {"artifacts": paths.study_artifacts}),
        }

    def place(self, name: str) -> Path:
        """Return the path on this machine of a file in the remote copy. It need not exist here.

        Args:
            name: Name of the file in the copy, such as `notebooks/0007.ipynb`.

        Raises:
            ValueError: No file of a study has this name.
        """
        if name in self.databases:
            return self.databases[name]
        if name == NOTES:
            return self.paths.notes
        if notebook := NOTEBOOK.fullmatch(name):
            return self.paths.notebook(notebook[1]).with_suffix(notebook[2])
        folder, _, rest = name.partition("/")
        try:
            return below(self._folders[folder], rest)
        except (KeyError, ValueError) as error:
            raise ValueError(f"the copy has a file {name!r}, which belongs to no study") from error
