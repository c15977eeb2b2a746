"""Find the installed libraries that a notebook imports, by reading its code and not running it.

The process from which kernels are forked imports these libraries once for all trials.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from .cell_code import executed_tree

#: Matches code that may change what an import finds or does. Libraries read environment variables
#: when they are imported, and `sys.path` decides which module a name means.
_UNCLEAR = re.compile(
    r"environ\s*\[[^\]]*\]\s*=(?!=)|environ\.(setdefault|update|pop)|putenv|%(set_)?env\b"
    r"|sys\.path\b|import_module|__import__|pip install"
)


def shown_imports(code: Sequence[str], local: Iterable[str], *, folder: Path) -> list[str]:
    """Return the imports of libraries at the top level of a notebook and of its local modules.

    Args:
        code: Sources of the notebook's code cells.
        local: Sources of the local modules that the notebook imports.
        folder: Folder of the notebook. Its modules are not libraries.

    Returns:
        Each import as `module`, or as `module:name` for `from module import name`. Imports of the
        standard library are included. The list is empty if the code may import more libraries, for
        example in a function, or if it may change what an import finds or does. It is also empty if
        a source is not valid Python, or if the code imports no library except `sweeper` and the
        standard library.
    """
    shown: list[str] = []
    all_names: list[str] = []
    for source in (*code, *local):
        tree = executed_tree(source)
        if tree is None or _UNCLEAR.search(source):
            return []
        for statement in _run(tree.body):
            shown += _names(statement)
        for node in ast.walk(tree):
            all_names += _names(node)
    libraries = [name for name in dict.fromkeys(shown) if not _is_local(_top(name), folder)]
    known = {*map(_top, libraries)}
    needed = {*map(_top, all_names)} - sys.stdlib_module_names
    needed = {top for top in needed if not _is_local(top, folder)}
    has_others = needed != {"sweeper"} and bool(needed)
    return libraries if has_others and needed <= known else []


def _run(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run whenever the code runs, also those in `try` and `with`."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.Try | ast.With):
            yield from _run(statement.body)


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the modules and names that an import statement imports.

    Nothing is yielded for a relative import, because it imports a local module.
    """
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and not node.level:
        yield from (f"{node.module}:{alias.name}" for alias in node.names)


def _top(name: str) -> str:
    return re.split("[.:]", name)[0]


def _is_local(top: str, folder: Path) -> bool:
    return (folder / f"{top}.py").exists() or (folder / top / "__init__.py").exists()
