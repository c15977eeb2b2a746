"""The files of a trial between two machines, by names that say nothing of where they lie."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from ..notebooks import read_metadata
from ..trials import StudyPaths, TrialSpec, attempt_path
from .workload import Workload

#: A message has at most so many bytes of a file, so that no process holds a whole checkpoint.
PART_BYTES = 4_000_000
#: A file that is larger does not travel, nor do further ones once all are more than this together.
_FILE_BYTES, _ALL_BYTES = 10_000_000, 100_000_000
#: The executed notebook of the attempt before, and of this one; the trial's two folders.
_EARLIER, _NOTEBOOK, _CHECKPOINTS, _SAVED = "earlier", "notebook", "checkpoints", "artifacts"
_PART = ".part"

#: Size and time of the last change of a file.
Stamp = tuple[int, int]


def path_of(spec: TrialSpec, name: str) -> Path:
    """Where a file of a trial lies on the machine of this spec.

    Raises:
        ValueError: no file of the trial can have this name.
    """
    if name == _NOTEBOOK:
        return spec.notebook
    if name == _EARLIER and spec.attempt > 1:
        return attempt_path(spec.notebook, spec.attempt - 1)
    kind, _, rest = name.partition("/")
    folder = {_CHECKPOINTS: spec.checkpoint_dir, _SAVED: spec.artifact_dir}.get(kind)
    path = PurePosixPath(rest)
    is_plain = str(path) == rest and path.parts and "\0" not in rest
    if folder is None or not is_plain or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{name!r} is no file of trial {spec.run_id}")
    return folder / rest


def is_in_folder(name: str) -> bool:
    """Whether a file lies in a folder of its trial, from which it may be removed again."""
    return "/" in name


def files_of(spec: TrialSpec, *, with_folders: bool) -> dict[str, Stamp]:
    """The files of a trial on this machine, the executed notebook of an earlier attempt first.

    Args:
        with_folders: whether those of checkpoints and artifacts count as well.
    """
    names = [_EARLIER, _NOTEBOOK] if spec.attempt > 1 else [_NOTEBOOK]
    if with_folders:
        for kind, folder in ((_CHECKPOINTS, spec.checkpoint_dir), (_SAVED, spec.artifact_dir)):
            names += [
                f"{kind}/{path.relative_to(folder).as_posix()}" for path in files_below(folder)
            ]
    stamps = {name: stamp_of(path_of(spec, name)) for name in names}
    return {name: stamp for name, stamp in stamps.items() if stamp is not None}


def stamp_of(path: Path) -> Stamp | None:
    """Size and time of the last change of a file; None for one that is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def parts_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """The bytes of a file, piece by piece, each with its place; nothing of one that is gone."""
    with suppress(OSError), open(path, "rb") as opened:
        offset, data = 0, opened.read(PART_BYTES)
        while True:
            yield offset, data
            offset += len(data)
            if not (data := opened.read(PART_BYTES)):
                return


def files_below(folder: Path) -> list[Path]:
    """All complete files below a folder."""
    found: list[Path] = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.endswith(_PART)]
        found += [Path(place, name) for name in sorted(names) if not name.endswith(_PART)]
    return found


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """The paths of home as a worker has them.

    Attributes:
        root: the worker's private folder, below which its copies stand.
        shares_code: whether the notebook's folder lies on a disk of both.
        shares_study: whether the study's folder does, with checkpoints, artifacts and inputs.
    """

    root: Path
    shares_code: bool = False
    shares_study: bool = False

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
        if self.shares_study:
            return there
        return replace(
            there,
            checkpoint_dir=self.copy(spec.checkpoint_dir),
            artifact_dir=self.copy(spec.artifact_dir),
            inputs={n: replace(it, path=self.copy(it.path)) for n, it in spec.inputs.items()},
        )


def travelling_files(workload: Workload) -> tuple[list[Path], list[tuple[int, Path]]]:
    """The files beside the notebook that a worker without its folder gets.

    The notebook and the modules that it imports travel in any case, with the workload.

    Returns:
        those that travel; and those that are too large, with their sizes.
    """
    travelling, left_behind, total = [], [], 0
    for path in sorted(_beside(workload)):
        stamp = stamp_of(path)
        if stamp is None:
            continue
        if stamp[0] > _FILE_BYTES or total + stamp[0] > _ALL_BYTES:
            left_behind.append((stamp[0], path))
        else:
            total += stamp[0]
            travelling.append(path)
    return travelling, left_behind


def _beside(workload: Workload) -> Iterator[Path]:
    """The files below the notebook's folder without outputs, hidden files and environments."""
    paths = workload.paths
    outputs = {paths.folder, paths.tracking, paths.artifacts, paths.storage}
    if workload.data is not None:  # each machine fetches it
        outputs.add(workload.data.place())
    for place, folders, names in os.walk(workload.cwd):
        folder = Path(place)
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
            if path.suffix != ".ipynb" or not _is_executed(path):
                yield path


def _is_executed(path: Path) -> bool:
    try:
        return read_metadata(path) is not None
    except Exception:  # noqa: BLE001  no notebook, whatever it is
        return False
