"""What the trials of a study are made of, and what of it has changed since.

Two trials can be compared when they ran the same cells over the same space, with the same code
beside the notebook. What only says how they are run (how many at once, in which kernels, within
which limits) is left out.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from ..settings import Settings
from ..trials import value_text
from .research import ResearchNotebook

#: What a study is made of, as JSON: digests of its cells and of the code beside it; and what is
#: swept, in the words of the parameters file.
Fingerprint = Mapping[str, Any]

#: The tag with the version of what trials are made of.
CODE_TAG = "sweeper.code"

_DIGITS = 16
#: Line magics and shell commands, which are no Python.
_MAGIC = re.compile(r"^(\s*)[%!].*$", re.MULTILINE)
_RUN = re.compile(r"^\s*%run\s+(?:-\w+\s+)*[\"']?([\w./-]+)", re.MULTILINE)
#: Of the parameters file, what decides what a trial is.
_KEYS = ("space", "fixed", "scores", "objective")


def fingerprint_of(
    notebook: ResearchNotebook, settings: Settings, *, kernel_name: str
) -> Fingerprint:
    """What trials of this notebook under these settings are made of."""
    told = settings.model_dump(mode="json")
    return {
        "cells": [_digest(source) for source in notebook.code],
        "files": {
            os.path.relpath(path, notebook.path.parent): _digest(_read(path))
            for path in sorted(_local_code(notebook.code, notebook.path.parent.resolve()))
        },
        "study.seed": settings.study.seed,
        "resources.cpus_per_trial": settings.resources.threads,
        "kernel": kernel_name,
        **{f"{key}.{name}": part for key in _KEYS for name, part in told[key].items()},
    }


def version(made_of: Fingerprint) -> str:
    """A short name for it: equal for what is equal."""
    return _digest(json.dumps(made_of, sort_keys=True))[:8]


def tags_of(
    settings: Settings, made_of: Fingerprint, notebook: Path, sampler: str
) -> dict[str, str]:
    """What is the same for all trials of a sweep, as tags of their MLflow runs."""
    return {
        "sweeper.study": settings.name,
        "sweeper.notebook": str(notebook),
        "sweeper.kernel": made_of["kernel"],
        "sweeper.sampler": sampler,
        CODE_TAG: version(made_of),
        "sweeper.threads": str(settings.resources.threads),
        **{f"sweeper.fixed.{name}": value_text(value) for name, value in settings.fixed.items()},
    }


def changes(before: Fingerprint, now: Fingerprint) -> list[str]:
    """What has changed, in words; empty when nothing has."""
    said = _changed_cells(before["cells"], now["cells"])
    old_files, new_files = before["files"], now["files"]
    for path in sorted({*old_files, *new_files}):
        if path not in new_files:
            said.append(f"{path} is not used any more")
        elif path not in old_files:
            said.append(f"{path} is used now")
        elif old_files[path] != new_files[path]:
            said.append(f"{path} has changed")
    for key in sorted({*before, *now} - {"cells", "files"}):
        if key not in now:
            said.append(f"{key} was {_shown(before[key])}, and is gone")
        elif key not in before:
            said.append(f"{key} is new: {_shown(now[key])}")
        elif before[key] != now[key]:
            said.append(f"{key} was {_shown(before[key])}, now {_shown(now[key])}")
    return said


def _changed_cells(before: Sequence[str], now: Sequence[str]) -> list[str]:
    said = []
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, before, now, autojunk=False).get_opcodes():
        if tag == "delete":
            said.append(f"{_cells(i1, i2)} of before {'is' if i2 - i1 == 1 else 'are'} gone")
        elif tag != "equal":
            said.append(f"{_cells(j1, j2)} {'is new' if tag == 'insert' else 'changed'}")
    return said


def _cells(start: int, end: int) -> str:
    """Code cells from `start` to before `end`, counted from 1 as people do."""
    return f"code cell {start + 1}" if end - start == 1 else f"code cells {start + 1} to {end}"


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        # What a file leaves out is not missed in the message.
        kept = {k: v for k, v in value.items() if v is not False and v not in (None, {}, [])}
        return json.dumps(kept).replace('"', "")
    return json.dumps(value)


def _read(path: Path) -> str:
    return path.read_text("utf-8", "replace")


def _digest(text: str) -> str:
    return hashlib.blake2b(text.strip().encode(), digest_size=_DIGITS // 2).hexdigest()


def _local_code(sources: Sequence[str], folder: Path) -> set[Path]:
    """The files beside a notebook that its cells import or run, and those that these import."""
    roots = [folder]
    found: set[Path] = set()
    waiting: list[tuple[str, Path | None]] = [(source, None) for source in sources]
    while waiting:
        source, file = waiting.pop(0)
        ran = [folder / name for name in _RUN.findall(source)]
        tree = _parsed(source)
        if tree is not None:
            roots += [folder / path for path in _added_to_path(tree)]
            ran += [
                path for name in _imported(tree, file, roots) for path in _files_of(name, roots)
            ]
        for path in {path.resolve() for path in ran if path.is_file()} - found:
            found.add(path)
            waiting.append((_read(path), path))
    return found


def _parsed(source: str) -> ast.Module | None:
    if source.lstrip().startswith("%%"):
        return None
    try:
        return ast.parse(_MAGIC.sub(r"\1pass", source))
    except (SyntaxError, ValueError):
        return None


def _added_to_path(tree: ast.Module) -> Iterator[str]:
    """Folders that are put on the path by name, as notebooks below a project's root do."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("append", "insert")
            and ast.unparse(node.func.value) == "sys.path"
            and node.args
            and isinstance(last := node.args[-1], ast.Constant)
            and isinstance(last.value, str)
        ):
            yield last.value


def _imported(tree: ast.Module, file: Path | None, roots: Sequence[Path]) -> Iterator[str]:
    """Dotted names that may be modules; relative ones as seen from the roots."""
    package = ""
    if file is not None:
        for root in roots:
            if file.is_relative_to(root.resolve()):
                package = ".".join(file.parent.relative_to(root.resolve()).parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join(
                [*(above if node.level else []), *([node.module] if node.module else [])]
            )
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _files_of(name: str, roots: Sequence[Path]) -> Iterator[Path]:
    """Where a module may lie, and the packages above it."""
    parts = [part for part in name.split(".") if part]
    for root in roots:
        for depth in range(1, len(parts) + 1):
            place = root.joinpath(*parts[:depth])
            yield from (place.with_suffix(".py"), place / "__init__.py")
