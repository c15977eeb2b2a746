"""The files of a study that are copied: their names in the copy and their paths here."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import sqlite3
import time
import zipfile
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ..errors import SyncError
from ..tracking import sqlite_file
from ..trials import StudyPaths, display_path

_log = logging.getLogger(__name__)

STUDY, TRACKING = "study.db", "mlflow.db"
_PART = ".part"
_ATTEMPT = re.compile(r"attempt\d+\.ipynb")
_CODE = re.compile(r"(environment-)?[0-9a-f]+\.json")
_CHUNK = 1 << 20
#: A checkpoint that was changed within this time may be incomplete.
_SETTLED_S = 1.0


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
    _left_out: set[Path] = field(default_factory=set)

    @classmethod
    def of(cls, paths: StudyPaths, *, storage_url: str, tracking_uri: str | None) -> Contents:
        """The files of a sweep with these options."""
        tracking = paths.tracking if tracking_uri is None else sqlite_file(tracking_uri)
        return cls(paths=paths, storage=sqlite_file(storage_url), tracking=tracking)

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
                for earlier in notebook.parent.glob(f"{_literal(notebook.stem)}.attempt*.ipynb"):
                    yield f"notebooks/{run_id}{earlier.name[len(notebook.stem) :]}", earlier
        for folder, path in self._folders.items():
            for name, file in _walk(path, self._left_out):
                number = name.partition("/")[0]
                is_later = begun is not None and number.isdigit() and int(number) not in begun
                if folder == "code":
                    is_later = not _CODE.fullmatch(name)
                if not is_later or folder not in ("code", "checkpoints", "saved"):
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
        folder, _, rest = name.partition("/")
        parts = PurePosixPath(rest).parts
        # Another machine wrote the manifest: its names must not lead out of the study's folders.
        if parts and not {"..", "/"} & set(parts) and "\0" not in rest:
            if folder == "notebooks" and len(parts) == 1:
                run_id, _, more = rest.partition(".")
                notebook = self.paths.notebook(run_id)
                if run_id.isdigit() and more == "ipynb":
                    return notebook
                if run_id.isdigit() and _ATTEMPT.fullmatch(more):
                    return notebook.with_suffix(f".{more}")
            if folder in self._folders and (folder != "code" or _CODE.fullmatch(rest)):
                return self._folders[folder].joinpath(*parts)
        raise ValueError(f"the copy has a file {name!r}, which is none of a study's")


def snapshot(database: Path, target: Path) -> None:
    """Write a consistent state of a database that is in use to another file.

    Raises:
        sqlite3.Error: the database cannot be read now.
    """
    uri = f"{database.absolute().as_uri()}?mode=ro"
    with (
        closing(sqlite3.connect(uri, uri=True, timeout=30)) as source,
        closing(sqlite3.connect(target)) as copy,
    ):
        source.backup(copy)


def stamp(file: Path) -> tuple[int, ...] | None:
    """A value that changes whenever the file changes; None where there is no file."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def stamp_of_database(file: Path) -> tuple[tuple[int, ...] | None, ...]:
    """A value that changes whenever something is written to an SQLite database."""
    return stamp(file), stamp(file.with_name(file.name + "-wal"))


def hash_of_file(file: Path) -> str:
    """The hash that names the object with a file's content."""
    digest = hashlib.blake2b(digest_size=32)
    with open(file, "rb") as opened:
        while chunk := opened.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def may_be_incomplete(file: Path) -> bool:
    """Whether a checkpoint is so new that it may still be written to, and no complete ZIP file."""
    try:
        is_fresh = 0 <= time.time() - file.stat().st_mtime < _SETTLED_S
    except OSError:
        return False
    return is_fresh and not zipfile.is_zipfile(file)  # as ours and those of torch are


def kind_of(name: str) -> tuple[PurePosixPath, str]:
    """Folder and suffix, which successive checkpoints of a trial have in common."""
    path = PurePosixPath(name)
    return path.parent, path.suffix


def _literal(text: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in text)


def _walk(folder: Path, left_out: set[Path]) -> Iterator[tuple[str, Path]]:
    """All files below a folder, with their paths relative to it.

    A link to a file below the folder counts as another copy of that file. Links to other places
    and to folders are left out, because their targets are not the study's and may differ on
    another machine.

    Args:
        left_out: the links that were already logged; new ones are added.
    """
    top = os.path.realpath(folder)
    for above, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.endswith(_PART))
        files = [Path(above, name) for name in sorted(names) if not name.endswith(_PART)]
        links = {path for path in files if path.is_symlink() and not _is_below(path, top)}
        # `os.walk` lists links to folders among the folders, and does not follow them.
        links |= {path for name in folders if (path := Path(above, name)).is_symlink()}
        for link in sorted(links - left_out):
            _log.warning("remote copy: %s is a link to %s: not copied", link, link.readlink())
        left_out |= links
        for path in files:
            # A file that was removed after the folder was listed is yielded, too: the caller must
            # know that there was one, because the file that replaced it is not in this list.
            if path not in links and (path.is_file() or not os.path.lexists(path)):
                yield path.relative_to(folder).as_posix(), path


def _is_below(path: Path, folder: str) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(folder)
