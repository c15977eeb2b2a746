"""Find the arguments whose values the notebook itself replaces, as a `GridSearchCV` does."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .replacing import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setter:
    """A call that replaces arguments of objects: a search, or `set_params`.

    Attributes:
        cell: Number of the code cell, from 1.
        call: The call.
        names: Variables whose objects get other values.
        keys: Names of the arguments that get other values.
        is_search: Whether the call is a search, which copies the objects.
    """

    cell: int
    call: ast.Call
    names: set[str]
    keys: set[str]
    is_search: bool


def set_again(cells: Sequence[Cell]) -> Mapping[ast.expr, str]:
    """Return where searches and `set_params` replace the values of arguments.

    An argument is left out if other code may use the object with its original values.

    Args:
        cells: All code cells.

    Returns:
        A code cell with a line, by the node of the argument's value.
    """
    nodes = [(cell.number, node) for cell in cells for node in ast.walk(cell.tree)]
    made: defaultdict[str, list[ast.expr]] = defaultdict(list)
    for _, node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                made[name].append(value)
    setters = [*_setters(nodes, made)]
    in_setters = {
        inner
        for setter in setters
        for inner in ast.walk(setter.call if setter.is_search else setter.call.func)
    }
    reads = [
        (node.id, (cell, node.lineno))
        for cell, node in nodes
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node not in in_setters
    ]
    found: dict[ast.expr, str] = {}
    for setter in setters:
        at = (setter.cell, setter.call.lineno)
        objects: list[ast.expr] = [setter.call] if setter.is_search else []
        for name in setter.names:
            is_used = any(
                read == name and (setter.is_search or where < at) for read, where in reads
            )
            if len(made[name]) == 1 and not is_used:
                objects += made[name]
        for inner in (inner for value in objects for inner in ast.walk(value)):
            for option in inner.keywords if isinstance(inner, ast.Call) else ():
                if option.arg in setter.keys:
                    found.setdefault(option.value, f"code cell {at[0]}, line {at[1]}")
    return found


def _setters(
    nodes: Sequence[tuple[int, ast.AST]], made: Mapping[str, Sequence[ast.expr]]
) -> Iterator[_Setter]:
    """Yield the searches, then the calls of `set_params`.

    Args:
        nodes: All nodes of the code, each with the number of its cell.
        made: Values that are assigned to each variable.
    """
    grid: set[str] = set()
    calls = [(cell, node) for cell, node in nodes if isinstance(node, ast.Call)]
    for cell, call in calls:
        if ast.unparse(call.func).endswith("SearchCV"):
            names = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)}
            values = [call, *(value for name in names for value in made.get(name, ()))]
            keys = {
                key.value.rpartition("__")[2]
                for value in values
                for node in ast.walk(value)
                for key in (node.keys if isinstance(node, ast.Dict) else ())
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            }
            grid |= keys
            yield _Setter(cell=cell, call=call, names=names, keys=keys, is_search=True)
    for cell, call in calls:
        match call.func:
            case ast.Attribute(attr="set_params", value=ast.Name(id=name)):
                given = {option.arg for option in call.keywords}
                keys = {key.rpartition("__")[2] for key in given if key is not None}
                if None in given:  # As in `set_params(**search.best_params_)`.
                    keys |= grid
                yield _Setter(cell=cell, call=call, names={name}, keys=keys, is_search=False)
