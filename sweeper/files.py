"""Write files atomically, so that no reader ever finds half a file, not even after a crash.

Locks and databases have the mode `PRIVATE`. Another user who can open such a file could lock it,
and so block its writers. All other files have the mode that the user's umask gives.
"""

from __future__ import annotations

import glob
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from secrets import token_hex

#: Mode of a file that no other user can open.
PRIVATE = 0o600
#: Suffix of the name of a file that is still being written.
PART = ".part"
#: Glob pattern of the temporary names that `beside` returns.
_PARTS = f".*.{'[0-9a-f]' * 8}{PART}"
#: Suffixes of the names of the files that SQLite keeps next to a database.
DATABASE_LOGS = ("-wal", "-shm", "-journal")
#: A file that is still being written, and has not changed for this many seconds, was left by a
#: process that was killed (chosen, not measured).
ABANDONED_S = 24 * 3600.0


def files_below(folder: Path) -> list[Path]:
    """Return all files below a folder, except files that are still being written."""
    found: list[Path] = []
    for above, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.endswith(PART))
        found += [Path(above, name) for name in sorted(names) if not name.endswith(PART)]
    return found


def free_bytes(folder: Path) -> int:
    """Return the free disk space in bytes for a folder, which may not exist yet."""
    # Use `os.path.exists`: `Path.exists` raises an error in a folder that this user may not enter.
    existing = next(place for place in (folder, *folder.parents) if os.path.exists(place))
    return shutil.disk_usage(existing).free


def make_private_folder(folder: Path) -> None:
    """Make a folder that only this user can enter, with its parents, unless it exists.

    An existing folder of this user becomes private if others could read it, but not write to it.

    Raises:
        PermissionError: The path is a file or a link, or a folder that belongs to another user or
            that others could write to.
        OSError: The folder cannot be made.
    """
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    found = folder.lstat()  # Do not follow a link, which another user may have made here.
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if is_ours and not found.st_mode & 0o022:
        folder.chmod(0o700)
    if not is_private_folder(folder):
        raise PermissionError(
            f"{folder} must be a folder that only you can enter, but it is a file or link, or "
            "another user owns it or has access to it; remove it"
        )


def private_folder(folder: Path) -> Path:
    """Make a folder that only this user can enter, even if another user already has its name.

    Returns:
        The folder. If its path is a file or a link, or belongs to another user, or others could
        write to it: a new folder next to it, whose name has a random suffix. While that folder
        exists, later calls return it again.

    Raises:
        OSError: No folder can be made.
    """
    with suppress(PermissionError):
        make_private_folder(folder)
        return folder
    for other in sorted(folder.parent.glob(f"{glob.escape(folder.name)}.*")):
        with suppress(OSError):  # The folder was removed meanwhile.
            if is_private_folder(other):
                return other
    return Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))


def is_private_folder(folder: Path) -> bool:
    """Return whether a path is a folder that only this user can enter. A link does not count.

    Raises:
        OSError: The path does not exist, or cannot be read.
    """
    found = folder.lstat()  # Do not follow a link, which another user may have made here.
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return is_ours and not found.st_mode & 0o077


def below(folder: Path, name: str) -> Path:
    """Return the path of a file below a folder. The file need not exist.

    Use this for names that come from another machine, another user or a notebook.

    Args:
        folder: Folder that contains the file, directly or in a subfolder.
        name: Relative path with `/` between its parts, as `PurePath.as_posix` writes it.

    Raises:
        ValueError: The name is empty or absolute, or leads out of the folder.
    """
    path = PurePosixPath(name)
    is_plain = path.parts and str(path) == name and "\0" not in name
    if not is_plain or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{name!r}: expected the relative path of a file below {folder}")
    return folder / name


def files_within(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the relative name and the path of each file below a folder.

    A link to a file below the folder counts as another copy of that file. Links that lead out of
    the folder, and links to folders, are left out: their targets do not belong to the study.
    """
    top = os.path.realpath(folder)
    for path in files_below(folder):
        is_ours = Path(os.path.realpath(path)).is_relative_to(top)
        # Also yield a file that was removed after the folder was listed. So the caller notices that
        # the list is out of date: it lacks, for example, a newer checkpoint that replaced the file.
        if is_ours and (path.is_file() or not os.path.lexists(path)):
            yield path.relative_to(folder).as_posix(), path


def remove_database(file: Path) -> None:
    """Remove an SQLite database and its logs.

    SQLite would apply logs that are left over to a later database with the same name.
    """
    for ending in ("", *DATABASE_LOGS):
        Path(f"{file}{ending}").unlink(missing_ok=True)


def beside(path: Path) -> Path:
    """Return a path for a temporary hidden file next to a file. Do not make the file.

    The name of the temporary file is random, because several threads, processes and machines may
    write the same file at once.
    """
    return path.with_name(f".{path.name}.{token_hex(4)}{PART}")


def remove_abandoned(study_folder: Path) -> None:
    """Remove the temporary files of processes that were killed while they wrote a file.

    These are files with a name from `beside` that have not changed for `ABANDONED_S` seconds. They
    are in a study's folder, or next to it, where the executed notebooks are.
    """
    now_s = time.time()
    folders = [study_folder.parent, *(Path(above) for above, _, _ in os.walk(study_folder))]
    for folder in folders:
        for path in folder.glob(_PARTS):
            with suppress(OSError):
                if now_s - path.stat().st_ctime > ABANDONED_S:
                    path.unlink()


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Yield a temporary path, to which the block writes the new content of a file.

    At the end of the block, the temporary file replaces the file.

    Raises:
        OSError: The new file cannot be renamed. After this or any other error, the old file is
            unchanged.
    """
    part = beside(path)
    try:
        yield part
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, text: str) -> None:
    """Write a text file under a temporary name, then rename it. The file ends with a newline.

    Raises:
        OSError: The file cannot be written. The old file is unchanged.
        UnicodeEncodeError: The text contains a lone surrogate. The old file is unchanged.
    """
    with replaced(path) as part:
        part.write_text(text if text.endswith("\n") else f"{text}\n", encoding="utf-8")


def copy_atomically(source: Path, path: Path) -> None:
    """Copy a file under a temporary name, then rename the copy.

    Raises:
        OSError: The file cannot be read or written. The old file at `path` is unchanged.
    """
    with replaced(path) as part:
        shutil.copyfile(source, part)
