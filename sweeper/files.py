"""Write files atomically, so that neither a reader nor a crash ever finds half a file."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def write_atomically(path: Path, text: str, *, mode: int = 0o666) -> None:
    """Write a text file beside its place, then rename it; a line end is added where none is.

    Args:
        mode: of the file, less the bits of the process's mask.

    Raises:
        OSError: the file cannot be written; what was there before is unchanged.
        UnicodeEncodeError: the text holds half a surrogate pair; likewise.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.write("" if text.endswith("\n") else "\n")
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def copy_atomically(source: Path, path: Path) -> None:
    """Copy a file beside a place, then rename it.

    Raises:
        OSError: the file cannot be read or written; what was there before is unchanged.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        shutil.copyfile(source, beside)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
