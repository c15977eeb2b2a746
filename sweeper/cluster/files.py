"""Name the files that the sweep's machine and a worker exchange, and compare Python packages.

Both machines use the same name for a file of a trial, although its paths on them differ.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..execution.environment import python_of
from ..execution.workload import Workload
from ..files import below, files_below
from ..kernels import environment_of, interpreter_of
from ..notebook_api.checkpoints import is_checkpoint
from ..trials import TrialSpec, some_of

_log = logging.getLogger(__name__)

#: Files travel in parts of at most this many bytes, so that no process holds a whole checkpoint in
#: memory.
PART_BYTES = 4_000_000
#: Name of a trial's executed notebook. The names of its other files are `checkpoints/…` and
#: `artifacts/…`.
NOTEBOOK = "notebook"
#: A file in the notebook's folder is sent to workers only if it has at most the first number of
#: bytes, and if all sent files together have at most the second number (chosen, not measured).
_FILE_BYTES, _ALL_BYTES = 10_000_000, 100_000_000
#: A message names at most this many files or packages.
_MOST_NAMES = 5
#: Packages that may differ between machines, because installers do not change a result.
_INSTALLERS = frozenset({"pip", "setuptools", "uv", "wheel"})

#: Size of a file in bytes, and the time of its last change in nanoseconds.
Stamp = tuple[int, int]


def path_of(spec: TrialSpec, name: str) -> Path:
    """Return the path of a trial's file, on the machine for which the paths in the spec are valid.

    Args:
        spec: Spec of the trial.
        name: Name of the file, as `files_of` returns it.

    Raises:
        ValueError: No file of the trial can have this name.
    """
    if name == NOTEBOOK:
        return spec.notebook
    kind, _, rest = name.partition("/")
    try:
        return below(_folders(spec)[kind], rest)
    except (KeyError, ValueError) as error:
        raise ValueError(f"{name!r} is not a file of trial {spec.run_id}") from error


def files_of(spec: TrialSpec) -> dict[str, Stamp]:
    """Return the files of a trial on this machine: its notebook, checkpoints and artifacts.

    Returns:
        The size and the time of the last change of each file that exists, by the file's name.
    """
    names = [NOTEBOOK]
    for kind, folder in _folders(spec).items():
        names += [f"{kind}/{path.relative_to(folder)}" for path in files_below(folder)]
    found = {}
    for name in names:
        with suppress(FileNotFoundError):
            found[name] = stamp_of(path_of(spec, name).stat())
    return found


def kind_of(name: str) -> str:
    """Return the kind of a trial's file: notebook, checkpoints or artifacts."""
    return name.partition("/")[0]


def is_whole_at_once(name: str) -> bool:
    """Return whether a trial's file is complete as soon as it exists.

    Notebooks and checkpoints are written under other names and renamed when they are complete.
    """
    kind, _, rest = name.partition("/")
    return name == NOTEBOOK or (kind == "checkpoints" and is_checkpoint(rest))


def _folders(spec: TrialSpec) -> dict[str, Path]:
    return {"checkpoints": spec.checkpoint_dir, "artifacts": spec.artifact_dir}


def stamp_of(found: os.stat_result) -> Stamp:
    """Return the size and the time of the last change of a file."""
    return found.st_size, found.st_mtime_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirror:
    """Translates paths of the sweep's machine to the paths of their copies on a worker.

    Attributes:
        root: Private folder of the worker. It contains the copies.
    """

    root: Path

    def copy(self, path: Path) -> Path:
        """Return the path that the copy of a file of the sweep's machine has on the worker.

        This copies no file. Neither the file nor its copy need exist.
        """
        return self.root / path.relative_to(path.anchor)

    def workload(self, workload: Workload, *, host: str) -> Workload:
        """Return the workload (what all trials have in common) with the paths of the copies.

        Args:
            workload: Workload with the paths of the sweep's machine.
            host: Name of the worker's machine.
        """
        # When a sweep dies, its guard process kills all processes whose mark in the environment
        # contains the study's folder. The worker may run on the sweep's machine. So its copy of the
        # study must have another folder, or the guard would kill the worker's processes.
        paths = workload.paths.copied_below(self.root)
        url = workload.tracking or ""
        return replace(
            workload,
            cwd=self.copy(workload.cwd),
            paths=paths,
            code_folder=self._code_folder(workload),
            host=host,
            # A worker cannot reach an MLflow store in a file of the sweep's machine.
            tracking=url if url.startswith("http") else None,
        )

    def link_folder(self, workload: Workload) -> None:
        """Make the worker's copy of the notebook's folder, before any file is sent.

        If the path of the folder contains symbolic links on the sweep's machine, the copy is a link
        to the copy of the folder to which these links lead. So the notebook finds modules next to
        that folder, as on the sweep's machine.

        Args:
            workload: Workload with the paths of the sweep's machine.
        """
        cwd = self.copy(workload.cwd)
        folder = self._code_folder(workload) or cwd
        folder.mkdir(parents=True, exist_ok=True)
        if cwd != folder:
            cwd.parent.mkdir(parents=True, exist_ok=True)
            cwd.symlink_to(folder)

    def _code_folder(self, workload: Workload) -> Path | None:
        if workload.snapshot is None:
            return None
        return self.copy(Path(workload.snapshot.folder))

    def lay_out(self, workload: Workload, folder: NotebookFolder) -> None:
        """Add modules, folders and links to the worker's copies of the files that were sent.

        Args:
            workload: Workload with the paths of the worker's copies.
            folder: What is in the notebook's folder on the sweep's machine.
        """
        for file, source in workload.frozen.items():
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            Path(file).write_bytes(source.encode("utf-8", "surrogateescape"))
        for path in folder.made:
            self.copy(path).mkdir(parents=True, exist_ok=True)
        for path in folder.linked:
            copy = self.copy(path)
            # Make no link to a missing file: a notebook that writes this file would fail. Use
            # `os.path`: `Path.exists` raises an error in a folder that the user may not enter.
            if os.path.exists(path) and not os.path.lexists(copy):
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.symlink_to(path)

    def spec(self, spec: TrialSpec) -> TrialSpec:
        """Return a trial's spec with the paths of the worker's copies."""
        inputs = {}
        for name, file in spec.inputs.items():
            inputs[name] = replace(file, path=self.copy(file.path))
        return replace(
            spec,
            notebook=self.copy(spec.notebook),
            continues=None if spec.continues is None else self.copy(spec.continues),
            checkpoint_dir=self.copy(spec.checkpoint_dir),
            artifact_dir=self.copy(spec.artifact_dir),
            inputs=inputs,
        )


@dataclass(frozen=True, kw_only=True)
class NotebookFolder:
    """What is in the notebook's folder, without the notebook and the modules that it imports.

    Attributes:
        sent: Files to send to each worker.
        linked: Large files and linked folders. A worker uses what it has at the same paths.
        made: Folders to make on each worker, which may be empty.
    """

    sent: list[Path] = field(default_factory=list)
    linked: list[Path] = field(default_factory=list)
    made: list[Path] = field(default_factory=list)


def notebook_folder(workload: Workload) -> NotebookFolder:
    """List the files and folders in the notebook's folder. Warn if some of them are not sent.

    Notebooks and hidden files are left out. So are the paths that `_others` returns, and folders
    for which `_is_apart` is True, such as virtual environments and other studies.
    """
    others = _others(workload)
    found = NotebookFolder()
    total = 0
    for place, folders, names in os.walk(workload.cwd):
        below = [Path(place, name) for name in sorted(folders)]
        below = [path for path in below if path not in others and not _is_apart(path)]
        folders[:] = [path.name for path in below]
        for path in below:
            kind = found.linked if path.is_symlink() else found.made
            kind.append(path)
        for name in sorted(names):
            path = Path(place, name)
            is_own = name.startswith(".") or path.suffix == ".ipynb" or path in others
            if is_own or not os.path.isfile(path):
                continue
            size = path.stat().st_size
            if size > _FILE_BYTES or total + size > _ALL_BYTES:
                found.linked.append(path)
            else:
                total += size
                found.sent.append(path)
    if found.linked:
        _log.warning(
            "large files and linked folders are not sent to workers, which read their own at the "
            "same paths: %s",
            some_of([str(path) for path in found.linked], _MOST_NAMES),
        )
    return found


def _others(workload: Workload) -> set[Path]:
    """Return the paths that a worker gets in another way, or does not need.

    These are the study's own files, the data, and the modules that are sent with the workload.
    """
    paths = workload.paths
    others = {paths.folder, paths.tracking, paths.artifacts}
    if workload.snapshot is not None:
        others.update(map(Path, workload.snapshot.frozen_in(str(workload.cwd))))
    if workload.data is not None:  # Each machine fetches the data itself.
        others.add(workload.data.place())
    return others


def _is_apart(folder: Path) -> bool:
    """Return whether a folder is of a kind that is never sent to workers.

    Such a folder is hidden, a `__pycache__`, a virtual environment, or the folder of a study.
    """
    is_hidden = folder.name.startswith((".", "__pycache__"))
    marks = (folder / "pyvenv.cfg", folder / "sweep.lock")
    return is_hidden or any(map(os.path.exists, marks))


def kernel_python(kernel_name: str) -> dict[str, Any] | None:
    """Return the Python version and packages of a kernel on this machine; see `python_of`.

    Return None if the kernel is not for Python, or if its interpreter does not answer.
    """
    return python_of(interpreter_of(kernel_name), environment_of(kernel_name, os.environ))


def difference(here: Mapping[str, Any] | None, there: Mapping[str, Any] | None) -> str | None:
    """Return in words how a worker's Python and packages differ from those of the sweep's machine.

    Return None if they do not differ. A worker where they differ must not run trials, because the
    results could differ, too.

    Args:
        here: Result of `kernel_python` on the sweep's machine. If it is None, nothing is compared.
        there: Result of `kernel_python` on the worker. None counts as a difference.
    """
    if here is None:
        return None
    if there is None:
        return "the Python of the notebook's kernel does not answer there"
    ours = {"Python": _minor(here), **here["packages"]}
    theirs = {"Python": _minor(there), **there["packages"]}
    both = [name for name in ours if name in theirs and name not in _INSTALLERS]
    differ = [name for name in both if ours[name] != theirs[name]]
    if not differ:
        return None
    lines = [f"{name}: {ours[name]} here, {theirs[name]} there" for name in differ]
    return some_of(lines, _MOST_NAMES)


def _minor(python: Mapping[str, Any]) -> str:
    """Return a Python's implementation and first two version numbers, such as `CPython 3.12`.

    Pythons that differ only in the third number count as equal, because it does not change a
    result.
    """
    return f"{python['implementation']} {python['version'].rpartition('.')[0]}"
