"""Read the imports of installed libraries that a notebook's code shows, without running it.

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
        Each import as `module`, or as `module:name` for `from module import name`. The list is
        empty if the code may import other libraries too, or only the standard library.
    """
    sources = [*code, *local]
    trees = [executed_tree(source) for source in sources]
    shown: list[str] = []
    all_names: list[str] = []
    for source, tree in zip(sources, trees, strict=True):
        if tree is None or _UNCLEAR.search(source):
            return []
        shown += (name for statement in _run(tree.body) for name in _names(statement))
        all_names += (name for node in ast.walk(tree) for name in _names(node))
    libraries = [name for name in dict.fromkeys(shown) if not _is_local(_top(name), folder)]
    known = {_top(name) for name in libraries}
    needed = {
        top
        for top in map(_top, all_names)
        if top not in sys.stdlib_module_names and not _is_local(top, folder)
    }
    return libraries if needed - {"sweeper"} and needed <= known else []


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
