"""Find code that gives a variable of a notebook another value.

A *schedule* computes the new value from the old one, as in `lr *= 0.95`. It does not count as
another value. Python's symbol tables tell which names code binds and reads.
"""

from __future__ import annotations

import ast
import symtable
import unicodedata
from collections.abc import Iterable, Iterator, Set

from .cell_code import scope_of
from .replacing import Cell, text_in

_ASSIGNING = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr | ast.Delete


def rebinding(
    cells: Iterable[Cell],
    name: str,
    *,
    at: tuple[int, int],
    own: ast.expr | None = None,
    is_late: bool = False,
) -> str | None:
    """Return the first place, apart from a given statement, where code gives a name a value.

    An assignment before the given statement counts only if code between the two reads the name.

    Args:
        cells: All code cells.
        name: Name of a variable.
        at: Position of the given statement: number of its code cell, from 1, and index in the
            cell, from 0.
        own: Target in the given statement that does not count. None if all its targets count.
        is_late: Whether to ignore all assignments before the given statement.

    Returns:
        A code cell with a line. None if no other code gives the name a value.
    """
    earlier = None
    for cell in cells:
        if name not in unicodedata.normalize("NFKC", cell.code):  # Python normalizes names so.
            continue
        for index, statement in enumerate(cell.statements):
            here = (cell.number, index)
            allowed: set[ast.expr] = {*_harmless(cell, statement, name)}
            if own is not None and here == at:
                allowed.add(own)
            scope = scope_of(_without(cell, statement, allowed))
            if scope is None:  # The statement does not compile, so its cell will fail.
                continue
            top, inner = _symbol(scope, name), [*_inner(scope, name)]
            place = f"code cell {cell.number}, line {statement.lineno}"
            binds = top is not None and _is_bound(top)
            if any(map(_is_bound, inner)) or (binds and here >= at):
                return place
            reads = any(symbol is not None and symbol.is_referenced() for symbol in (top, *inner))
            earlier = earlier or (place if binds else None)
            if earlier is not None and reads and here < at and not is_late:
                return earlier
    return None


def is_read_until_rebound(cells: Iterable[Cell], name: str, *, at: tuple[int, int]) -> bool:
    """Return whether code may read a variable before code after a given statement binds it again.

    Args:
        cells: All code cells.
        name: Name of a variable.
        at: Position of the given statement: number of its code cell, from 1, and index in the
            cell, from 0.

    Returns:
        False, too, if a function binds the variable, because it may be called at any time.
    """
    is_read = False
    for cell in cells:
        if name not in unicodedata.normalize("NFKC", cell.code):
            continue
        for index, statement in enumerate(cell.statements):
            scope = scope_of(_without(cell, statement, {*_harmless(cell, statement, name)}))
            if scope is None:
                continue
            top, inner = _symbol(scope, name), [*_inner(scope, name)]
            if any(map(_is_bound, inner)):
                return False
            is_later = (cell.number, index) > at
            is_bound = is_later and top is not None and _is_bound(top)
            # A loop may bind the variable before it reads it.
            is_loop = is_bound and isinstance(statement, ast.For | ast.While | ast.With)
            # A function or class that reads the variable may be called at any later time.
            is_read |= any(symbol.is_referenced() for symbol in inner)
            is_read |= is_later and not is_loop and top is not None and top.is_referenced()
            if is_bound:
                return is_read
    return is_read


def has_schedule(sources: Iterable[str], name: str) -> bool:
    """Return whether a statement of a notebook computes a new value of a name from the old one.

    Args:
        sources: Sources of the code cells.
        name: Name of a variable.
    """
    return any(
        any(_scheduled(cell, statement, name))
        for cell in (Cell(number, source) for number, source in enumerate(sources, start=1))
        for statement in cell.statements
    )


def is_read(cell: Cell, line: int, name: str) -> bool:
    """Return whether the top-level statement around a line reads a global variable.

    Args:
        cell: Code cell.
        line: Line in the cell, from 1.
        name: Name of the variable.
    """
    statements = (
        statement
        for statement in cell.statements
        if statement.lineno <= line <= (statement.end_lineno or 0)
    )
    return any(_has_read(scope_of(cell.text_of(statement)), name) for statement in statements)


def unpacked(
    target: ast.expr, value: ast.expr | None
) -> Iterator[tuple[ast.expr, ast.expr | None, bool]]:
    """Yield the single targets of an assignment, as in `a, b = 1, 2`, with their values.

    Yields:
        The target, its value, and whether the target gets the whole value. In `a, b = f()`, it gets
        only a part.
    """
    if not isinstance(target, ast.Tuple | ast.List):
        yield target, value, True
        return
    parts = value.elts if isinstance(value, ast.Tuple | ast.List) else []
    is_starred = any(isinstance(part, ast.Starred) for part in (*target.elts, *parts))
    if len(parts) == len(target.elts) and not is_starred:
        for inner, part in zip(target.elts, parts, strict=True):
            yield from unpacked(inner, part)
    else:
        yield from ((inner, value, False) for inner in target.elts)


def _harmless(cell: Cell, statement: ast.stmt, name: str) -> Iterator[ast.expr]:
    """Yield the targets that give a name no unrelated value.

    They declare or delete the name, or compute its value from the old one.
    """
    for target, part in _assigned(statement):
        if part is None or part is target or _reads(cell, part, name):
            yield from _named(target, name)


def _scheduled(cell: Cell, statement: ast.stmt, name: str) -> Iterator[ast.expr]:
    """Yield the targets that give a name a value computed from its old value."""
    for target, part in _assigned(statement):
        if part is not None and (part is target or _reads(cell, part, name)):
            yield from _named(target, name)


def _named(target: ast.expr, name: str) -> Iterator[ast.Name]:
    nodes = (node for node in ast.walk(target) if isinstance(node, ast.Name))
    yield from (node for node in nodes if node.id == name)


def _assigned(statement: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Yield the targets in a statement with their values.

    In `x += 1`, the target counts as the value.
    """
    for node in ast.walk(statement):
        if not isinstance(node, _ASSIGNING):
            continue
        value = getattr(node, "value", None)
        is_single = not isinstance(node, ast.Assign | ast.Delete)
        for whole in [node.target] if is_single else node.targets:  # type: ignore[union-attr]
            for target, part, _ in unpacked(whole, value):
                yield target, target if isinstance(node, ast.AugAssign) else part


def _reads(cell: Cell, value: ast.expr, name: str) -> bool:
    """Return whether an expression reads a global variable of the notebook."""
    return _has_read(scope_of(f"({cell.text_of(value)}\n)"), name)


def _has_read(scope: symtable.SymbolTable | None, name: str) -> bool:
    symbols = [] if scope is None else [_symbol(scope, name), *_inner(scope, name)]
    return any(symbol is not None and symbol.is_referenced() for symbol in symbols)


def _without(cell: Cell, statement: ast.stmt, targets: Set[ast.expr]) -> str:
    """Return the code of a statement, with underscores in place of some targets."""
    lines = [*cell.lines]
    for target in targets:
        line = lines[target.lineno - 1]
        begin, end = target.col_offset, target.end_col_offset or 0
        lines[target.lineno - 1] = line[:begin] + b"_" * (end - begin) + line[end:]
    return text_in(lines, statement)


def _is_bound(symbol: symtable.Symbol) -> bool:
    return symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()


def _symbol(scope: symtable.SymbolTable, name: str) -> symtable.Symbol | None:
    return scope.lookup(name) if name in scope.get_identifiers() else None


def _inner(scope: symtable.SymbolTable, name: str) -> Iterator[symtable.Symbol]:
    """Yield the symbols of a global variable in the functions and classes inside a scope."""
    for child in scope.get_children():
        symbol = _symbol(child, name)
        if symbol is not None and symbol.is_global():
            yield symbol
        yield from _inner(child, name)
