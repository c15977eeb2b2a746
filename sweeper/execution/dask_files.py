"""The files of a trial between two machines, by names that say nothing of where they lie."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from ..trials import StudyPaths, TrialSpec
from .workload import Workload

_log = logging.getLogger(__name__)

#: A message has at most so many bytes of a file, so that no process holds a whole checkpoint.
PART_BYTES = 4_000_000
#: The executed notebook of a trial; its files in folders are named `checkpoints/…`, `artifacts/…`.
NOTEBOOK = "notebook"
#: A file that is larger does not travel, nor do further ones once all are more than this together.
_FILE_BYTES, _ALL_BYTES = 10_000_000, 100_000_000
#: The most names that the line about files that do not travel has.
_MOST_NAMES = 3

#: Size and time of the last change of a file.
Stamp = tuple[int, int]


def path_of(spec: TrialSpec, name: str) -> Path:
    """Where a file of a trial lies on the machine of this spec.

    Raises:
        ValueError: no file of the trial can have this name.
    """
    if name == NOTEBOOK:
        return spec.notebook
    kind, _, rest = name.partition("/")
    folder = {"checkpoints": spec.checkpoint_dir, "artifacts": spec.artifact_dir}.get(kind)
    path = PurePosixPath(rest)
    is_plain = str(path) == rest and path.parts and "\0" not in rest
    if folder is None or not is_plain or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{name!r} is no file of trial {spec.run_id}")
    return folder / rest


def files_of(spec: TrialSpec, *, with_folders: bool) -> dict[str, Stamp]:
    """The files of a trial on this machine.

    Args:
        with_folders: whether those of checkpoints and artifacts count as well.
    """
    names = [NOTEBOOK]
    if with_folders:
        folders = {"checkpoints": spec.checkpoint_dir, "artifacts": spec.artifact_dir}
        for kind, folder in folders.items():
            names += [f"{kind}/{path.relative_to(folder)}" for path in files_below(folder)]
    found = {}
    for name in names:
        with suppress(FileNotFoundError):
            found[name] = stamp_of(path_of(spec, name).stat())
    return found


def stamp_of(found: os.stat_result) -> Stamp:
    """Size and time of the last change of a file."""
    return found.st_size, found.st_mtime_ns


def files_below(folder: Path) -> list[Path]:
    """All complete files below a folder."""
    found: list[Path] = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.endswith(".part")]
        found += [Path(place, name) for name in sorted(names) if not name.endswith(".part")]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """The paths of home as a worker has them.

    Attributes:
        root: the worker's private folder, below which its copies stand.
        is_shared: whether home's own folders lie on a disk of both, and are used in place.
    """

    root: Path
    is_shared: bool = False

    def copy(self, path: Path) -> Path:
        """Where the worker's own copy of a file of home is."""
        return self.root / path.relative_to(path.anchor)

    def workload(self, workload: Workload, *, host: str) -> Workload:
        """What trials have in common, at the worker."""
        home, code = workload.paths, None
        if workload.snapshot is not None and not self.is_shared:
            code = self.copy(Path(workload.snapshot.folder)).resolve()
        # Processes bear the mark of this folder, so it is never that of home.
        paths = StudyPaths(
            template=str(self.copy(Path(home.template))),
            study=home.study,
            root=self.copy(home.root),
        )
        cwd = workload.cwd if self.is_shared else self.copy(workload.cwd)
        return replace(workload, cwd=cwd, paths=paths, code_folder=code, host=host)

    def spec(self, spec: TrialSpec) -> TrialSpec:
        """A trial's spec at the worker. Executed notebooks are always copies."""
        there = replace(
            spec,
            notebook=self.copy(spec.notebook),
            continues=None if spec.continues is None else self.copy(spec.continues),
        )
        if self.is_shared:
            return there
        return replace(
            there,
            checkpoint_dir=self.copy(spec.checkpoint_dir),
            artifact_dir=self.copy(spec.artifact_dir),
            inputs={n: replace(it, path=self.copy(it.path)) for n, it in spec.inputs.items()},
        )


def travelling_files(workload: Workload) -> list[Path]:
    """The files beside the notebook that a worker without its folder gets; a line names the others.

    The notebook and the modules that it imports travel in any case, with the workload.
    """
    travelling, left_behind, total = [], [], 0
    for path in sorted(_beside(workload)):
        try:
            size = path.stat().st_size
        except OSError:  # gone meanwhile
            continue
        if size > _FILE_BYTES or total + size > _ALL_BYTES:
            left_behind.append((size, path))
        else:
            total += size
            travelling.append(path)
    names = [
        f"{os.path.relpath(path, workload.cwd)} ({size / 1e6:.0f} MB)"
        for size, path in sorted(left_behind, reverse=True)
    ]
    if names:
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        _log.warning(
            "large files do not travel to workers: %s%s; put data on a disk that the workers have, "
            "and name it in the notebook by its absolute path",
            ", ".join(names[:_MOST_NAMES]),
            more,
        )
    return travelling


def _beside(workload: Workload) -> Iterator[Path]:
    """The files below the notebook's folder without studies, hidden files and environments."""
    paths = workload.paths
    others = {paths.folder, paths.tracking, paths.artifacts}
    if workload.data is not None:  # each machine fetches it
        others.add(workload.data.place())
    for place, folders, names in os.walk(workload.cwd):
        folder = Path(place)
        folders[:] = [
            name
            for name in folders
            if not name.startswith((".", "__pycache__"))
            and folder / name not in others
            and not (folder / name / "pyvenv.cfg").exists()
            and not (folder / name / "sweep.lock").exists()  # of another study
        ]
        for path in (folder / name for name in names):
            is_own = path.name.startswith(".") or path.suffix == ".ipynb" or path in others
            if not is_own and path.is_file():
                yield path
