"""The Python of a notebook's cells: without IPython's magics, and what it assigns."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .families import is_setting

#: Cell magics whose text is no Python, or runs in a process or a namespace of its own.
_FOREIGN = frozenset(
    "bash cmd file HTML html javascript js latex markdown perl pypy python python2 python3 ruby "
    "script sh svg SVG system sx timeit writefile R cython sql".split()
)
_CONSTANT = (
    *(ast.Constant, ast.UnaryOp, ast.BinOp, ast.List, ast.Tuple, ast.Dict),
    *(ast.operator, ast.unaryop, ast.expr_context),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Likely:
    """A cell that may be meant for the parameters.

    Attributes:
        number: among the code cells, counted from 1.
        names: what it assigns plain values to; those first that people tune.
        is_pure: whether it does nothing but assign and import.
    """

    number: int
    names: Sequence[str]
    is_pure: bool


def plain_python(source: str) -> str:
    """A cell's code as Python's own parser takes it, its lines where they were.

    Magics, shell commands and help become the calls that IPython makes of them. Of a cell magic
    such as %%time the code below it remains; of one such as %%bash nothing.
    """
    if parsed(source) is not None:
        return source
    from IPython.core.inputtransformer2 import TransformerManager  # 0.2 s: only who has magics pays

    code = TransformerManager().transform_cell(source)  # type: ignore[no-untyped-call]
    tree = parsed(code)
    below = None if tree is None else _below_a_magic(tree)
    if below is None:
        return str(code)
    name, text = below
    return "" if name in _FOREIGN else "\n" + plain_python(text)


def parsed(source: str) -> ast.Module | None:
    """A syntax tree; None of what is no Python."""
    try:
        return parse(source)
    except SyntaxError:
        return None


def parse(source: str) -> ast.Module:
    """A syntax tree.

    Raises:
        SyntaxError: it is no Python, or nothing that Python's parser can take.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the kernel says them
            return ast.parse(source)
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error) or "too deeply nested") from error


def assigned_names(tree: ast.Module) -> list[str]:
    """The names that a cell's own statements assign, however they do it."""
    names = []
    for statement in tree.body:
        for target in _targets(statement):
            inside = (n for n in ast.walk(target) if isinstance(n, ast.Name))
            names += [n.id for n in inside if isinstance(n.ctx, ast.Store)]
    return names


def likely_parameters(sources: Sequence[str]) -> Likely | None:
    """The cell that most likely holds a notebook's parameters; None where no cell assigns any.

    Args:
        sources: of its code cells.
    """
    found = []
    for number, source in enumerate(sources, start=1):
        tree = parsed(plain_python(source))
        names = [] if tree is None else list(dict.fromkeys(_plainly_assigned(tree)))
        if tree is not None and names:
            is_pure = all(map(_only_prepares, tree.body))
            names.sort(key=lambda name: not is_setting(name))
            found.append(Likely(number=number, names=names, is_pure=is_pure))
    best = max(found, key=_likelihood, default=None)
    return best if best and _likelihood(best) > (0, 0) else None


def _likelihood(cell: Likely) -> tuple[int, int]:
    known = sum(map(is_setting, cell.names))
    return known + 2 * (cell.is_pure and known > 0), len(cell.names) if cell.is_pure else known


def _below_a_magic(tree: ast.Module) -> tuple[str, str] | None:
    """Name and text of the one cell magic that a cell consists of."""
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


def _plainly_assigned(tree: ast.Module) -> Iterator[str]:
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            is_plain = all(isinstance(node, _CONSTANT) for node in ast.walk(statement.value))
            is_several = isinstance(statement.value, ast.List | ast.Tuple | ast.Dict)
            for target in _targets(statement) if is_plain else ():
                # Most lists are names of columns, labels to plot and the like.
                if isinstance(target, ast.Name) and (not is_several or is_setting(target.id)):
                    yield target.id


def _only_prepares(statement: ast.stmt) -> bool:
    is_remark = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    is_magic = isinstance(statement, ast.Expr) and "get_ipython()" in ast.unparse(statement)
    assigns = isinstance(statement, ast.Assign | ast.AnnAssign | ast.Import | ast.ImportFrom)
    return assigns or is_remark or is_magic
