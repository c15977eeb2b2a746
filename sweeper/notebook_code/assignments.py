"""Find where a notebook assigns its names, and replace the notebook's values with a trial's.

A trial can set a name if exactly one statement at the top level assigns it a plain value (a literal
such as `0.1` or `[64, 32]`), and no other statement gives it another value. The trial's value is
written into this statement, so all code that follows uses it, even in the same cell.

If no statement at the top level assigns a name, the name means the keyword of a call, the key of a
dict, or the parameter of a function with a default. A name with a dot can also mean the attribute
of a class or an object.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from itertools import combinations
from typing import Any

from ..errors import NotebookError
from .arguments import Arguments, given_options, option_name
from .attributes import Write, attribute_rival, attributes_of, locals_of, writes_in
from .calls import Calls, Override, last_name
from .cell_code import comments
from .plain import Assignment, LeftOut, Place, is_plain, plain_value
from .rebinding import is_read, is_read_until_rebound, rebinding, targets_of
from .replacing import Cell
from .searched import set_again
from .syntax import names_in

_BLOCKS: Mapping[type[ast.stmt], str] = {
    ast.FunctionDef: "a function",
    ast.AsyncFunctionDef: "a function",
    ast.ClassDef: "a class",
    ast.For: "a loop",
    ast.While: "a loop",
}
#: Code that is written in place of a value to test whether this value can be replaced. The code has
#: to differ from the value: a value that replaces itself changes nothing, and so tests nothing.
_PROBE = "'sweeper'"
#: Functions that return a series of numbers. A loop over such a series tries several values of the
#: loop's variable.
_NUMBERS = frozenset("range arange linspace logspace geomspace".split())
#: The error message for a variable with several assignments proposes to sweep one of them. At most
#: this number of assignments is proposed, the last ones (chosen).
_MOST_NAMED = 3
#: What `_rank` returns for an argument that a call leaves out: the highest rank, which has the
#: lowest priority.
_LEFT_OUT = 2

#: Position in the notebook: number of the cell, line and column.
_Point = tuple[int, int, int]


class Assignments:
    """All assignments of a Python notebook. Cells that are not valid Python have none.

    Args:
        sources: Sources of the code cells.
    """

    def __init__(self, sources: Sequence[str]) -> None:
        self.cells = [Cell(number, source) for number, source in enumerate(sources, start=1)]
        self._found: defaultdict[str, list[Assignment]] = defaultdict(list)
        named: defaultdict[str, list[Assignment]] = defaultdict(list)
        arguments = Arguments(self.cells)
        for cell in self.cells:
            for name, assignment in _assignments_in(cell):
                self._found[name].append(assignment)
            for name, argument in (*attributes_of(cell), *arguments.of(cell), *locals_of(cell)):
                named[name].append(argument)
        self._arguments: dict[str, list[Assignment]] = {}
        left_out: dict[str, list[Assignment]] = {}
        for name, places in named.items():
            nearest = min(map(_rank, places))
            found = left_out if nearest == _LEFT_OUT else self._arguments
            found[name] = [place for place in places if _rank(place) == nearest]
        # Names are listed in this order: values that the notebook states come before defaults of
        # arguments that calls leave out.
        self._arguments |= left_out
        self._add_names_with_cells()

    def _add_names_with_cells(self) -> None:
        """Add names such as `cell12.lr` for variables that the notebook assigns more than once.

        Such a name is added for each cell that assigns the variable exactly once at the top level,
        if this assignment gives it a plain value, such as `0.1`.
        """
        for name, found in self._found.items():
            if len(found) == 1:
                continue
            in_cells: defaultdict[int, list[Assignment]] = defaultdict(list)
            for place in self.at_top(name):
                in_cells[place.cell].append(place)
            for number, places in in_cells.items():
                if len(places) == 1 and places[0].is_plain:
                    self._arguments[f"cell{number}.{name}"] = places

    @cached_property
    def _calls(self) -> Calls:
        return Calls(self.cells)

    @cached_property
    def _writes(self) -> Sequence[Write]:
        return [*writes_in(self.cells)]

    @cached_property
    def _overwritten(self) -> Mapping[tuple[str, str], Write]:
        """The first code that sets each dict item or attribute, by owner and key.

        For `cfg["lr"] = 0.1`, the owner is `cfg`, and the key is `lr`. A dict literal, as in
        `cfg = {"lr": 0.2}`, does not count, because it states the value that this code replaces.
        """
        replacing = [write for write in self._writes if not write.deletes]
        return {(write.owner, write.key): write for write in reversed(replacing)}

    @cached_property
    def _set_again(self) -> Mapping[ast.expr, Place]:
        """Where a call in the notebook, such as `GridSearchCV` or `set_params`, replaces a value.

        The keys are the syntax tree nodes of the replaced values. Options that the notebook passes
        to `parse_args` replace the defaults of these options, so such calls are included.
        """
        return {**set_again(self.cells), **given_options(self.cells)}

    def names(self) -> list[str]:
        """Return the names of the variables that the notebook assigns anywhere, in order."""
        return list(self._found)

    def is_ever_number(self, name: str) -> bool:
        """Return whether the notebook ever assigns a literal number to a variable.

        A variable of a loop over numbers, as in `for lr in [0.1, 0.01]`, counts, too.
        """
        if name in self._tried_in_loops:
            return True
        values = [assignment.value for assignment in self._found.get(name, ())]
        plain = [plain_value(value) for value in values if is_plain(value)]
        return any(isinstance(value, int | float) for value in plain)

    @cached_property
    def _tried_in_loops(self) -> Set[str]:
        """Names of the variables of loops over numbers, as in `for lr in [0.1, 0.01]`."""
        found = set[str]()
        for cell in self.cells:
            for loop in cell.nodes:
                if not isinstance(loop, ast.For):
                    continue
                iterated: list[ast.expr | None] = [loop.iter]
                if isinstance(loop.iter, ast.Call):  # such as `enumerate(rates)`
                    iterated += loop.iter.args
                for part in [*iterated]:
                    if isinstance(part, ast.Name):
                        iterated += [place.value for place in self._found.get(part.id, ())]
                if any(map(_are_numbers, iterated)):
                    found |= {name.id for name in names_in(loop.target)}
        return found

    def at_top(self, name: str) -> list[Assignment]:
        """Return the assignments to a name outside of functions, classes, loops and branches."""
        return [place for place in self._found.get(name, ()) if not place.block]

    def places(self, name: str) -> list[Assignment]:
        """Return the places of the plain values that a trial replaces if it sets a name.

        A plain value is a literal such as `0.1`.
        """
        found = self.at_top(name) or self._arguments.get(name, [])
        return [place for place in found if place.is_plain]

    def overlaps(self, names: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield pairs of names whose values overlap, as `lr` and `cfg` in `cfg = {"lr": 0.1}`.

        Yields:
            A name, and the name whose value contains the value of the first one.
        """
        spans: list[tuple[_Point, _Point, str]] = []
        for name in names:
            for place in self.places(name):
                if (value := place.value) is not None:
                    begin = (place.cell, value.lineno, value.col_offset)
                    end = (place.cell, value.end_lineno or 0, value.end_col_offset or 0)
                    spans.append((begin, end, name))
        for (_, end, outer), (begin, _, inner) in combinations(sorted(spans), 2):
            if begin < end:
                yield inner, outer

    def plain_value(self, name: str) -> Any:
        """Return the plain value, such as `0.1`, that the notebook gives to a name.

        Returns:
            None if the notebook gives the name no plain value, or if this value is None.
        """
        places = self.places(name)
        used = [place for place in places if not self.is_overridden(place)]
        values = [place.value for place in used or places if place.value is not None]
        return plain_value(values[-1]) if values else None

    def arguments(self) -> list[str]:
        """Return the names that a trial can set, except the names of variables at the top level.

        Examples are `Adam.lr` for an argument, a key or an attribute, `train.lr` for a local
        variable, and `cell12.lr` for a variable in one cell only. The names come in the order of
        the cells in which they first occur. After them come those of arguments that calls leave
        out, and last the names such as `cell12.lr`.
        """
        return self._settable

    @cached_property
    def _settable(self) -> list[str]:
        names = [name for name in self._arguments if not self.at_top(name)]
        return [name for name in names if not self.why_not(name)]

    def replaceable(self) -> Iterator[str]:
        """Yield the variables that a trial can set, in notebook order.

        Each variable costs a search of the whole notebook, so callers take only as many as they
        need.
        """
        for name in self._found:
            if self.places(name) and not self.why_not(name):
                yield name

    def constants(self) -> set[str]:
        """Return the names of variables whose only assignment gives a plain value, such as `0.1`.

        The assignment has to be at the top level.
        """
        single = {name: found[0] for name, found in self._found.items() if len(found) == 1}
        return {name for name, place in single.items() if place.is_plain}

    def literals(self) -> set[str]:
        """Return the names of variables to which the notebook assigns only plain values.

        Plain values are literals such as `0.1`. A variable that is changed by a plain value, as in
        `n += 1`, counts, too.
        """
        names = set[str]()
        for name, found in self._found.items():
            if all(is_plain(place.value) for place in found):
                names.add(name)
        return names

    def knows(self, name: str) -> bool:
        """Return whether the notebook assigns a name, or has such an argument, key or attribute.

        An argument, key or attribute is known only if its value is plain, such as `0.1`.
        """
        return bool(self._found.get(name) or self._arguments.get(name))

    def bound_in(self, name: str) -> Place | None:
        """Return the first place where code gives a name a value.

        Imports, loops and definitions of functions and classes count like assignments.

        Returns:
            None if there is no such place.
        """
        return rebinding(self.cells, name, at=(0, 0))

    def why_not(self, name: str, asked: Set[str] = frozenset()) -> str | None:
        """Return why a trial cannot set a name, with a remedy. None if a trial can set it.

        The text completes the sentence "NAME is …".

        Args:
            name: Name of a variable, argument, key or attribute.
            asked: Names that the remedy must not propose to sweep, because their values are
                computed from `name`, directly or indirectly.
        """
        asked = asked | {name}
        at_top = self.at_top(name)
        plain_or_loop = [place for place in at_top if place.is_plain or place.value is None]
        if len(plain_or_loop) > 1:
            first, second, *_ = plain_or_loop
            return f"assigned in {first}, and in {second}: {self._one_of(name)}keep one of them"
        if plain_or_loop:
            return self._why_not_at(name, plain_or_loop[0])
        if at_top:
            remedy = self._instead_of_computed(at_top[0], asked)
            return f"not a plain value in {at_top[0]}: {remedy}"
        if arguments := self._arguments.get(name):
            return self._why_no_argument(name, arguments)
        if name in self._found:
            inside = self._found[name][0]
            remedy = self.remedy_for_unknown(name, is_local=True)
            return (
                f"assigned only in {inside.block}, {inside}: "
                f"{remedy or 'move the assignment to the top level'}"
            )
        if place := self.bound_in(name):
            return f"imported, or bound in another way, in {place}: assign it a plain value below"
        return "not assigned"

    def other_value(self, name: str, *, after_cell: int) -> str | None:
        """Return where code after a cell gives a name another value, with a remedy.

        The text completes the sentence "NAME is …".

        Args:
            name: Name of a variable.
            after_cell: Number of the code cell, from 1. Only later cells are searched.

        Returns:
            None if the name gets no other value.
        """
        later = self.cells[after_cell:]
        rival = rebinding(later, name, at=(after_cell, 0))
        return f"assigned another value in {rival}: keep one of the two" if rival else None

    def why_overridden(self, value: ast.expr) -> str | None:
        """Return why an argument's value is never used, with a remedy. None if it may be used.

        The text completes the sentence "It is …".

        Args:
            value: Syntax tree node of the value.
        """
        for name, found in self._arguments.items():
            if all(place.value is value and self.is_overridden(place) for place in found):
                return self._why_overridden(name, found[0])
        return None

    def remedy_for_unknown(self, name: str, *, is_local: bool = False) -> str:
        """Return how to change a name, or the notebook, so that the name can be swept.

        Args:
            name: Name that no statement at the top level assigns.
            is_local: Whether the notebook assigns the name, but only in a function, class, loop or
                branch. Then code that reads the name may mean a local variable, so it does not show
                that a variable at the top level is missing.

        Returns:
            The advice to write a longer name, such as `Adam.lr`, or to change code of the notebook.
            Empty if no remedy was found.
        """
        if longer := self._longer(name):
            return longer
        name = name.rpartition(".")[2]
        for cell in self.cells:
            for node in cell.nodes:
                at = f"in code cell {cell.number}, line {getattr(node, 'lineno', 1)}"
                match node:
                    case ast.Call(func=ast.Attribute(attr="add_argument")):
                        if option_name(node) == name:
                            return f"pass `default={name}` {at}, and assign {name} before that"
                    case ast.Attribute(attr=attribute, ctx=ast.Load()) if attribute == name:
                        whole = ast.unparse(node)
                        return f"assign {name} at the top level, and use it for {whole} {at}"
                    case ast.arg(arg=parameter) if parameter == name:
                        return f"assign {name} at the top level, and pass it to the function {at}"
                    case ast.Name(id=read, ctx=ast.Load()) if (
                        read == name and not is_local and is_read(cell, node.lineno, name)
                    ):
                        return f"assign it a plain value: `{name} = 1`"
        return ""

    def _why_not_at(self, name: str, place: Assignment) -> str | None:
        if not place.is_plain:
            return f"a loop variable in {place}: assign it one value"
        at = (place.cell, place.index)
        rival = rebinding(self.cells, name, at=at, own=place.target)
        if rival is None:
            return self._why_not_replaced(name, [place])
        remedy = f"{self._one_of(name)}keep one of them, or rename one"
        return f"assigned in {place}, and in {rival}: {remedy}"

    def _why_no_argument(self, name: str, arguments: Sequence[Assignment]) -> str | None:
        used = [place for place in arguments if not self.is_overridden(place)]
        if not used:
            return self._why_overridden(name, arguments[0])
        first = used[0]
        attributes = [place for place in used if place.is_attribute]
        values = [plain_value(place.value) for place in used if place.value is not None]
        if first.target is not None and not first.is_attribute:
            why = self._why_not_in_cell(name, first)
        elif len({*map(repr, values)}) > 1:
            why = self._why_several(name, used)
        elif attributes:
            why = self._why_no_attribute(name, attributes)
        else:
            why = None
        return why or self._why_not_replaced(name, arguments)

    def _why_no_attribute(self, name: str, places: Sequence[Assignment]) -> str | None:
        rival = attribute_rival(self.cells, self._writes, name, places)
        if rival is None:
            return None
        return f"assigned in {places[0]}, and changed, or read before, in {rival}: keep one of them"

    def _why_not_in_cell(self, name: str, place: Assignment) -> str | None:
        """Return why a trial cannot set a variable in one cell only, by a name such as `cell12.lr`.

        Args:
            name: Name of the variable with its cell, such as `cell12.lr`.
            place: The assignment of the variable in this cell.

        Returns:
            None if a trial can set it: no later code gives the variable another value, or code
            may read the trial's value before later code replaces it.
        """
        variable = name.rpartition(".")[2]
        at = (place.cell, place.index)
        rival = rebinding(self.cells, variable, at=at, own=place.target, is_late=True)
        if rival is None or is_read_until_rebound(self.cells, variable, at=at):
            return None
        return f"assigned in {place}, and later in {rival}: keep one of them"

    def _why_several(self, name: str, places: Sequence[Assignment]) -> str:
        """Return why a trial cannot set a name to which code gives different values, with a remedy.

        Args:
            name: Name of an argument, key or attribute.
            places: Places of its values.
        """
        by_value = {repr(plain_value(place.value)): place for place in places if place.value}
        several = ", and ".join(f"{value} in {by_value[value]}" for value in [*by_value][:2])
        if all(place.is_attribute for place in places):
            return f"{several}: keep one of them"
        longer = self._longer(name)
        remedy = "assign it to a name and use that"
        return f"{several}: {longer}, or {remedy}" if longer else f"{several}: {remedy}"

    def _longer(self, name: str) -> str:
        """Return the advice to write a longer name, such as `Adam.lr` in place of `lr`.

        Returns:
            An empty text if a trial can set none of the longer names.
        """
        for known in self._arguments:
            if known.endswith(f".{name}") and not self.why_not(known):
                return f"write {known!r}"
        return ""

    def _one_of(self, name: str) -> str:
        """Return the advice to sweep a variable in one cell only, by a name such as `cell12.lr`.

        Only the last `_MOST_NAMED` of these names are checked and proposed.

        Returns:
            An empty text if a trial can set none of them.
        """
        every = dict.fromkeys(f"cell{place.cell}.{name}" for place in self.at_top(name))
        known = [longer for longer in every if longer in self._arguments]
        usable = [repr(longer) for longer in known[-_MOST_NAMED:] if not self.why_not(longer)]
        if not usable:
            return ""
        return f"write {' or '.join(usable)} to sweep it there, or "

    def is_overridden(self, place: Assignment, lines: Set[tuple[int, int]] | None = None) -> bool:
        """Return whether a value in the notebook is never used, because other code overrides it.

        Args:
            place: Assignment of the value.
            lines: Pairs of cell number and line. Calls of the function with this default that
                begin elsewhere are ignored. None if no call is ignored.
        """
        if self._other_value(place):
            return True
        default = place.parameter
        return default is not None and self._calls.overriding(default, lines) is not None

    def _other_value(self, place: Assignment) -> Place | None:
        """Return where code replaces the value of a dict's item, an option or an argument.

        Returns:
            None if no code does so.
        """
        if place.value is not None and place.value in self._set_again:
            return self._set_again[place.value]
        owner, key = place.item or ("", "")
        while owner:
            write = self._overwritten.get((owner, key))
            if write is not None:
                return write
            # Code may also replace the whole dict that contains the item.
            owner, _, key = owner.rpartition(".")
        return None

    def _why_overridden(self, name: str, default: Assignment) -> str | None:
        if rival := self._other_value(default):
            return f"in {default}, and gets another value in {rival}: keep one of them"
        parameter = default.parameter
        override = None if parameter is None else self._calls.overriding(parameter)
        if parameter is None or override is None:
            return None
        remedy = f"assign {parameter.name} at the top level, and pass it there"
        for other in self._passing(override):
            if other != name and not self.why_not(other):
                remedy = f"sweep {other!r}"
                break
        return f"a default in {default}, which the call in {override} overrides: {remedy}"

    def _passing(self, override: Override) -> list[str]:
        """List the names of the value that a call passes for a parameter.

        A trial that sets such a name also sets the parameter. Whether a trial can set the name is
        not checked. The name is that of a variable, or a longer one such as `train.lr`.

        Args:
            override: The call and the value that it passes.
        """
        if isinstance(override.value, ast.Name):
            variable = override.value.id
            cell = self.cells[override.cell - 1]
            is_passed = self.at_top(variable) and is_read(cell, override.line, variable)
            return [variable] if is_passed else []
        found: list[str] = []
        for name, places in self._arguments.items():
            values = [place.value for place in places]
            if "." in name and override.value in values:
                found.append(name)
        return found

    def _why_not_replaced(self, name: str, places: Iterable[Assignment]) -> str | None:
        for place in places:
            news = {place.value: _PROBE} if place.value is not None else {}
            if self.cells[place.cell - 1].with_values(news) is None:
                return (
                    f"in {place}, whose code IPython changes before it runs: move the assignment "
                    f"of {name} to a cell of its own"
                )
        return None

    def _instead_of_computed(self, computed: Assignment, asked: Set[str]) -> str:
        """Return the advice for a variable with a computed value: assign it a plain value.

        If the value is computed from another variable that a trial can set, the advice also
        proposes to sweep that variable.

        Args:
            computed: Assignment of the computed value.
            asked: Names that the advice must not propose, as in `why_not`.
        """
        read = [] if computed.value is None else [*names_in(computed.value)]
        for name in dict.fromkeys(node.id for node in read):
            if name not in asked and self.at_top(name) and not self.why_not(name, asked):
                return f"assign it one, or sweep {name!r}"
        return "assign it one"


def _are_numbers(node: ast.expr | None) -> bool:
    """Return whether code states a series of numbers, such as `[0.1, 0.01]` or `range(3)`."""
    match node:
        case ast.Call(func=function):
            return last_name(function) in _NUMBERS
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            plain = [plain_value(part) for part in parts if is_plain(part)]
            return any(isinstance(value, int | float) for value in plain)
    return False


def _rank(place: Assignment) -> int:
    """Return the rank of a value. Of a name's values, a trial replaces those with the lowest rank.

    The rank is 0 for a value that an assignment, a call or a dict states, 1 for the default of a
    parameter in the notebook, and 2 for an argument that a call leaves out.
    """
    if isinstance(place.value, LeftOut):
        return _LEFT_OUT
    return 1 if place.is_default else 0


def _assignments_in(cell: Cell) -> Iterator[tuple[str, Assignment]]:
    for index, statement in enumerate(cell.statements):
        for node in ast.walk(statement):
            is_top = node is statement
            for target, value, is_own in targets_of(node):
                is_declaration = value is None and not isinstance(node, ast.For)
                if is_declaration or isinstance(node, ast.NamedExpr):
                    continue
                for name in names_in(target):
                    if not isinstance(name.ctx, ast.Store):
                        continue
                    is_whole = is_own and name is target
                    place = Assignment(
                        cell=cell.number,
                        line=getattr(node, "lineno", 0),
                        index=index,
                        value=value,
                        block="" if is_top else _BLOCKS.get(type(statement), "a branch"),
                        target=name if is_top else None,
                        is_plain=is_top and is_whole and is_plain(value),
                    )
                    yield name.id, place


def plain_values(source: str) -> dict[str, tuple[Any, str]]:
    """Return the plain values, such as `0.1`, that a cell assigns to names at its top level.

    Returns:
        For each name, the last value and the comment on its line. The comment may be empty. A name
        whose last value at the top level is not plain is left out.
    """
    found: dict[str, tuple[Any, str]] = {}
    cell = Cell(1, source)
    said = comments(cell.code)
    for name, assignment in _assignments_in(cell):
        if not assignment.block:
            found.pop(name, None)
        value = assignment.value
        if assignment.is_plain and value is not None:
            found[name] = plain_value(value), said.get(value.end_lineno or 0, "")
    return found


def assigned_only(source: str) -> list[str]:
    """List the names that a cell assigns at its top level and does not read anywhere, in order."""
    cell = Cell(1, source)
    read = {name.id for name in names_in(cell.tree) if isinstance(name.ctx, ast.Load)}
    assigned = [name for name, place in _assignments_in(cell) if not place.block]
    return [name for name in dict.fromkeys(assigned) if name not in read]


def with_values(
    sources: Sequence[str], values: Mapping[str, Any], as_code: Callable[[Any], str]
) -> list[str]:
    """Replace the plain values (literals such as `0.1`) that cells give to names.

    A comment on each changed line states the original value.

    Args:
        sources: Sources of all code cells.
        values: New values by name, such as `lr` or `Adam.lr`. Names that have no plain value in the
            cells are ignored.
        as_code: Function that returns the Python code of a value.

    Returns:
        The new sources.

    Raises:
        NotebookError: A value cannot be replaced without a change of other code.
    """
    assignments = Assignments(sources)
    news: defaultdict[int, dict[ast.expr, str]] = defaultdict(dict)
    for name, new in values.items():
        for place in assignments.places(name):
            if place.value is not None:
                news[place.cell][place.value] = as_code(new)
    changed: list[str] = []
    for cell in assignments.cells:
        source = cell.with_values(news[cell.number])
        if source is None:
            raise NotebookError(
                f"code cell {cell.number}: its values cannot be replaced without changing other "
                "code; move each assignment to a cell of its own"
            )
        changed.append(source)
    return changed
