"""Turn a cell into Python that can be parsed, list the names it assigns, guess the parameters cell.

Only this module knows IPython's syntax: magics, shell commands and help.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .vocabulary import is_known_parameter

#: Cell magics whose text is not Python, or runs in another process or namespace.
_FOREIGN = frozenset(
    "bash cmd file HTML html javascript js latex markdown perl pypy python python2 python3 ruby "
    "script sh svg SVG system sx timeit writefile R cython sql".split()
)
_CONSTANT = (
    *(ast.Constant, ast.UnaryOp, ast.BinOp, ast.List, ast.Tuple, ast.Dict),
    *(ast.operator, ast.unaryop, ast.expr_context),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParametersCandidate:
    """A cell that could become the parameters cell.

    Attributes:
        number: its position among the code cells, counted from 1.
        names: the names to which it assigns plain values, usual parameters first.
        is_pure: whether it only assigns and imports.
    """

    number: int
    names: Sequence[str]
    is_pure: bool


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


def find_parameters_candidate(sources: Sequence[str]) -> ParametersCandidate | None:
    """Find the cell that most likely holds a notebook's parameters; None where none assigns any.

    Args:
        sources: the sources of the code cells.
    """
    found = []
    for number, source in enumerate(sources, start=1):
        tree = parse_or_none(plain_python(source))
        names = [] if tree is None else list(dict.fromkeys(_names_of_plain_values(tree)))
        if tree is not None and names:
            is_pure = all(map(_is_assignment_or_import, tree.body))
            names.sort(key=lambda name: not is_known_parameter(name))
            found.append(ParametersCandidate(number=number, names=names, is_pure=is_pure))
    best = max(found, key=_candidate_rank, default=None)
    return best if best and _candidate_rank(best) > (0, 0) else None


def _candidate_rank(cell: ParametersCandidate) -> tuple[int, int]:
    known = sum(map(is_known_parameter, cell.names))
    return known + 2 * (cell.is_pure and known > 0), len(cell.names) if cell.is_pure else known


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


def _names_of_plain_values(tree: ast.Module) -> Iterator[str]:
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            is_plain = all(isinstance(node, _CONSTANT) for node in ast.walk(statement.value))
            is_several = isinstance(statement.value, ast.List | ast.Tuple | ast.Dict)
            for target in _targets(statement) if is_plain else ():
                # Most lists are columns or labels, so a list counts under a usual name only.
                if isinstance(target, ast.Name) and (
                    not is_several or is_known_parameter(target.id)
                ):
                    yield target.id


def _is_assignment_or_import(statement: ast.stmt) -> bool:
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    is_magic = isinstance(statement, ast.Expr) and "get_ipython()" in ast.unparse(statement)
    assigns = isinstance(statement, ast.Assign | ast.AnnAssign | ast.Import | ast.ImportFrom)
    return assigns or is_text or is_magic
