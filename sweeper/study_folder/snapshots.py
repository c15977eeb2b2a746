"""Keep the code and the environments of trials in the study's folder.

A snapshot is the code that a sweep read when it began. An environment describes where a trial ran.
A trial's executed notebook names both, in `snapshot` and `environment` of `metadata.sweeper`. The
names are hashes of the content. So equal content has one file, however many sweeps used it, and no
file ever changes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..errors import StudyError
from ..files import write_atomically
from ..trials import StudyPaths, display_path
from .ownership import unwritable

_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSnapshot:
    """The code that the trials of a sweep run, as it was when the sweep began.

    Attributes:
        folder: Folder of the research notebook, as an absolute path without symbolic links.
        notebook_name: Name of the research notebook's file.
        notebook: Content of that file, without outputs.
        parameters_name: Name of the parameters file. Empty if there was none.
        parameters: Settings of the sweep as a parameters file, with command-line options and
            without secrets.
        files: Sources of the local modules that the notebook imports or runs, by path relative to
            `folder`. Bytes that are not UTF-8 are lone surrogates (`surrogateescape`).
    """

    folder: str
    notebook_name: str
    notebook: str
    parameters_name: str = ""
    parameters: str = ""
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the snapshot: 12 hexadecimal digits, a hash of all fields except cell ids."""
        # Notebooks of formats before 4.5 get new cell ids each time they are read, so the ids are
        # left out.
        node = json.loads(self.notebook)
        for cell in node.setdefault("cells", []):
            cell.pop("id", None)
        return _name_of({**asdict(self), "notebook": node})

    @property
    def versions(self) -> dict[str, str]:
        """Short hashes of the code: of all code cells together, and of each file in `files`.

        The keys are `code cells` and the paths of the files.
        """
        cells = json.loads(self.notebook).get("cells", [])
        sources = ["".join(cell["source"]) for cell in cells if cell.get("cell_type") == "code"]
        return {
            "code cells": _name_of({"sources": sources}),
            **{path: _name_of({"source": source}) for path, source in self.files.items()},
        }

    @property
    def notebook_path(self) -> str:
        """Absolute path of the research notebook."""
        return os.path.join(self.folder, self.notebook_name)

    def frozen_in(self, folder: str) -> dict[str, str]:
        """Return the sources in `files`, by the absolute path of each file.

        Args:
            folder: Folder of the notebook now. It may differ from the attribute `folder`.
        """
        return {
            os.path.normpath(os.path.join(folder, path)): source
            for path, source in self.files.items()
        }


def keep_snapshot(paths: StudyPaths, snapshot: CodeSnapshot) -> str:
    """Write a snapshot into the study's folder, unless it exists already. Return its name.

    Raises:
        OutputError: The file cannot be written.
    """
    name = snapshot.name
    try:
        _keep(paths.snapshot(name), asdict(snapshot))
    except OSError as error:
        raise unwritable(paths.snapshot(name), error) from error
    return name


def keep_environment(paths: StudyPaths, environment: Mapping[str, Any]) -> str:
    """Write the description of an environment in which trials run into the study's folder.

    If the same description is there already, it is not written again. Return the name of the
    environment, which is a hash of the description.

    Raises:
        OSError: The file cannot be written.
    """
    name = _name_of(environment)
    _keep(paths.environment(name), environment)
    return name


def read_snapshot(paths: StudyPaths, name: str) -> CodeSnapshot:
    """Read a snapshot.

    Args:
        paths: Paths of the study.
        name: Name of the snapshot, from `snapshot` in a trial's `metadata.sweeper`.

    Raises:
        StudyError: The file is missing or has changed.
    """
    file = paths.snapshot(name)
    try:
        snapshot = CodeSnapshot(**_read(file))
        is_whole = snapshot.name == name
    except (ValueError, AttributeError, TypeError):
        is_whole = False
    if not is_whole:
        raise _changed(file)
    return snapshot


def read_environment(paths: StudyPaths, name: str) -> Mapping[str, Any]:
    """Read the description of the environment in which a trial ran.

    Args:
        paths: Paths of the study.
        name: Name of the environment, from `environment` in the trial's `metadata.sweeper`.

    Raises:
        StudyError: The file is missing or damaged.
    """
    return _read(paths.environment(name))


def _name_of(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=_DIGITS // 2).hexdigest()


def _keep(file: Path, content: Mapping[str, Any]) -> None:
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(content, indent=1, sort_keys=True))


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text("utf-8"))
    except FileNotFoundError as error:
        raise StudyError(f"{display_path(file)}: there is no such file") from error
    except (OSError, ValueError) as error:
        raise StudyError(f"{display_path(file)}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise _changed(file)
    return content


def _changed(file: Path) -> StudyError:
    return StudyError(
        f"{display_path(file)}: was changed after the sweep had written it; put the original back"
    )
