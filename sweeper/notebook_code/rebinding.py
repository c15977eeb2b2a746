"""Find code that gives a variable of a notebook another value.

A *schedule* computes the new value from the old one, as in `lr *= 0.95`. It does not count as
another value.
"""

from __future__ import annotations

import ast
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from .cell_code import Use, begin_of
from .plain import Place
from .replacing import Cell
from .syntax import names_in


@dataclass(frozen=True, slots=True, kw_only=True)
class _User(Place):
    """A top-level statement that binds or reads a global variable.

    A binding by a schedule, which computes the new value from the old one as in `lr *= 0.95`, does
    not count.

    Attributes:
        index: Position of the statement in its cell, from 0.
        statement: The statement.
        uses: Where the statement binds or reads the variable.
    """

    index: int
    statement: ast.stmt
    uses: Sequence[Use]

    @property
    def at(self) -> tuple[int, int]:
        """Number of the code cell, from 1, and index of the statement in the cell, from 0."""
        return self.cell, self.index

    def without(self, target: ast.expr) -> _User:
        """Return a copy without the uses of the variable at `target`.

        An assignment binds the variable at its target. `lr += 1` also reads it there.
        """
        kept = [use for use in self.uses if use.begin != begin_of(target)]
        return replace(self, uses=kept)

    @property
    def binds_at_top(self) -> bool:
        return any(use.binds and not use.is_inside for use in self.uses)

    @property
    def binds_inside(self) -> bool:
        """Whether an inner body, such as that of a function with `global`, binds the variable."""
        return any(use.binds and use.is_inside for use in self.uses)

    @property
    def reads_at_top(self) -> bool:
        return any(not use.binds and not use.is_inside for use in self.uses)

    @property
    def reads_inside(self) -> bool:
        """Whether the body of a function, class or comprehension reads the variable."""
        return any(not use.binds and use.is_inside for use in self.uses)


def rebinding(
    cells: Iterable[Cell],
    name: str,
    *,
    at: tuple[int, int],
    own: ast.expr | None = None,
    is_late: bool = False,
) -> Place | None:
    """Return a place, apart from the target `own`, where code gives a name a value.

    An assignment before the statement `at` counts only if code between the two reads the name, or
    if it is in a function, which may be called at any time. Schedules, which compute the new value
    from the old one as in `lr *= 0.95`, do not count.

    Args:
        cells: All code cells.
        name: Name of a variable.
        at: Position of a top-level statement: number of its code cell, from 1, and index in the
            cell, from 0.
        own: Target in this statement to ignore. None if no target is ignored.
        is_late: Whether to ignore all assignments before this statement, except those in functions.

    Returns:
        None if code gives the name no other value.
    """
    earlier: _User | None = None
    for user in _users(cells, name):
        if user.at == at and own is not None:
            user = user.without(own)
        if user.binds_inside or (user.binds_at_top and user.at >= at):
            return user
        if is_late or user.at >= at:
            continue
        if earlier is None and user.binds_at_top:
            earlier = user
        if earlier is not None and (user.reads_at_top or user.reads_inside):
            return earlier
    return None


def is_read_until_rebound(cells: Iterable[Cell], name: str, *, at: tuple[int, int]) -> bool:
    """Return whether code that runs after a statement may read a variable before it is bound again.

    Args:
        cells: All code cells.
        name: Name of a variable.
        at: Position of the statement: number of its code cell, from 1, and index in the cell,
            from 0.

    Returns:
        Also False if a function that is defined before the next binding binds the variable itself
        (with `global`), because that function may be called at any time.
    """
    is_read = False
    for user in _users(cells, name):
        if user.binds_inside:
            return False
        # A function or class that reads the variable may be called at any later time.
        is_read |= user.reads_inside
        if user.at <= at:
            continue
        # A loop may bind the variable before it reads it.
        is_loop = isinstance(user.statement, ast.For | ast.While | ast.With)
        if not (user.binds_at_top and is_loop):
            is_read |= user.reads_at_top
        if user.binds_at_top:
            return is_read
    return is_read


def has_schedule(sources: Iterable[str], name: str) -> bool:
    """Return whether a statement of a notebook computes a new value of a name from the old one.

    Args:
        sources: Sources of the code cells.
        name: Name of a variable.
    """
    for source in sources:
        cell = Cell(1, source)
        for statement, uses in zip(cell.statements, cell.uses, strict=True):
            named = [use for use in uses if use.name == name]
            if any(True for _ in _schedules(statement, named)):
                return True
    return False


def is_read(cell: Cell, line: int, name: str) -> bool:
    """Return whether the top-level statement around a line reads a global variable.

    Args:
        cell: Code cell.
        line: Line in the cell, from 1.
        name: Name of the variable.
    """
    for statement, uses in zip(cell.statements, cell.uses, strict=True):
        is_here = statement.lineno <= line <= (statement.end_lineno or 0)
        if is_here and any(use.name == name and not use.binds for use in uses):
            return True
    return False


def unpacked(
    target: ast.expr, value: ast.expr | None
) -> Iterator[tuple[ast.expr, ast.expr | None, bool]]:
    """Yield the single targets of an assignment with their values: `a` and `b` in `a, b = 1, 2`.

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


def targets_of(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None, bool]]:
    """Yield the single targets of an assignment or a loop, with their values.

    Yields:
        The target, its value (None in a declaration or a loop), and whether the statement gives
        just this value to just this target. It does not in `a = b = 1`, `a, b = f()`, `a += 1`,
        `(a := 1)` and loops.
    """
    match node:
        case ast.Assign(targets=targets, value=value):
            for whole in targets:
                for target, part, is_own in unpacked(whole, value):
                    yield target, part, is_own and len(targets) == 1
        case ast.AnnAssign(target=target, value=value):
            yield target, value, True
        case ast.NamedExpr(target=target, value=value) | ast.AugAssign(target=target, value=value):
            yield target, value, False
        case ast.For(target=target):
            yield target, None, False


def assigned_in(statement: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Yield the single targets of all assignments in a statement, with their values.

    In `x += 1`, the target is also yielded as the value, because the new value is computed from it.
    """
    for node in ast.walk(statement):
        if not isinstance(node, ast.For):
            for target, value, _ in targets_of(node):
                yield target, target if isinstance(node, ast.AugAssign) else value


def _users(cells: Iterable[Cell], name: str) -> Iterator[_User]:
    """Yield the top-level statements that bind or read a global variable.

    Bindings that compute the new value from the old one, as in `lr *= 0.95`, are left out.
    """
    for cell in cells:
        # Python normalizes names to NFKC, so a cell may spell the name with other characters.
        if name not in unicodedata.normalize("NFKC", cell.code):
            continue
        for index, statement in enumerate(cell.statements):
            uses = [use for use in cell.uses[index] if use.name == name]
            scheduled = {begin_of(target) for target in _schedules(statement, uses)}
            uses = [use for use in uses if use.begin not in scheduled]
            if uses:
                yield _User(
                    cell=cell.number,
                    line=statement.lineno,
                    index=index,
                    statement=statement,
                    uses=uses,
                )


def _schedules(statement: ast.stmt, uses: Sequence[Use]) -> Iterator[ast.Name]:
    """Yield the targets that a schedule computes from their old value: `lr` in `lr *= 0.95`.

    Args:
        statement: Top-level statement.
        uses: Where the statement binds and reads one variable.
    """
    bound = {use.begin for use in uses if use.binds}
    reads = [use.begin for use in uses if not use.binds]
    if not bound:
        return
    for target, value in assigned_in(statement):
        is_computed = value is target or any(_contains(value, read) for read in reads)
        for name in names_in(target):
            if is_computed and begin_of(name) in bound:
                yield name


def _contains(value: ast.expr | None, place: tuple[int, int]) -> bool:
    if value is None:
        return False
    return begin_of(value) <= place < (value.end_lineno or 0, value.end_col_offset or 0)
