"""Read the local modules, scripts and notebooks that a notebook imports or runs."""

from __future__ import annotations

import ast
import getopt
import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ..errors import NotebookError
from ..notebook_code.cell_code import parse_or_none, plain_python
from .reading import code_cells, read_notebook

#: Short options of IPython's `%run`, in the notation of `getopt`.
_RUN_OPTIONS = "nidtN:b:pD:l:rs:T:em:G"
#: Matches the calls and magics with which a notebook writes a local module itself.
_WRITES = re.compile(
    r"""^%%(?:writefile|file)\s+(?:-a\s+)?["']?([^\s"']+)"""
    r"""|\bopen\(\s*["']([^"']+\.py)["']\s*,\s*["'][wax]"""
    r"""|\bPath\(\s*["']([^"']+\.py)["']\s*\)\.write_""",
    re.MULTILINE,
)


def text_of(content: bytes) -> str:
    """Return the content of a code file as text (UTF-8), with Unix line ends."""
    return content.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")


def read_code(path: Path) -> bytes | None:
    """Read a file of code. Of a notebook, keep only its code cells, because only they run.

    Returns:
        The content. None if the file cannot be read.
    """
    try:
        if path.suffix.lower() != ".ipynb":
            return path.read_bytes()
        cells = code_cells(read_notebook(path, for_execution=True))
    except (OSError, NotebookError):
        return None
    kept = [
        {
            "cell_type": "code",
            "execution_count": None,
            "metadata": {},
            "outputs": [],
            "source": cell.source,
        }
        for cell in cells
    ]
    content = {"cells": kept, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    return json.dumps(content, indent=1).encode()


def sources_of(path: Path, content: bytes) -> list[str]:
    """Return the code in a file that `read_code` has read: of a notebook, one text per cell."""
    text = text_of(content)
    if path.suffix.lower() != ".ipynb":
        return [text]
    return [cell["source"] for cell in json.loads(text)["cells"]]


def local_code(code: Sequence[str], folder: Path) -> dict[Path, bytes]:
    """Read the local files that a notebook imports or runs, directly or indirectly.

    A file that the notebook itself writes is left out, because each trial writes its own content. A
    file that cannot be read is left out, too, as Python ignores folders that it may not enter.

    Args:
        code: Sources of the notebook's code cells.
        folder: Folder of the notebook.

    Returns:
        The content of each file as `read_code` returns it, by its absolute path without symbolic
        links.
    """
    folder = folder.resolve()
    roots = [folder]
    found: dict[Path, bytes] = {}
    own = {(folder / name).resolve() for source in code for name in _written_by(source)}
    waiting: list[tuple[str, Path | None]] = [(source, None) for source in code]
    while waiting:
        source, file = waiting.pop(0)
        tree = parse_or_none(plain_python(source))
        if tree is None:
            continue
        scripts = [folder / script for script in _scripts(tree)]
        # IPython and Python look for imports also in the folder of a script that runs.
        roots += [folder / path for path in _added_to_path(tree)]
        roots += [script.parent for script in scripts]
        used = [*scripts, *(Path(f"{script}.py") for script in scripts)]
        for name in _imported(tree, file, roots):
            used += _files_of(name, roots)
        new = {path.resolve() for path in used if _is_readable(path)} - found.keys() - own
        for path in sorted(new):
            content = read_code(path)
            if content is not None:
                found[path] = content
                waiting += [(source, path) for source in sources_of(path, content)]
    return found


def _written_by(source: str) -> Iterator[str]:
    """Yield the paths of files that a cell writes.

    They are the files of `%%writefile` and `%%file`, and `.py` files that `open` or `Path` writes.
    """
    for names in _WRITES.findall(source):
        yield from filter(None, names)


def _scripts(tree: ast.Module) -> Iterator[str]:
    """Yield the script, notebook or module (`%run -m`) that each `%run` names, as a path.

    Args:
        tree: Syntax tree of a cell, in which magics are the calls that IPython turns them into.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="run_line_magic"),
                args=[ast.Constant(value="run"), ast.Constant(value=str(line)), *_],
            ):
                # A line that `getopt` refuses runs no script, because IPython refuses it as well.
                with suppress(ValueError, getopt.GetoptError):
                    options, names = getopt.getopt(shlex.split(line), _RUN_OPTIONS)
                    modules = [name.replace(".", "/") for key, name in options if key == "-m"]
                    yield from map(os.path.expanduser, [*modules, *names][:1])


def _is_readable(path: Path) -> bool:
    """Return whether a path is a file that can be read. False if its name is too long."""
    # `Path.is_file` raises an error for a name that is too long.
    return os.path.isfile(path) and os.access(path, os.R_OK)


def _added_to_path(tree: ast.Module) -> Iterator[str]:
    """Yield the folders that code adds to `sys.path`, if the code states them as literals."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(
                    value=ast.Attribute(value=ast.Name(id="sys"), attr="path"),
                    attr="append" | "insert",
                ),
                args=[*_, ast.Constant(value=str(folder))],
            ):
                yield folder


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
            names = [node.module] if node.module else []
            if node.level:
                above = package.split(".")
                names = [*above[: len(above) - node.level + 1], *names]
            base = ".".join(names)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _files_of(name: str, roots: Sequence[Path]) -> Iterator[Path]:
    """Yield the files in which a module and the packages around it may be defined."""
    parts = [part for part in name.split(".") if part]
    for root in roots:
        for depth in range(1, len(parts) + 1):
            place = root.joinpath(*parts[:depth])
            yield from (place.with_suffix(".py"), place / "__init__.py")
