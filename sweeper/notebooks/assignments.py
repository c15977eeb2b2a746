"""Where a notebook assigns its names, and how a trial's values replace the notebook's.

A name can get a trial's value where one statement at the top level assigns it a plain value: a
number, a text, None, or a list or dict of such. That value is replaced where it stands, so all that
follows sees the trial's, in the same cell too. A name that nothing assigns at the top level is the
keyword of a call, or the key of a dict, before a plain value.
"""

from __future__ import annotations

import ast
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeGuard

from .cell_code import comments, parse_or_none, plain_python

#: The comment that says what a value was is cut after so many characters.
_COMMENT_WIDTH = 60
_BLOCKS: Mapping[type[ast.stmt], str] = {
    ast.FunctionDef: "a function",
    ast.AsyncFunctionDef: "a function",
    ast.ClassDef: "a class",
    ast.For: "a loop",
    ast.While: "a loop",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One statement's assignment of one name.

    Attributes:
        cell: the number of its code cell, from 1.
        line: of the statement in its cell, from 1.
        block: what it stands in, such as `a function`; empty at the top level.
        value: what is assigned; None where a loop assigns one value after another.
        is_plain: whether the value can be replaced where it stands.
    """

    cell: int
    line: int
    block: str = ""
    value: ast.expr | None = None
    is_plain: bool = False

    def __str__(self) -> str:
        return f"code cell {self.cell}, line {self.line}"


class Assignments:
    """All assignments of a notebook in Python; cells that are no valid Python have none.

    Args:
        cells: the sources of the code cells.
    """

    def __init__(self, cells: Sequence[str]) -> None:
        self._found: defaultdict[str, list[Assignment]] = defaultdict(list)
        self._arguments: defaultdict[str, list[Assignment]] = defaultdict(list)
        for number, source in enumerate(cells, start=1):
            for name, assignment in assignments_of(source, cell=number):
                self._found[name].append(assignment)
            for name, argument in _arguments_of(source, cell=number):
                self._arguments[name].append(argument)
        for name, its in self._arguments.items():
            self._arguments[name] = [it for it in its if not it.block] or its

    def at_top(self, name: str) -> list[Assignment]:
        """What the notebook assigns to a name outside of functions, loops and branches."""
        return [a for a in self._found.get(name, ()) if not a.block]

    def places(self, name: str) -> list[Assignment]:
        """Where the plain values stand that a trial's value of a name replaces."""
        return [a for a in self.at_top(name) or self._arguments.get(name, []) if a.is_plain]

    def overlaps(self, names: Iterable[str]) -> Iterator[tuple[str, str]]:
        """The names whose values stand inside, or in place, of those of others; and the others."""
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
        """The notebook's own value of a name; None also where it has no plain one."""
        plain = self.places(name)
        return _plain(plain[-1].value) if plain and plain[-1].value else None

    def arguments(self) -> list[str]:
        """The names of keywords and keys that can get a trial's value, in their order."""
        return [it for it in self._arguments if not self.at_top(it) and not self.why_not(it)]

    def replaceable(self) -> list[str]:
        """The names that can get a trial's value where they stand, in their order."""
        return [name for name in self._found if not self.why_not(name)]

    def constants(self) -> set[str]:
        """The names that the notebook assigns once, a plain value."""
        return {
            name for name, found in self._found.items() if len(found) == 1 and found[0].is_plain
        }

    def why_not(self, name: str) -> str:
        """What keeps a name from getting a trial's value, and the remedy; empty for nothing.

        The text completes the sentence "NAME is …".
        """
        at_top = self.at_top(name)
        plain_or_loop = [a for a in at_top if a.is_plain or a.value is None]
        if len(plain_or_loop) > 1:
            first, second, *_ = plain_or_loop
            return f"assigned in {first}, and in {second}: keep one of them"
        if plain_or_loop:
            loop = plain_or_loop[0]
            return "" if loop.is_plain else f"one of many values in {loop}: assign it one value"
        if at_top:
            return f"worked out in {at_top[0]}: give it a value{self._or_sweep(at_top[0])}"
        if arguments := self._arguments.get(name):
            values = {repr(_plain(a.value)): a for a in arguments if a.value}
            if len(values) == 1:
                return ""
            several = ", and ".join(f"{value} in {a}" for value, a in [*values.items()][:2])
            longer = (it for it in self._arguments if it.endswith(f".{name}"))
            known = next((f"write {it!r}, or " for it in longer if not self.why_not(it)), "")
            return f"{several}: {known}assign it to a name and use that"
        if name in self._found:
            inside = self._found[name][0]
            return f"assigned only in {inside.block}, {inside}: assign it at the top level"
        return "not assigned"

    def other_value(self, name: str, *, after_cell: int) -> str:
        """The later cell that gives a name another value, and the remedy; empty where none does.

        The text completes the sentence "NAME is …".
        """
        rivals = [
            a
            for a in self._found.get(name, ())
            if a.cell > after_cell and not a.block and (a.is_plain or a.value is None)
        ]
        return f"assigned another value in {rivals[0]}: keep one of the two" if rivals else ""

    def _or_sweep(self, computed: Assignment) -> str:
        """Propose a name from which a value is worked out."""
        nodes = ast.walk(computed.value) if computed.value is not None else ()
        read = (node.id for node in nodes if isinstance(node, ast.Name))
        instead = next((name for name in read if not self.why_not(name)), None)
        return f", or sweep {instead!r}" if instead else ""


def assignments_of(source: str, *, cell: int = 1) -> Iterator[tuple[str, Assignment]]:
    """The names that a cell assigns, with the statements that do, in order.

    Args:
        cell: the number of the code cell.
    """
    code = plain_python(source)
    tree = parse_or_none(code)
    for statement in tree.body if tree is not None else ():
        for name, value, is_own in _pairs(statement):
            is_plain = is_own and _is_plain(value) and _stands(source, code, value)
            at = Assignment(cell=cell, line=statement.lineno, value=value, is_plain=is_plain)
            yield name, at
        block = _BLOCKS.get(type(statement), "a branch")
        for inner in ast.walk(statement):
            if isinstance(inner, ast.stmt) and inner is not statement:
                for name, value, _ in _pairs(inner):
                    yield name, Assignment(cell=cell, line=inner.lineno, block=block, value=value)


def _arguments_of(source: str, *, cell: int) -> Iterator[tuple[str, Assignment]]:
    """The keywords of calls, the text keys of dicts and the options of functions with plain values.

    Each has longer forms, too, with a dot after what it belongs to: the function that is called,
    the variable or keyword that gets the call's result or the dict, and the cell, as `cell12`. A
    function's name alone is the first argument of its calls.
    """
    code = plain_python(source)
    owners: dict[ast.AST, str] = {}
    for node in ast.walk(parse_or_none(code) or ast.Module([], [])):  # from the outside in
        function, named = "", list[tuple[str, ast.expr]]()
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value):
                owners[value] = target
            case ast.Call(func=ast.Name(id=function) | ast.Attribute(attr=function)):
                named = [(it.arg, it.value) for it in node.keywords if it.arg]
                owners |= {value: name for name, value in named}
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
                named = [(str(k.value), v) for k, v in pairs if isinstance(k, ast.Constant)]
            case ast.arguments():
                options = node.args[len(node.args) - len(node.defaults) :] + node.kwonlyargs
                own = zip(options, [*node.defaults, *node.kw_defaults], strict=True)
                named = [(it.arg, value) for it, value in own if value]
        belongs = [f"{it}." for it in (function, owners.get(node), f"cell{cell}") if it]
        found = {f"{before}{name}": value for name, value in named for before in ("", *belongs)}
        if isinstance(node, ast.Call) and node.args:
            found[function] = node.args[0]
        for name, value in found.items():
            if name and _is_plain(value) and _stands(source, code, value):
                block, line = "a default" if isinstance(node, ast.arguments) else "", value.lineno
                at = Assignment(cell=cell, line=line, block=block, value=value, is_plain=True)
                yield name, at


def plain_values(source: str) -> dict[str, tuple[Any, str]]:
    """The plain values that names have after a cell, with the comments behind them."""
    found: dict[str, tuple[Any, str]] = {}
    for name, assignment in assignments_of(source):
        if not assignment.block:
            found.pop(name, None)
        if assignment.is_plain and (value := assignment.value) is not None:
            comment = comments(plain_python(source)).get(value.end_lineno or 0, "")
            found[name] = _plain(value), comment
    return found


def assigned_only(source: str) -> list[str]:
    """The names that a cell assigns at its top level and does not read, in order."""
    tree = parse_or_none(plain_python(source)) or ast.Module([], [])
    read = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    names = (name for name, a in assignments_of(source) if not a.block and name not in read)
    return list(dict.fromkeys(names))


def with_values(
    cells: Sequence[str], values: Mapping[str, Any], as_code: Callable[[Any], str]
) -> list[str]:
    """Replace the plain values that names have in cells; comments behind them say what they were.

    Args:
        cells: the sources of all cells.
        values: by name; those that the cells do not have are left out.
        as_code: makes Python of a value.
    """
    assignments = Assignments(cells)
    found: defaultdict[int, list[tuple[ast.expr, str]]] = defaultdict(list)
    for name, new in values.items():
        for place in assignments.places(name):
            if place.value is not None:
                found[place.cell].append((place.value, as_code(new)))
    return [_replaced(source, found[number]) for number, source in enumerate(cells, start=1)]


def _replaced(source: str, news: Sequence[tuple[ast.expr, str]]) -> str:
    lines = source.encode().split(b"\n")  # Python counts columns in bytes
    were: dict[int, list[str]] = {}  # by line, as it will be counted
    for value, code in sorted(news, key=lambda it: (-it[0].lineno, -it[0].col_offset)):
        first, last = value.lineno - 1, (value.end_lineno or value.lineno) - 1
        old = ast.get_source_segment(source, value) or ""
        if code == old:
            continue
        before, after = lines[first][: value.col_offset], lines[last][value.end_col_offset :]
        lines[first : last + 1] = [before + code.encode() + after]
        were = {line - (last - first): texts for line, texts in were.items()}
        were.setdefault(first, []).insert(0, ast.unparse(value) if "\n" in old else old)
    for line, texts in were.items():
        comment = f"  # was {', '.join(texts)}"
        if len(comment) > _COMMENT_WIDTH:
            comment = f"{comment[:_COMMENT_WIDTH]}…"
        commented = [*lines[:line], lines[line] + comment.encode(), *lines[line + 1 :]]
        if _is_same_code(lines, commented):  # the line may end inside a text of several lines
            lines = commented
    return b"\n".join(lines).decode()


def _pairs(statement: ast.AST) -> Iterator[tuple[str, ast.expr | None, bool]]:
    """The names that a statement assigns, with the value, and whether it is of that name alone."""
    match statement:
        case ast.Assign(targets=[ast.Tuple() | ast.List() as target], value=value):
            parts = value.elts if isinstance(value, ast.Tuple | ast.List) else []
            if len(parts) == len(target.elts) and not any(
                isinstance(part, ast.Starred) for part in (*target.elts, *parts)
            ):
                for part, its_value in zip(target.elts, parts, strict=True):
                    yield from _pairs(ast.Assign(targets=[part], value=its_value))
            else:
                yield from ((name, value, False) for name in _stored(target))
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                is_own = len(targets) == 1 and isinstance(target, ast.Name)
                yield from ((name, value, is_own) for name in _stored(target))
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield from ((name, value, True) for name in _stored(target))
        case ast.AugAssign(target=target, value=value):
            yield from ((name, value, False) for name in _stored(target))
        case ast.For(target=target):
            yield from ((name, None, False) for name in _stored(target))


def _stored(target: ast.expr) -> Iterator[str]:
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _is_plain(value: ast.expr | None) -> TypeGuard[ast.expr]:
    try:
        return value is not None and isinstance(
            _plain(value), int | float | str | list | tuple | dict | None
        )
    except (ArithmeticError, ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return False


#: How people write numbers, as in `10 ** -3` and `5 * 60`.
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
#: A power of greater numbers could take for ever.
_MOST = 100


def _plain(value: ast.expr) -> Any:
    """The value of a literal, or of arithmetic with two numbers."""
    if isinstance(value, ast.BinOp) and (act := _ARITHMETIC.get(type(value.op))):
        left, right = ast.literal_eval(value.left), ast.literal_eval(value.right)
        are_numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if are_numbers and (act is not operator.pow or max(abs(left), abs(right)) <= _MOST):
            return act(left, right)
    return ast.literal_eval(value)


def _stands(source: str, code: str, value: ast.expr) -> bool:
    """Whether a value of the code stands there in the source; IPython may move what it converts."""
    if source == code:
        return True
    of_both = (ast.get_source_segment(text, value) for text in (source, code))
    try:
        return len({*of_both}) == 1
    except (IndexError, UnicodeDecodeError):
        return False


def _is_same_code(lines: Sequence[bytes], others: Sequence[bytes]) -> bool:
    first, second = (plain_python(b"\n".join(it).decode()) for it in (lines, others))
    trees = [parse_or_none(first), parse_or_none(second)]
    dumps = {tree and ast.dump(tree) for tree in trees}
    return None not in dumps and len(dumps) == 1
