"""A worker's private folder, in which the paths of home stand below a root, and files on the way.

Whatever arrives is written beside its place, under a name that ends in `.part`, and renamed, so
that neither a reader nor a crash finds half a file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path

from ...trials import StudyPaths, TrialSpec
from ..workload import Workload
from .messages import CHUNK_BYTES, FilePart, Remove

_PART = ".part"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """The paths of home as a worker has them.

    Attributes:
        root: the worker's private folder.
        shares_code: whether the notebook's folder lies on a disk that both use.
        shares_checkpoints: whether the study's folder does, with checkpoints, artifacts and inputs.
    """

    root: Path
    shares_code: bool = False
    shares_checkpoints: bool = False

    def copy(self, path: Path) -> Path:
        """Where the worker's own copy of a file of home is."""
        return self.root / path.relative_to(path.anchor)

    def workload(self, workload: Workload, *, host: str) -> Workload:
        """What trials have in common, at the worker. Executed notebooks are always copies."""
        home, code = workload.paths, None
        if workload.snapshot is not None and not self.shares_code:
            code = self.copy(Path(workload.snapshot.folder)).resolve()
        paths = StudyPaths(
            template=str(self.copy(Path(home.template))),
            study=home.study,
            root=self.copy(home.root),
        )
        cwd = workload.cwd if self.shares_code else self.copy(workload.cwd)
        return replace(workload, cwd=cwd, paths=paths, code_folder=code, host=host)

    def spec(self, spec: TrialSpec) -> TrialSpec:
        """A trial's spec at the worker."""
        there = replace(
            spec,
            notebook=self.copy(spec.notebook),
            continues=None if spec.continues is None else self.copy(spec.continues),
        )
        if self.shares_checkpoints:
            return there
        inputs = {name: replace(it, path=self.copy(it.path)) for name, it in spec.inputs.items()}
        return replace(
            there,
            checkpoint_dir=self.copy(spec.checkpoint_dir),
            artifact_dir=self.copy(spec.artifact_dir),
            inputs=inputs,
        )


def folders_for(spec: TrialSpec, sent_inputs: set[Path]) -> Iterator[Remove | FilePart]:
    """What makes the folders of a trial at a worker the same as at home, and its inputs.

    Args:
        sent_inputs: those that the worker has already, as they never change; new ones are added.
    """
    for folder in (spec.checkpoint_dir, spec.artifact_dir):
        yield Remove(path=folder)
        for path in files_below(folder):
            yield from parts_of(path, path)
    for path in {it.path for it in spec.inputs.values()} - sent_inputs:
        sent_inputs.add(path)
        for file in files_below(path) if path.is_dir() else [path]:
            yield from parts_of(file, file)


def parts_of(file: Path, named: Path) -> Iterator[FilePart]:
    """The bytes of a file, piece by piece; nothing of one that is gone.

    Args:
        named: its path at home.
    """
    with suppress(OSError), open(file, "rb") as opened:  # checkpoints may be removed meanwhile
        offset, data = 0, opened.read(CHUNK_BYTES)
        while True:
            following = opened.read(CHUNK_BYTES)
            yield FilePart(path=named, offset=offset, data=data, is_last=not following)
            if not following:
                return
            offset, data = offset + len(data), following


class ArrivingFiles:
    """Files of which parts have arrived. For one thread.

    Args:
        place: where a file of home is to be written.
    """

    def __init__(self, place: Callable[[Path], Path]) -> None:
        self._place = place
        self._open: dict[Path, FileIO] = {}

    def take(self, part: FilePart) -> None:
        """Write the next part of a file; the last one puts it into its place.

        Raises:
            OSError: it cannot be written; what was at its place is unchanged. The call may be
                repeated; parts that follow one that was given up are ignored.
        """
        path = self._place(part.path)
        beside = path.with_name(f".{path.name}.{os.getpid()}{_PART}")
        if part.offset == 0 and part.path not in self._open:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._open[part.path] = FileIO(beside, "wb")
        file = self._open.get(part.path)
        if file is None:
            return
        if file.seek(0, os.SEEK_END) < part.offset:  # a part was given up
            return
        file.seek(part.offset)
        file.truncate()
        left = memoryview(part.data)
        while left:
            left = left[file.write(left) :]
        if part.is_last:
            file.close()
            os.replace(beside, path)
            del self._open[part.path]

    def drop(self) -> None:
        """Forget the files of which no more parts will come."""
        while self._open:
            _, file = self._open.popitem()
            with suppress(OSError):
                file.close()
            remove(Path(str(file.name)))


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def files_below(folder: Path) -> list[Path]:
    """All complete files below a folder."""
    found: list[Path] = []
    for below, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.endswith(_PART)]
        found += [Path(below, name) for name in sorted(names) if not name.endswith(_PART)]
    return found
