"""Hash the artifacts that trials have saved, and link or copy artifacts of other studies."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..files import beside
from ..notebook_api.artifacts import PART, remove
from ..trials import SavedArtifact, is_utf8

_log = logging.getLogger(__name__)


def saved_in(folder: Path) -> dict[str, SavedArtifact]:
    """Return the artifacts in a trial's folder of artifacts, by name.

    A file that cannot be read, or whose name is not UTF-8, is left out. A warning is logged and no
    error is raised, because the trial has ended already. Temporary files are left out silently.
    """
    if not folder.is_dir():
        return {}
    found = {}
    for name in sorted(name for name in os.listdir(folder) if not _is_passing(name)):
        if not is_utf8(name):
            _log.warning("%s: %r is not kept as an artifact: its name is not UTF-8", folder, name)
            continue
        try:
            found[name] = content_of(folder / name)
        except OSError as error:  # The file may be a broken link, or was just removed.
            _log.warning(
                "%s cannot be kept as an artifact: %s", folder / name, error.strerror or error
            )
    return found


def content_of(path: Path) -> SavedArtifact:
    """Return the size and the hash of a file, or of all files of a folder.

    Raises:
        OSError: The path is missing, is neither a file nor a folder, or cannot be read.
    """
    if path.is_dir():
        contents = {file: content_of(file) for file in _files_below(path)}
        lines = [f"{f.relative_to(path).as_posix()}\0{c.sha256}\n" for f, c in contents.items()]
        digest = hashlib.sha256(os.fsencode("".join(lines)))  # Names need not be valid UTF-8.
        size_bytes = sum(content.size_bytes for content in contents.values())
    elif path.exists() and not path.is_file():  # Reading a pipe would wait forever.
        raise OSError(f"{path} is neither a file nor a folder")
    else:
        with path.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256")
            size_bytes = opened.tell()
    return SavedArtifact(sha256=digest.hexdigest(), size_bytes=size_bytes)


def is_intact(path: Path, sha256: str) -> bool:
    """Return whether a file or folder has the content with this hash."""
    try:
        return content_of(path).sha256 == sha256
    except OSError:
        return False


def keep(source: Path, place: Path) -> None:
    """Hard-link a file or a folder's files to another path. On another disk, copy them.

    A hard link needs no space, and remains if the original is removed or replaced.

    Args:
        source: File or folder to link.
        place: Path of the link, or of the folder that gets the links. A file or folder that exists
            there is replaced.

    Raises:
        OSError: The path `place` cannot be written, or `source` cannot be read.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    part = beside(place)
    try:
        if source.is_dir():
            shutil.copytree(source, part, copy_function=_link)
        else:
            _link(source, part)
        remove(place)
        os.replace(part, place)
    finally:
        remove(part)


def _link(source: str | Path, place: str | Path) -> None:
    real = os.path.realpath(source)
    try:
        os.link(real, place)
    except OSError:  # The place is on another disk, or its disk has no hard links.
        shutil.copyfile(real, place)


def _files_below(folder: Path) -> Iterator[Path]:
    for above, folders, names in os.walk(folder):
        folders.sort()
        files = (Path(above, name) for name in sorted(names))
        yield from (file for file in files if file.is_file())  # Leave out broken links and pipes.


def _is_passing(name: str) -> bool:
    """Return whether a name is temporary, because its artifact is still being written."""
    return name.startswith(".") or name.endswith(PART)
