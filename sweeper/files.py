"""Write files atomically, so that neither a reader nor a crash ever finds half a file.

Any user who can open a file can lock it, if only for reading, and so hold up those who write it:
locks and databases have the mode `PRIVATE`. All other files have the mode of the user's mask.
"""

from __future__ import annotations

import glob
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from secrets import token_hex

#: The mode of a file that no other user can open.
PRIVATE = 0o600
#: The ending of what is still being written.
PART = ".part"


def make_private_folder(folder: Path) -> None:
    """Make a folder that only this user can enter, with its parents, where there is none.

    A folder of this user into which others could look, but not write, becomes private.

    Raises:
        PermissionError: the one that is there belongs to another user, or others could write to it.
        OSError: it cannot be made.
    """
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    found = folder.lstat()  # a link is not followed
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if is_ours and not stat.S_IMODE(found.st_mode) & 0o022:
        folder.chmod(0o700)
    if not is_private_folder(folder):
        raise PermissionError(f"{folder} is no folder that is yours alone")


def private_folder(folder: Path) -> Path:
    """Make a folder that only this user can enter, where other users may have taken its name.

    Returns:
        the folder; else one whose name begins with its name, the same for all later calls.

    Raises:
        OSError: none can be made.
    """
    with suppress(PermissionError):
        make_private_folder(folder)
        return folder

    def ours() -> Path | None:
        for path in sorted(folder.parent.glob(f"{glob.escape(folder.name)}.*")):
            with suppress(OSError):  # it was removed meanwhile
                if is_private_folder(path):
                    return path
        return None

    return ours() or Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))


def is_private_folder(folder: Path) -> bool:
    """Return whether a path is a folder, and no link to one, that only this user can enter.

    Raises:
        OSError: there is nothing at this path, or it cannot be looked at.
    """
    found = folder.lstat()  # a link is not followed
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return is_ours and not stat.S_IMODE(found.st_mode) & 0o077


def below(folder: Path, name: str) -> Path:
    """Return the path of a plain relative name below a folder.

    Names that come from another machine, another user or a notebook go through here.

    Args:
        name: parts separated by `/`, as `PurePath.as_posix` writes them.

    Raises:
        ValueError: the name is empty or absolute, or leads out of the folder.
    """
    path = PurePosixPath(name)
    is_plain = bool(path.parts) and str(path) == name and "\0" not in name
    if not is_plain or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{name!r} is no plain name of a file below a folder")
    return folder / name


def files_within(folder: Path) -> Iterator[tuple[str, Path]]:
    """All files below a folder, with their paths relative to it.

    A link to a file below the folder counts as another copy of that file. Links to other places
    and to folders are left out: their targets are not the study's.
    """
    top = os.path.realpath(folder)
    for above, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.endswith(PART))
        for path in (Path(above, name) for name in sorted(names) if not name.endswith(PART)):
            is_ours = Path(os.path.realpath(path)).is_relative_to(top)
            # A file that was removed after the folder was listed is yielded, too: the caller must
            # know that there was one, because the file that replaced it is not in this list.
            if is_ours and (path.is_file() or not os.path.lexists(path)):
                yield path.relative_to(folder).as_posix(), path


def beside(path: Path) -> Path:
    """Return a hidden path beside another one, which no other write uses.

    Several threads, processes and machines may write the same file at once.
    """
    return path.with_name(f".{path.name}.{token_hex(4)}.part")


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Where to write a file beside its place, to which it is renamed at the end of the block.

    Raises:
        OSError: it cannot be renamed; what was there before is unchanged, as after any error.
    """
    part = beside(path)
    try:
        yield part
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, text: str) -> None:
    """Write a text file beside its place, then rename it; a line end is added where none is.

    Raises:
        OSError: the file cannot be written; what was there before is unchanged.
        UnicodeEncodeError: the text holds half a surrogate pair; likewise.
    """
    with replaced(path) as part:
        part.write_text(text if text.endswith("\n") else f"{text}\n", encoding="utf-8")


def copy_atomically(source: Path, path: Path) -> None:
    """Copy a file beside a place, then rename it.

    Raises:
        OSError: the file cannot be read or written; what was there before is unchanged.
    """
    with replaced(path) as part:
        shutil.copyfile(source, part)
