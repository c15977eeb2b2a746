"""Save files of a trial as its artifacts, for other studies and for people.

This module imports only the standard library, so that a notebook imports it fast.
"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path
from secrets import token_hex

from .calls import trial
from .disks import insist

#: Suffix of the names of files and folders that are still being written.
PART = ".part"


def save_artifact(path: str | os.PathLike[str], name: str | None = None) -> Path:
    """Save a copy of a file or folder as an artifact of the trial, for other studies and people.

    To use the artifact in another study, name it under `inputs` in that study's parameters file. An
    artifact with the same name is replaced when the new copy is complete on the disk. So you can
    save the best model so far again and again. In a notebook that is run by hand, artifacts are
    saved in `./artifacts/by-hand`.

    Args:
        path: File or folder to copy. Symbolic links are followed. Use a path that differs between
            trials, because all trials run in the notebook's folder: another trial could overwrite
            the file before it is copied.
        name: Name of the artifact, without slashes. Default: the last part of the path.

    Returns:
        Path of the copy.

    Raises:
        FileNotFoundError: There is no such file or folder.
        ValueError: The name is not a plain file name, or `path` is a folder that contains the
            trial's artifacts.
        OSError: The disk is full or the folder is read-only. In a trial, this is raised after one
            minute of repeated attempts. The artifact that was saved before still exists.
    """
    source = Path(os.path.abspath(path))
    name = source.name if name is None else name
    is_plain = name and {"/", "\\", "\0"}.isdisjoint(name)
    if not is_plain or name.startswith(".") or name.endswith(PART):
        raise ValueError(
            f"save_artifact(name={name!r}): expected a plain file name such as 'model.pt', without "
            "slashes, without a dot at its start and without '.part' at its end"
        )
    if not source.exists():
        raise FileNotFoundError(
            errno.ENOENT,
            f"save_artifact({str(path)!r}): there is no such file or folder; expected an absolute "
            f"path, or a path relative to {Path.cwd()}",
        )
    folder = Path(os.path.abspath(trial().artifact_folder))
    place = folder / name
    if place.exists() and source.samefile(place):
        # `path` is the artifact itself: a library has written it into the artifact folder.
        return place
    if folder.is_relative_to(source):
        raise ValueError(
            f"save_artifact({str(path)!r}): this folder contains the trial's artifacts; save "
            "another folder"
        )
    try:
        insist(partial(_copy, source, place))
    except OSError as error:
        raise OSError(
            error.errno or errno.EIO,
            f"save_artifact({str(path)!r}): cannot be copied into {folder}: "
            f"{error.strerror or error}; an artifact {name!r} that was saved before is unchanged",
        ) from error
    return place


def _copy(source: Path, place: Path) -> None:
    folder = place.parent
    beside, before = (folder / f".{place.name}.{token_hex(4)}{PART}" for _ in range(2))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, beside)
        else:
            shutil.copyfile(source, beside)
            with beside.open("rb+") as file:
                os.fsync(file.fileno())
        if place.is_dir() or (source.is_dir() and place.exists()):
            os.replace(place, before)  # Otherwise, the next `os.replace` would fail.
        os.replace(beside, place)
    finally:
        for rest in (beside, before):
            with suppress(OSError):
                remove(rest)


def remove(path: Path) -> None:
    """Remove a file, or a folder with its content. Do nothing if it does not exist.

    Raises:
        OSError: The file or folder cannot be removed.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
