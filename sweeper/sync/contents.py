"""The files of a study that are copied: their names in the copy and their paths here."""

from __future__ import annotations

import glob
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import SyncError
from ..files import below, files_within
from ..trials import StudyPaths, display_path

STUDY, TRACKING = "study.db", "mlflow.db"
_NOTEBOOK = re.compile(r"notebooks/([0-9]+)((?:\.attempt[0-9]+)?\.ipynb)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The files of one study on this machine.

    Attributes:
        storage: the study's SQLite file; None where the study is on a server.
        tracking: MLflow's SQLite file; None where MLflow's store is on a server.
    """

    paths: StudyPaths
    storage: Path | None
    tracking: Path | None

    @property
    def databases(self) -> dict[str, Path]:
        """The databases by their names in the copy, in the order in which they are read.

        A run in MLflow starts after its trial and ends after its trial. MLflow is read first, so
        the copy has no run without its trial. The files are read last, so a trial that is completed
        in the copied study has its final notebook and artifacts in the copy.
        """
        found = {TRACKING: self.tracking, STUDY: self.storage}
        return {name: file for name, file in found.items() if file is not None}

    def check_study(self) -> None:
        """Make sure that the study exists, so that the copy of a removed study stays as it is.

        Raises:
            SyncError: the study's file does not exist.
        """
        if self.storage is not None and not self.storage.exists():
            where = display_path(self.storage)
            raise SyncError(f"remote copy: {where} was removed; the copy stays as it was")

    def files(self, begun: Collection[int] | None) -> Iterator[tuple[str, Path]]:
        """The files besides the databases, with their names in the copy.

        Args:
            begun: the numbers of the trials in the copied study; None for all. Files of later
                trials are left out: after the copy is restored, their numbers may get other
                params, which must not continue from checkpoints of these.
        """
        for run_id, notebook in self.paths.written_run_ids().items():
            if begun is None or int(run_id) in begun:
                yield f"notebooks/{run_id}.ipynb", notebook
                for earlier in notebook.parent.glob(f"{glob.escape(notebook.stem)}.attempt*.ipynb"):
                    yield f"notebooks/{run_id}{earlier.name[len(notebook.stem) :]}", earlier
        for folder, path in self._folders.items():
            for name, file in files_within(path):
                number = name.partition("/")[0]
                is_later = begun is not None and number.isdigit() and int(number) not in begun
                if not is_later or folder not in ("checkpoints", "saved"):
                    yield f"{folder}/{name}", file

    @property
    def _folders(self) -> dict[str, Path]:
        """The folders with files of any names, by their names in the copy."""
        paths = self.paths
        return {
            "code": paths.code,
            "checkpoints": paths.all_checkpoints,
            "saved": paths.all_saved,
            "inputs": paths.inputs,
            **({} if self.tracking is None else {"artifacts": paths.study_artifacts}),
        }

    def place(self, name: str) -> Path:
        """The path on this machine of a file in the copy.

        Raises:
            ValueError: no file of a study has this name.
        """
        if name in self.databases:
            return self.databases[name]
        if notebook := _NOTEBOOK.fullmatch(name):
            return self.paths.notebook(notebook[1]).with_suffix(notebook[2])
        folder, _, rest = name.partition("/")
        try:
            return below(self._folders[folder], rest)
        except (KeyError, ValueError) as error:
            raise ValueError(f"the copy has a file {name!r}, which is none of a study's") from error
