"""What home and a worker compare and exchange: their Python, and the files of a trial by name."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..execution.environment import python_of
from ..execution.workload import Workload
from ..files import below
from ..kernels import environment_of, interpreter_of
from ..trials import TrialSpec

_log = logging.getLogger(__name__)

#: A message has at most so many bytes of a file, so that no process holds a whole checkpoint.
PART_BYTES = 4_000_000
#: The executed notebook of a trial; its files in folders are named `checkpoints/…`, `artifacts/…`.
NOTEBOOK = "notebook"
#: A file that is larger does not travel, nor do further ones once all are more than this together.
_FILE_BYTES, _ALL_BYTES = 10_000_000, 100_000_000
#: The most files or packages that a message names.
_MOST_NAMES = 5
#: What installs packages has no part in a result.
_INSTALLERS = frozenset({"pip", "setuptools", "uv", "wheel"})

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
    try:
        return below(_folders(spec)[kind], rest)
    except (KeyError, ValueError) as error:
        raise ValueError(f"{name!r} is no file of trial {spec.run_id}") from error


def files_of(spec: TrialSpec) -> dict[str, Stamp]:
    """The files of a trial on this machine: its notebook, checkpoints and artifacts."""
    names = [NOTEBOOK]
    for kind, folder in _folders(spec).items():
        names += [f"{kind}/{path.relative_to(folder)}" for path in files_below(folder)]
    found = {}
    for name in names:
        with suppress(FileNotFoundError):
            found[name] = stamp_of(path_of(spec, name).stat())
    return found


def _folders(spec: TrialSpec) -> dict[str, Path]:
    return {"checkpoints": spec.checkpoint_dir, "artifacts": spec.artifact_dir}


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
    """

    root: Path

    def copy(self, path: Path) -> Path:
        """Where the worker's own copy of a file of home is."""
        return self.root / path.relative_to(path.anchor)

    def workload(self, workload: Workload, *, host: str) -> Workload:
        """What trials have in common, at the worker."""
        home, code = workload.paths, None
        if workload.snapshot is not None:
            code = self.copy(Path(workload.snapshot.folder)).resolve()
        # Processes bear the mark of this folder, so it is never that of home.
        paths = home.copied_below(self.root)
        cwd = self.copy(workload.cwd)
        url = workload.tracking or ""
        return replace(
            workload,
            cwd=cwd,
            paths=paths,
            code_folder=code,
            host=host,
            tracking=url if url.startswith("http") else None,  # a file at home cannot be reached
        )

    def spec(self, spec: TrialSpec) -> TrialSpec:
        """A trial's spec at the worker."""
        return replace(
            spec,
            notebook=self.copy(spec.notebook),
            continues=None if spec.continues is None else self.copy(spec.continues),
            checkpoint_dir=self.copy(spec.checkpoint_dir),
            artifact_dir=self.copy(spec.artifact_dir),
            inputs={n: replace(file, path=self.copy(file.path)) for n, file in spec.inputs.items()},
        )


def travelling_files(workload: Workload) -> tuple[list[Path], list[Path]]:
    """The files beside the notebook that each worker gets, and those that are too large for that.

    A line names the large ones. The notebook and the modules that it imports travel in any case,
    with the workload; what does not travel are studies, hidden files and environments.
    """
    paths = workload.paths
    others = {paths.folder, paths.tracking, paths.artifacts}
    if workload.data is not None:  # each machine fetches it
        others.add(workload.data.place())
    travelling: list[Path] = []
    large: list[Path] = []
    total = 0
    for place, folders, names in os.walk(workload.cwd):
        folders[:] = [
            name
            for name in sorted(folders)
            if not name.startswith((".", "__pycache__"))
            and Path(place, name) not in others
            and not Path(place, name, "pyvenv.cfg").exists()
            and not Path(place, name, "sweep.lock").exists()  # of another study
        ]
        for path in (Path(place, name) for name in sorted(names)):
            is_own = path.name.startswith(".") or path.suffix == ".ipynb" or path in others
            if is_own or not path.is_file():
                continue
            size = path.stat().st_size
            if size > _FILE_BYTES or total + size > _ALL_BYTES:
                large.append(path)
            else:
                total += size
                travelling.append(path)
    if large:
        _log.warning(
            "large files do not travel: each worker uses what it has at the same paths: %s",
            _some([str(path) for path in large]),
        )
    return travelling, large


def kernel_python(kernel_name: str) -> dict[str, Any] | None:
    """The Python of a kernel here, as `python_of` describes it; None where none answers."""
    return python_of(interpreter_of(kernel_name), environment_of(kernel_name, os.environ))


def difference(here: Mapping[str, Any] | None, there: Mapping[str, Any] | None) -> str:
    """What keeps a worker from running trials; empty where nothing does.

    Args:
        here: the Python of the kernel at home; None where that is of another language.
        there: the one of the worker; None where none answers.
    """
    if here is None:
        return ""
    if there is None:
        return "the Python of the notebook's kernel does not answer there"
    ours = {"Python": _minor(here), **here["packages"]}
    theirs = {"Python": _minor(there), **there["packages"]}
    both = [name for name in ours if name in theirs and name not in _INSTALLERS]
    differ = [name for name in both if ours[name] != theirs[name]]
    return _some([f"{name}: {ours[name]} here, {theirs[name]} there" for name in differ])


def _minor(python: Mapping[str, Any]) -> str:
    """An implementation and its version, without the third number, which changes no result."""
    return f"{python['implementation']} {python['version'].rpartition('.')[0]}"


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
