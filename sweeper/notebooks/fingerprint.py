"""Fingerprint of a study: everything that decides the results of its trials.

Two trials can be compared if they ran the same cells over the same search space, with the same
local modules. Settings that only decide how trials run (`jobs`, limits, forked kernels) are not
part of the fingerprint.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from ..settings import Settings
from ..trials import value_text
from .local_code import local_code, text_of
from .metadata import TrialMetadata, as_json
from .reading import cell_tags, code_cells
from .research import ResearchNotebook

#: JSON data: hashes of the cells and of the local modules, and the keys of the parameters file that
#: decide the params.
Fingerprint = Mapping[str, Any]

#: MLflow tag with a hash of the fingerprint. Runs with other code or settings have another value.
CODE_TAG = "sweeper.code"
_FIXED_TAG = "sweeper.fixed."

_DIGITS = 16
#: Tag of a cell whose exceptions do not end a trial.
_RAISES = "raises-exception"
#: The sections of the parameters file that are part of the fingerprint.
SECTIONS = ("space", "fixed", "scores", "objective", "inputs")


def fingerprint_of(
    notebook: ResearchNotebook,
    settings: Settings,
    *,
    kernel_name: str,
    code: Mapping[Path, bytes] | None = None,
) -> Fingerprint:
    """Return the fingerprint of a notebook's trials under these settings.

    The fingerprint states what decides the results: hashes of the cells and of the local modules,
    the kernel, the seed, `repeat`, `cpus_per_trial`, and the entries of the sections `SECTIONS` of
    the parameters file with all their keys.

    Args:
        notebook: Research notebook.
        settings: Settings of the sweep.
        kernel_name: Name of the kernel, or absolute path of its interpreter.
        code: Local modules, as `local_code` returns them. None means that they are read now.
    """
    folder = notebook.path.parent
    data = as_json(settings.model_dump(exclude_none=True))
    code = local_code(notebook.code, folder) if code is None else code
    cells = []
    for cell, source in zip(code_cells(notebook.node), notebook.code, strict=True):
        may_raise = _RAISES in cell_tags(cell)
        cells.append(_digest(f"# {_RAISES}\n{source}" if may_raise else source))
    fingerprint = {
        "cells": cells,
        "files": {
            os.path.relpath(path, folder): _digest(text_of(code[path])) for path in sorted(code)
        },
        "study.seed": settings.study.seed,
        "repeat": data.get("repeat"),
        "resources.cpus_per_trial": settings.resources.threads,
        "kernel": _portable(kernel_name, folder),
    }
    for key in SECTIONS:
        for name, part in data[key].items():
            fingerprint[f"{key}.{name}"] = part
    return fingerprint


def _portable(kernel: str, folder: Path) -> str:
    """Return the name of a kernel for the fingerprint.

    The path of an interpreter becomes relative to the notebook's folder if its environment is in
    that folder or in a folder above. The user's home is `~`. So the fingerprint stays the same on
    another machine and for another user.
    """
    if not Path(kernel).is_absolute():
        return kernel
    environment = Path(kernel).parent.parent
    project = environment.parent  # PROJECT, if the kernel is PROJECT/.venv/bin/python.
    if environment.parts[-3:-1] == (".pixi", "envs"):
        project = environment.parents[2]
    folder = Path(os.path.abspath(folder))
    if _is_below(folder, project):
        return os.path.relpath(kernel, folder)
    home = Path(os.path.expanduser("~"))  # `Path.home` raises an error for a user without a home.
    if _is_below(Path(kernel), home):
        return f"~/{Path(kernel).relative_to(home).as_posix()}"
    return kernel


def _is_below(path: Path, folder: Path) -> bool:
    """Return whether a path is in a folder. False if the folder is the root of the file system."""
    return folder != folder.parent and path.is_relative_to(folder)


def version(fingerprint: Fingerprint) -> str:
    """Return a short name of a fingerprint: eight hexadecimal digits of its hash."""
    return _digest(json.dumps(fingerprint, sort_keys=True))[:8]


def tags_of(
    settings: Settings, fingerprint: Fingerprint, notebook: Path, sampler: str
) -> dict[str, str]:
    """Return the MLflow tags that all trials of a sweep have."""
    tags = {
        "sweeper.study": settings.name,
        "sweeper.notebook": str(notebook),
        "sweeper.kernel": fingerprint["kernel"],
        "sweeper.sampler": sampler,
        CODE_TAG: version(fingerprint),
        "sweeper.threads": str(settings.resources.threads),
        **_tags_of_fixed(settings.fixed),
    }
    if "data" in fingerprint:
        tags["sweeper.data"] = fingerprint["data"]
    return tags


def tags_as_run(tags: Mapping[str, str], metadata: TrialMetadata) -> dict[str, str]:
    """Return the tags of a trial with the code version and fixed params with which it ran.

    They may differ from those of this sweep if an earlier sweep ran the trial.

    Args:
        tags: Tags that all trials of this sweep have.
        metadata: Metadata of the trial's executed notebook. `BLANK` if they cannot be read. Then
            the result is equal to `tags`.
    """
    if not metadata.code:
        return dict(tags)
    as_run = {**_tags_of_fixed(metadata.fixed), CODE_TAG: metadata.code}
    for name, value in tags.items():
        if not name.startswith(_FIXED_TAG):
            as_run.setdefault(name, value)
    return as_run


def _tags_of_fixed(fixed: Mapping[str, Any]) -> dict[str, str]:
    return {f"{_FIXED_TAG}{name}": value_text(value) for name, value in fixed.items()}


def changes(before: Fingerprint, now: Fingerprint) -> list[str]:
    """Return the changes between two fingerprints in words. Empty if they are equal."""
    found = _changed_cells(before["cells"], now["cells"])
    old_files, new_files = before["files"], now["files"]
    for path in sorted(old_files | new_files):
        if path not in new_files:
            found.append(f"{path} is no longer used")
        elif path not in old_files:
            found.append(f"{path} is used now")
        elif old_files[path] != new_files[path]:
            found.append(f"{path} has changed")
    for key in sorted({*before, *now} - {"cells", "files"}):
        if key not in now:
            found.append(f"{key} was {_brief(before[key])}, now it is missing")
        elif key not in before:
            found.append(f"{key} is new: {_brief(now[key])}")
        elif before[key] != now[key]:
            found.append(f"{key} was {_brief(before[key])}, now {_brief(now[key])}")
    return found


def made_files(before: Fingerprint, now: Fingerprint) -> list[str]:
    """Return the local modules that only one of two fingerprints has, if the cells are the same.

    As the same cells import these modules, the trials themselves make them, for example by a
    download or `git clone`. Empty if the cells differ.

    Args:
        before: The earlier fingerprint, or some keys of it.
        now: The new fingerprint.
    """
    if before.get("cells") != now["cells"]:
        return []
    return sorted(before["files"].keys() ^ now["files"].keys())


def without_made_files(before: Fingerprint, now: Fingerprint) -> Fingerprint:
    """Return the new fingerprint with the same trial-made modules as the earlier one.

    `made_files` finds the modules that trials make. Without this change, the two fingerprints could
    differ only because a trial has made a module in between.

    Args:
        before: The earlier fingerprint, or some keys of it.
        now: The new fingerprint.
    """
    files = dict(now["files"])
    for path in made_files(before, now):
        if path in files:
            del files[path]
        else:
            files[path] = before["files"][path]
    return {**now, "files": files}


def _changed_cells(before: Sequence[str], now: Sequence[str]) -> list[str]:
    found = []
    matcher = SequenceMatcher(None, before, now, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "delete":
            found.append(f"earlier {_cells(i1, i2)} removed")
        elif tag == "insert":
            found.append(f"{_cells(j1, j2)} added")
        elif tag == "replace":
            found.append(f"{_cells(j1, j2)} changed")
    return found


def _cells(start: int, end: int) -> str:
    """Return the code cells from index `start` to `end - 1` in words. People count them from 1."""
    return f"code cell {start + 1}" if end - start == 1 else f"code cells {start + 1} to {end}"


def _brief(value: Any) -> str:
    if isinstance(value, Mapping):
        # Leave out False and empty values: they are defaults, which parameters files do not state.
        stated = {
            key: part
            for key, part in value.items()
            if part is not False and part not in (None, {}, [])
        }
        return json.dumps(stated).replace('"', "")
    return json.dumps(value)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.strip().encode(), digest_size=_DIGITS // 2).hexdigest()
