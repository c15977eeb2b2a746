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
from itertools import groupby, pairwise
from typing import Any

from ..errors import NotebookError
from .arguments import arguments_of, given_options, in_keys_of, option_name, parsed_into
from .attributes import attribute_rival, attributes_of, locals_of, overwritten_items
from .calls import Calls, Override, last_name
from .cell_code import comments
from .left_out import LeftOutArguments
from .plain import Assignment, is_plain, plain_value
from .rebinding import is_read, is_read_until_rebound, rebinding, unpacked
from .replacing import Cell
from .searched import set_again
from .signatures import Signatures

_BLOCKS: Mapping[type[ast.stmt], str] = {
    ast.FunctionDef: "a function",
    ast.AsyncFunctionDef: "a function",
    ast.ClassDef: "a class",
    ast.For: "a loop",
    ast.While: "a loop",
}
#: Code of a sample value, which tests whether a cell's value can be replaced. It has to differ from
#: the cell's value: replacing a value with itself changes nothing, and so tests nothing.
_PROBE = "'sweeper'"
#: Functions that return a series of numbers, as those that a loop tries.
_NUMBERS = frozenset("range arange linspace logspace geomspace".split())
#: The remedy in an error message names at most this number of assignments, the last ones (chosen).
_MOST_NAMED = 3


class Assignments:
    """All assignments of a Python notebook. Cells that are not valid Python have none.

    Args:
        sources: Sources of the code cells.
    """

    def __init__(self, sources: Sequence[str]) -> None:
        self.cells = [Cell(number, source) for number, source in enumerate(sources, start=1)]
        self._found: defaultdict[str, list[Assignment]] = defaultdict(list)
        self._arguments: defaultdict[str, list[Assignment]] = defaultdict(list)
        signatures, parsed = Signatures(self.cells), [*parsed_into(self.cells)]
        for cell in self.cells:
            for name, assignment in _assignments_in(cell):
                self._found[name].append(assignment)
            others = arguments_of(cell, signatures, parsed)
            for name, argument in (*attributes_of(cell), *others, *locals_of(cell)):
                self._arguments[name].append(argument)
        for name, found in self._arguments.items():
            self._arguments[name] = [argument for argument in found if not argument.block] or found
        known = {place.value: place for found in self._arguments.values() for place in found}
        given, left_out = {*self._arguments}, LeftOutArguments(self.cells, signatures)
        for cell in self.cells:
            for name, value in in_keys_of(cell):
                if name not in given and value in known:
                    self._arguments[name].append(known[value])
            for name, argument in left_out.of(cell):
                if name not in given:
                    self._arguments[name].append(argument)
        for name in [name for name, found in self._found.items() if len(found) > 1]:
            for number, same in groupby(self.at_top(name), lambda place: place.cell):
                if len(places := [*same]) == 1 and places[0].is_plain:
                    self._arguments[f"cell{number}.{name}"] = places

    @cached_property
    def _calls(self) -> Calls:
        return Calls(self.cells)

    @cached_property
    def _given(self) -> Mapping[str, str]:
        return given_options(self.cells)

    @cached_property
    def _overwritten(self) -> Mapping[tuple[str, str], str]:
        return overwritten_items(self.cells)

    @cached_property
    def _set_again(self) -> Mapping[ast.expr, str]:
        return set_again(self.cells)

    def names(self) -> list[str]:
        """Return the variables that the notebook assigns anywhere, in order."""
        return list(self._found)

    def is_ever_number(self, name: str) -> bool:
        """Return whether a variable ever gets a literal number, also as the variable of a loop."""
        values = [assignment.value for assignment in self._found.get(name, ())]
        return name in self._tried_in_loops or any(
            value is not None and is_plain(value) and isinstance(plain_value(value), int | float)
            for value in values
        )

    @cached_property
    def _tried_in_loops(self) -> Set[str]:
        """Variables of loops over numbers that the code states, as in `for lr in [0.1, 0.01]`."""
        loops = [
            node for cell in self.cells for node in ast.walk(cell.tree) if isinstance(node, ast.For)
        ]
        pairs = [pair for loop in loops for pair in _gone_through(loop.target, loop.iter)]
        return {
            target.id
            for target, iterated in pairs
            if isinstance(target, ast.Name)
            and any(map(_are_numbers, (iterated, *self._values_of(iterated))))
        }

    def _values_of(self, node: ast.expr) -> list[ast.expr]:
        """Return the values that a variable gets anywhere. The list is empty for other code."""
        found = self._found.get(node.id, ()) if isinstance(node, ast.Name) else ()
        return [assignment.value for assignment in found if assignment.value is not None]

    def at_top(self, name: str) -> list[Assignment]:
        """Return the assignments to a name outside of functions, classes, loops and branches."""
        return [a for a in self._found.get(name, ()) if not a.block]

    def places(self, name: str) -> list[Assignment]:
        """Return the plain values of a name in the notebook that a trial's value would replace."""
        return [a for a in self.at_top(name) or self._arguments.get(name, []) if a.is_plain]

    def overlaps(self, names: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield pairs of names whose values overlap.

        Yields:
            A name, and the name whose value contains the value of the first one.
        """
        stand = sorted(
            (place.cell, it.lineno, it.col_offset, it.end_lineno or 0, it.end_col_offset or 0, name)
            for name in names
            for place in self.places(name)
            if (it := place.value) is not None
        )
        for (cell, *_, line, column, outer), (its_cell, *begin, _, _, inner) in pairwise(stand):
            if cell == its_cell and begin < [line, column]:
                yield inner, outer

    def plain_value(self, name: str) -> Any:
        """Return the plain value that the notebook gives to a name.

        Returns:
            None if the notebook gives the name no plain value, or if this value is None.
        """
        plain = [a for a in self.places(name) if not self.is_overridden(a)] or self.places(name)
        return plain_value(plain[-1].value) if plain and plain[-1].value else None

    def arguments(self) -> list[str]:
        """Return the arguments, keys and attributes that a trial can set, in notebook order."""
        return self._settable

    @cached_property
    def _settable(self) -> list[str]:
        return [
            name for name in self._arguments if not self.at_top(name) and not self.why_not(name)
        ]

    def replaceable(self) -> Iterator[str]:
        """Yield the variables that a trial can set, in notebook order.

        Each variable costs a search of the whole notebook, so callers take only as many as they
        need.
        """
        plain = (name for name in self._found if self.places(name))
        return (name for name in plain if not self.why_not(name))

    def constants(self) -> set[str]:
        """Return the variables with a single assignment, of a plain value such as `0.1`."""
        return {
            name for name, found in self._found.items() if len(found) == 1 and found[0].is_plain
        }

    def literals(self) -> set[str]:
        """Return the variables to which the notebook assigns only plain values such as `0.1`."""
        return {
            name
            for name, found in self._found.items()
            if all(is_plain(assignment.value) for assignment in found)
        }

    def knows(self, name: str) -> bool:
        """Return whether the notebook assigns a name anywhere, or has an argument of this name."""
        return bool(self._found.get(name) or self._arguments.get(name))

    def bound_in(self, name: str) -> str | None:
        """Return the first code cell and line where code gives a name a value in any way."""
        return rebinding(self.cells, name, at=(0, 0))

    def why_not(self, name: str, asked: Set[str] = frozenset()) -> str | None:
        """Return why a trial cannot set a name, with a remedy. None if it can.

        The text completes the sentence "NAME is …".

        Args:
            name: Name of a variable, argument, key or attribute.
            asked: Names that the remedy must not propose.
        """
        asked = asked | {name}
        at_top = self.at_top(name)
        plain_or_loop = [a for a in at_top if a.is_plain or a.value is None]
        if len(plain_or_loop) > 1:
            first, second, *_ = plain_or_loop
            return f"assigned in {first}, and in {second}: {self._one_of(name)}keep one of them"
        if plain_or_loop:
            return self._why_not_at(name, plain_or_loop[0])
        if at_top:
            return (
                f"not a plain value in {at_top[0]}: assign it one{self._instead(at_top[0], asked)}"
            )
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
        """
        named = {
            name: found[0]
            for name, found in self._arguments.items()
            if all(place.value is value and self.is_overridden(place) for place in found)
        }
        return next((self._why_overridden(*place) for place in named.items()), None)

    def remedy_for_unknown(self, name: str, *, is_local: bool = False) -> str:
        """Return how to make a name sweepable that no top-level statement assigns.

        Args:
            name: Name that is not assigned at the top level.
            is_local: Whether a function or class has its own variable of this name. Then code that
                reads the name may mean that variable.

        Returns:
            The longer name that can be swept, or the remedy with the place where the name occurs.
            Empty if the name does not occur.
        """
        if longer := self._longer(name):
            return longer
        name = name.rpartition(".")[2]
        for cell in self.cells:
            for node in ast.walk(cell.tree):
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
        if (rival := rebinding(self.cells, name, at=at, own=place.target)) is not None:
            remedy = f"{self._one_of(name)}keep one of them, or rename one"
            return f"assigned in {place}, and in {rival}: {remedy}"
        return self._why_not_replaced(name, [place])

    def _why_no_argument(self, name: str, arguments: Sequence[Assignment]) -> str | None:
        live = [a for a in arguments if not self.is_overridden(a)]
        if not live:
            return self._why_overridden(name, arguments[0])
        if (target := live[0].target) is not None and not live[0].is_attribute:
            at, variable = (live[0].cell, live[0].index), name.rpartition(".")[2]
            rival = rebinding(self.cells, variable, at=at, own=target, is_late=True)
            if rival is not None and not is_read_until_rebound(self.cells, variable, at=at):
                return f"assigned in {live[0]}, and later in {rival}: keep one of them"
        values = {repr(plain_value(a.value)): a for a in live if a.value}
        attributes = [a for a in live if a.is_attribute]
        if len(values) > 1:
            several = ", and ".join(f"{value} in {a}" for value, a in [*values.items()][:2])
            if len(attributes) == len(live):
                return f"{several}: keep one of them"
            known = self._longer(name)
            return f"{several}: {known and f'{known}, or '}assign it to a name and use that"
        if attributes and (rival := attribute_rival(self.cells, name, attributes)) is not None:
            first = attributes[0]
            return f"assigned in {first}, and changed, or read before, in {rival}: keep one of them"
        return self._why_not_replaced(name, arguments)

    def _longer(self, name: str) -> str:
        """Return the advice to write a longer name, such as `Adam.lr` in place of `lr`.

        Returns:
            An empty text if no longer name can be swept.
        """
        longer = (known for known in self._arguments if known.endswith(f".{name}"))
        return next((f"write {known!r}" for known in longer if not self.why_not(known)), "")

    def _one_of(self, name: str) -> str:
        """Return the advice to sweep one assignment of a variable that has several.

        Returns:
            An empty text if none of them can be swept.
        """
        every = [*dict.fromkeys(f"cell{a.cell}.{name}" for a in self.at_top(name))]
        longer = [it for it in every if it in self._arguments][-_MOST_NAMED:]
        known = " or ".join(repr(it) for it in longer if not self.why_not(it))
        return f"write {known} to sweep it there, or " if known else ""

    def is_overridden(self, place: Assignment, lines: Set[tuple[int, int]] | None = None) -> bool:
        """Return whether a value in the notebook is never used, because other code overrides it.

        Args:
            place: Assignment of the value.
            lines: Cells and lines whose calls count. None if all calls count.
        """
        if self._other_value(place):
            return True
        default = place.parameter
        return default is not None and self._calls.overriding(default, lines) is not None

    def _other_value(self, place: Assignment) -> str:
        """Return where code gives an item, an option or an argument another value later.

        Returns:
            A code cell with a line. Empty if no code does so.
        """
        if place.value is not None and place.value in self._set_again:
            return self._set_again[place.value]
        if place.item is None:
            return ""
        given = self._given.get(place.item[1], "") if place.is_option else ""
        owner, key = place.item
        while owner and not given:
            given = self._overwritten.get((owner, key), "")
            owner, _, key = owner.rpartition(".")
        return given

    def _why_overridden(self, name: str, default: Assignment) -> str | None:
        if rival := self._other_value(default):
            return f"in {default}, and gets another value in {rival}: keep one of them"
        parameter = default.parameter
        override = None if parameter is None else self._calls.overriding(parameter)
        if parameter is None or override is None:
            return None
        its, callee = parameter.name, parameter.callee.removeprefix(".")
        usable: list[str] = []
        if isinstance(override.value, ast.Name):
            usable = [override.value.id]
        elif override.is_keyword:
            usable = [f"{callee}.{its}", f"cell{override.cell}.{its}"]
        elif parameter.position == 0:
            usable = [callee]
        instead = next(
            (other for other in usable if other != name and self._reaches(other, override)), None
        )
        remedy = (
            f"sweep {instead!r}" if instead else f"assign {its} at the top level, and pass it there"
        )
        return f"a default in {default}, which the call in {override} overrides: {remedy}"

    def _reaches(self, name: str, override: Override) -> bool:
        """Return whether a call would pass on the value that a trial gives to a name."""
        if isinstance(override.value, ast.Name):
            cell = self.cells[override.cell - 1]
            can_reach = bool(self.at_top(name)) and is_read(cell, override.line, name)
        else:
            can_reach = any(place.value is override.value for place in self.places(name))
        return can_reach and not self.why_not(name)

    def _why_not_replaced(self, name: str, places: Iterable[Assignment]) -> str | None:
        for place in places:
            news = {place.value: _PROBE} if place.value is not None else {}
            if self.cells[place.cell - 1].with_values(news) is None:
                return (
                    f"in {place}, whose code IPython changes before it runs: move the assignment "
                    f"of {name} to a cell of its own"
                )
        return None

    def _instead(self, computed: Assignment, asked: Set[str]) -> str:
        """Return the advice to sweep a name from which the code computes a value.

        Args:
            computed: Assignment of the computed value.
            asked: Names that the advice must not propose.

        Returns:
            An empty text if no such name can be swept.
        """
        nodes = ast.walk(computed.value) if computed.value is not None else ()
        read = {node.id: None for node in nodes if isinstance(node, ast.Name)}
        usable = (name for name in read if name not in asked and self.at_top(name))
        instead = next((name for name in usable if not self.why_not(name, asked)), None)
        return f", or sweep {instead!r}" if instead else ""


def _gone_through(target: ast.expr, iterated: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """Return the variables of a loop, each with the expression that it iterates over.

    `for i, (x, y) in enumerate(zip(xs, ys))` gives `x` with `xs`, and `y` with `ys`.
    """
    match target, iterated:
        case ast.Tuple(elts=[_, inner]), ast.Call(func=ast.Name(id="enumerate"), args=[whole, *_]):
            return _gone_through(inner, whole)
        case ast.Tuple(elts=targets), ast.Call(func=ast.Name(id="zip"), args=parts):
            return [
                pair for one in zip(targets, parts, strict=False) for pair in _gone_through(*one)
            ]
    return [(target, iterated)]


def _are_numbers(node: ast.expr) -> bool:
    """Return whether code states a series of numbers, such as `[0.1, 0.01]` or `range(3)`."""
    if isinstance(node, ast.Call):
        return last_name(node.func) in _NUMBERS
    values = plain_value(node) if is_plain(node) else None
    return isinstance(values, list | tuple) and any(isinstance(v, int | float) for v in values)


def _assignments_in(cell: Cell) -> Iterator[tuple[str, Assignment]]:
    for index, statement in enumerate(cell.statements):
        block = _BLOCKS.get(type(statement), "a branch")
        for inner in ast.walk(statement):
            is_top = inner is statement
            for name, value, is_own in _pairs(inner):
                yield (
                    name.id,
                    Assignment(
                        cell=cell.number,
                        line=getattr(inner, "lineno", 0),
                        index=index,
                        value=value,
                        block="" if is_top else block,
                        target=name if is_top else None,
                        is_plain=is_top and is_own and is_plain(value),
                    ),
                )


def plain_values(source: str) -> dict[str, tuple[Any, str]]:
    """Return the plain values that a cell gives to names.

    Returns:
        By name, the last value and the comment on its line.
    """
    found: dict[str, tuple[Any, str]] = {}
    cell = Cell(1, source)
    said = comments(cell.code)
    for name, assignment in _assignments_in(cell):
        if not assignment.block:
            found.pop(name, None)
        if assignment.is_plain and (value := assignment.value) is not None:
            found[name] = plain_value(value), said.get(value.end_lineno or 0, "")
    return found


def assigned_only(source: str) -> list[str]:
    """List the names that a cell assigns at its top level and does not read, in order."""
    cell = Cell(1, source)
    read = {
        node.id
        for node in ast.walk(cell.tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    names = (name for name, a in _assignments_in(cell) if not a.block and name not in read)
    return list(dict.fromkeys(names))


def with_values(
    sources: Sequence[str], values: Mapping[str, Any], as_code: Callable[[Any], str]
) -> list[str]:
    """Replace the plain values of names in cells.

    A comment on each changed line states the original value.

    Args:
        sources: Sources of all code cells.
        values: New values by name. Names without a plain value in the cells are ignored.
        as_code: Function that returns the Python code of a value.

    Returns:
        The new sources.

    Raises:
        NotebookError: A value cannot be replaced without a change of other code.
    """
    assignments = Assignments(sources)
    found: defaultdict[int, dict[ast.expr, str]] = defaultdict(dict)
    for name, new in values.items():
        for place in assignments.places(name):
            if place.value is not None:
                found[place.cell][place.value] = as_code(new)
    changed = [cell.with_values(found[cell.number]) for cell in assignments.cells]
    if None in changed:
        raise NotebookError(
            f"code cell {changed.index(None) + 1}: its values cannot be replaced without changing "
            "other code; move each assignment to a cell of its own"
        )
    return [source for source in changed if source is not None]


def _pairs(statement: ast.AST) -> Iterator[tuple[ast.Name, ast.expr | None, bool]]:
    """Yield the names that a statement assigns, with their values.

    Yields:
        The name, its value (None for a loop variable), and whether the statement gives this value
        to no other name.
    """
    if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.For):
        return
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    value = getattr(statement, "value", None)
    is_own = isinstance(statement, ast.Assign | ast.AnnAssign) and len(targets) == 1
    if value is None and not isinstance(statement, ast.For):
        return
    for target in targets:
        for inner, part, is_alone in unpacked(target, value):
            for name in ast.walk(inner):
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                    yield name, part, is_own and is_alone and name is inner
