"""Find the arguments whose values the notebook itself replaces, as a `GridSearchCV` does."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .calls import Function
from .replacing import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setter:
    """A call that replaces arguments of objects: a search, or `set_params`.

    Attributes:
        cell: Number of the code cell, from 1.
        call: The call.
        names: Variables whose objects get other values.
        keys: Arguments that get other values, such as `C`, or `svc__C` for the step `svc` of a
            pipeline.
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
    setters = [*_setters(cells, nodes, made)]
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
        objects: list[ast.expr] = []
        steps: list[ast.expr] = []
        outer = setter.names
        if setter.is_search:
            objects = [*setter.call.args, *(option.value for option in setter.call.keywords)]
            outer = {value.id for value in objects if isinstance(value, ast.Name)}
        for name in setter.names:
            is_used = any(
                read == name and (setter.is_search or where < at) for read, where in reads
            )
            if len(made[name]) == 1 and not is_used:
                (objects if name in outer else steps).append(made[name][0])
        for key in setter.keys:
            for value in _meant(key, objects, steps):
                found.setdefault(value, f"code cell {at[0]}, line {at[1]}")
    return found


def _meant(key: str, objects: Sequence[ast.expr], steps: Sequence[ast.expr]) -> list[ast.expr]:
    """Return the value of the argument that a key sets. Empty if several arguments may be meant.

    Args:
        key: Name of an argument, after the names of the steps that lead to it: `svc__C`.
        objects: Code of the objects that get other values.
        steps: Code of objects that are steps of these objects, where they are pipelines.
    """
    path, _, argument = key.rpartition("__")
    found = [*_arguments(objects, key)]
    if path:
        inner = [node for value in objects for node in ast.walk(value) if node is not value]
        inner += [node for value in steps for node in ast.walk(value)]
        names: dict[ast.AST, str] = {}
        for node in inner:
            match node:
                case ast.Tuple(elts=[ast.Constant(value=str(name)), ast.Call() as step, *_]):
                    names[step] = name
        last = path.split("__")[-1]
        found += _arguments([node for node in inner if names.get(node, last) == last], argument)
    return found if len(found) == 1 else []


def _arguments(nodes: Iterable[ast.AST], name: str) -> Iterator[ast.expr]:
    """Yield the values of the keyword arguments of a name in those nodes that are calls."""
    for node in nodes:
        for option in node.keywords if isinstance(node, ast.Call) else ():
            if option.arg == name:
                yield option.value


def _setters(
    cells: Sequence[Cell],
    nodes: Sequence[tuple[int, ast.AST]],
    made: Mapping[str, Sequence[ast.expr]],
) -> Iterator[_Setter]:
    """Yield the searches, then the calls of `set_params` that run in each trial.

    Args:
        cells: All code cells.
        nodes: All nodes of the code, each with the number of its cell.
        made: Values that are assigned to each variable.
    """
    grid: set[str] = set()
    for cell, call in nodes:
        if isinstance(call, ast.Call) and _is_search(call.func):
            names = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)}
            values = [call, *(value for name in names for value in made.get(name, ()))]
            keys = {
                key.value
                for value in values
                for node in ast.walk(value)
                for key in (node.keys if isinstance(node, ast.Dict) else ())
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            }
            grid |= keys
            yield _Setter(cell=cell, call=call, names=names, keys=keys, is_search=True)
    calls = [
        (cell.number, node)
        for cell in cells
        for statement in cell.statements
        if not isinstance(statement, Function | ast.ClassDef | ast.If | ast.Try)
        for node in ast.walk(statement)
    ]
    for cell, call in calls:
        match call:
            case ast.Call(func=ast.Attribute(attr="set_params", value=ast.Name(id=name))):
                keys = {option.arg for option in call.keywords if option.arg is not None}
                # `set_params(**search.best_params_)` sets all arguments that the searches vary.
                if len(keys) < len(call.keywords):
                    keys |= grid
                yield _Setter(cell=cell, call=call, names={name}, keys=keys, is_search=False)


def _is_search(callee: ast.expr) -> bool:
    match callee:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.endswith("SearchCV")
    return False
