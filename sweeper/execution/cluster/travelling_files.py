"""The files beside a notebook that travel to a worker without the notebook's folder."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...notebooks import read_metadata
from ...trials import StudyPaths
from ..workload import Workload
from .messages import FilePart
from .mirror import parts_of

_log = logging.getLogger(__name__)

#: A file that is larger, and all files once they are more than this together, do not travel.
_FILE_BYTES, _ALL_BYTES = 10_000_000, 100_000_000
#: The most names that a message has.
_MOST_NAMES = 3


@dataclass(slots=True)
class TravellingFiles:
    """The files of the notebook's folder that each worker without that folder gets.

    The notebook and the modules that it imports travel in any case, with the workload.
    """

    workload: Workload
    _is_reported: bool = field(default=False, init=False)

    def parts(self) -> Iterator[FilePart]:
        """The bytes of all of them."""
        left_behind: list[tuple[int, str]] = []
        total = 0
        for path in sorted(_files(self.workload)):
            try:
                size = path.stat().st_size
            except OSError:
                continue
            if size > _FILE_BYTES or total + size > _ALL_BYTES:
                left_behind.append((size, os.path.relpath(path, self.workload.cwd)))
                continue
            total += size
            yield from parts_of(path, path)
        self._report(left_behind)

    def _report(self, left_behind: list[tuple[int, str]]) -> None:
        """Say once what does not travel, and what to do about it."""
        if not left_behind or self._is_reported:
            return
        self._is_reported = True
        largest = sorted(left_behind, reverse=True)[:_MOST_NAMES]
        names = ", ".join(f"{name} ({size / 1e6:.0f} MB)" for size, name in largest)
        more = len(left_behind) - len(largest)
        _log.warning(
            "files of more than %d MB do not travel to workers: %s%s; put data on a disk that the "
            "workers have, and name it in the notebook by its absolute path",
            _FILE_BYTES // 1_000_000,
            names,
            f" and {more} more" if more else "",
        )


def _files(workload: Workload) -> Iterator[Path]:
    """The files below the notebook's folder without outputs, hidden files and environments."""
    outputs = _outputs(workload.paths)
    if workload.data is not None:  # each machine fetches it
        outputs.add(workload.data.place())
    for below, folders, names in os.walk(workload.cwd):
        folder = Path(below)
        folders[:] = [
            name
            for name in folders
            if not name.startswith((".", "__pycache__"))
            and folder / name not in outputs
            and not (folder / name / "pyvenv.cfg").exists()
            and not (folder / name / "sweep.lock").exists()  # of another study
        ]
        for name in names:
            path = folder / name
            if name.startswith(".") or path in outputs or not path.is_file():
                continue
            if path.suffix == ".ipynb" and _is_executed(path):
                continue
            yield path


def _outputs(paths: StudyPaths) -> set[Path]:
    return {paths.folder, paths.tracking, paths.artifacts, paths.storage}


def _is_executed(path: Path) -> bool:
    try:
        return read_metadata(path) is not None
    except Exception:  # noqa: BLE001  no notebook, whatever it is
        return False
