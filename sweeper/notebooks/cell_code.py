"""Turn a cell into Python that can be parsed, and list the names and plain values it assigns.

Only this module knows IPython's syntax: magics, shell commands and help.
"""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from typing import Any

#: Cell magics whose text is not Python, or runs in another process or namespace.
_FOREIGN = frozenset(
    "bash cmd file HTML html javascript js latex markdown perl pypy python python2 python3 ruby "
    "script sh svg SVG system sx timeit writefile R cython sql".split()
)


def plain_python(source: str) -> str:
    """Convert a cell to plain Python without moving its lines.

    Magics, shell commands and help become the calls that IPython would make. Of `%%time` and the
    like the code below remains; of `%%bash` and the like nothing.
    """
    if parse_or_none(source) is not None:
        return source
    from IPython.core.inputtransformer2 import (
        TransformerManager,
    )  # takes 0.2 s, so it is imported only for magics

    code = TransformerManager().transform_cell(source)  # type: ignore[no-untyped-call]
    tree = parse_or_none(code)
    below = None if tree is None else _cell_magic(tree)
    if below is None:
        return str(code)
    name, text = below
    return "" if name in _FOREIGN else "\n" + plain_python(text)


def parse_or_none(source: str) -> ast.Module | None:
    """Parse Python; None where that fails."""
    try:
        return parse(source)
    except SyntaxError:
        return None


def parse(source: str) -> ast.Module:
    """Parse Python into a syntax tree.

    Raises:
        SyntaxError: also for null bytes and for code that is nested too deeply.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the kernel prints them
            return ast.parse(source)
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error) or "too deeply nested") from error


def assigned_names(tree: ast.Module) -> list[str]:
    """The names that a cell assigns at its top level, in order, unpacked targets included."""
    names = []
    for statement in tree.body:
        for target in _targets(statement):
            inside = (n for n in ast.walk(target) if isinstance(n, ast.Name))
            names += [n.id for n in inside if isinstance(n.ctx, ast.Store)]
    return names


def assigned_values(source: str) -> dict[str, tuple[Any, str]]:
    """The plain values that a cell assigns to names, with the comments behind them."""
    source = plain_python(source)
    tree = parse_or_none(source)
    if tree is None:
        return {}
    comments = {
        token.start[0]: token.string.strip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    found: dict[str, tuple[Any, str]] = {}
    for statement in tree.body:
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        for target in targets:
            if isinstance(target, ast.Name):
                found.pop(target.id, None)
                try:
                    value = ast.literal_eval(getattr(statement, "value", None) or "")
                except (ValueError, SyntaxError, TypeError, RecursionError):
                    continue
                if not isinstance(statement, ast.AugAssign):
                    found[target.id] = value, comments.get(statement.end_lineno or 0, "")
    return found


def _cell_magic(tree: ast.Module) -> tuple[str, str] | None:
    """Name and text of the cell magic that the whole cell consists of; None where it is none."""
    match tree.body:
        case [
            ast.Expr(
                ast.Call(
                    func=ast.Attribute(attr="run_cell_magic"),
                    args=[ast.Constant(str(name)), _, ast.Constant(str(text))],
                )
            )
        ]:
            return name, text
    return None


def _targets(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        return statement.targets
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        return [statement.target]
    return []
