"""Files that no reader and no crash ever meets half written."""

from __future__ import annotations

import os
from pathlib import Path


def write_beside(path: Path, text: str) -> None:
    """Write a whole file so that no reader and no crash ever meets half of it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(beside, "w", encoding="utf-8") as file:
            file.write(text)
            file.write("" if text.endswith("\n") else "\n")
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
