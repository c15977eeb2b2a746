"""Turn a cell into Python that can be parsed, and read its comments.

Only this module knows IPython's syntax: magics, shell commands and help.
"""

from __future__ import annotations

import ast
import io
import threading
import tokenize
import warnings

#: Cell magics whose text is not Python, or runs in another process or namespace.
_FOREIGN = frozenset(
    "bash cmd file HTML html javascript js latex markdown perl pypy python python2 python3 ruby "
    "script sh svg SVG system sx timeit writefile R cython sql".split()
)


#: In CPython 3.11 two threads that parse at once can fail with a SystemError (gh-106905), and
#: filters of warnings belong to the process.
_PARSING = threading.Lock()


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
        with _PARSING, warnings.catch_warnings(action="ignore"):  # the kernel prints them
            return ast.parse(source)
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error) or "too deeply nested") from error


def comments(source: str) -> dict[int, str]:
    """The comments of plain Python, by line."""
    return {
        token.start[0]: token.string.strip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }


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
