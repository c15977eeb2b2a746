"""Read the modules and scripts beside a notebook that it imports or runs."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from .cell_code import parse_or_none, plain_python

_RUN = re.compile(r"^\s*%run\s+(?:-\w+\s+)*[\"']?([\w./-]+)", re.MULTILINE)
#: Calls and magics with which a notebook writes a module of its own.
_WRITES = re.compile(
    r"""^%%(?:writefile|file)\s+(?:-a\s+)?["']?([^\s"']+)"""
    r"""|\bopen\(\s*["']([^"']+\.py)["']\s*,\s*["'][wax]"""
    r"""|\bPath\(\s*["']([^"']+\.py)["']\s*\)\.write_""",
    re.MULTILINE,
)


def text_of(content: bytes) -> str:
    """Return the text of a file of code."""
    return content.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")


def local_code(code: Sequence[str], folder: Path) -> dict[Path, bytes]:
    """Read the local modules and scripts that a notebook imports or runs, directly or indirectly.

    A file that the notebook itself writes is left out, because each trial writes its own content.
    So is a file that cannot be read. Python passes over a folder that it may not enter.

    Args:
        code: Sources of the notebook's code cells.
        folder: Folder of the notebook.

    Returns:
        The content of each file, by its absolute path without symbolic links.
    """
    folder = folder.resolve()
    roots = [folder]
    found: dict[Path, bytes] = {}
    own = {
        (folder / next(filter(None, names))).resolve()
        for source in code
        for names in _WRITES.findall(source)
    }
    waiting: list[tuple[str, Path | None]] = [(source, None) for source in code]
    while waiting:
        source, file = waiting.pop(0)
        scripts = [folder / name for name in _RUN.findall(source)]
        ran = [*scripts, *(script.with_name(f"{script.name}.py") for script in scripts)]
        tree = parse_or_none(plain_python(source))
        if tree is not None:
            roots += [folder / path for path in _added_to_path(tree)]
            ran += [
                path for name in _imported(tree, file, roots) for path in _files_of(name, roots)
            ]
        new = {path.resolve() for path in ran if _is_readable(path)} - found.keys() - own
        for path in sorted(new):
            found[path] = path.read_bytes()
            waiting.append((text_of(found[path]), path))
    return found


def _is_readable(path: Path) -> bool:
    """Return whether a path is a file that can be read. False if its name is too long."""
    return os.path.isfile(path) and os.access(path, os.R_OK)  # `Path.is_file` may raise.


def _added_to_path(tree: ast.Module) -> Iterator[str]:
    """Yield the folders that code adds to `sys.path`, if the code states them as literals."""
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
    """Yield the dotted names in imports that may name modules. Relative names become absolute.

    Args:
        tree: Syntax tree of the code.
        file: File of the code. None for the notebook.
        roots: Folders in which Python looks for modules.
    """
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
    """Yield the files in which a module and the packages around it may be defined."""
    parts = [part for part in name.split(".") if part]
    for root in roots:
        for depth in range(1, len(parts) + 1):
            place = root.joinpath(*parts[:depth])
            yield from (place.with_suffix(".py"), place / "__init__.py")
