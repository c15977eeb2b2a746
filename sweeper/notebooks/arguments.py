"""Plain values that no variable has: arguments of calls, keys of dicts and defaults."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from .calls import defaults, parameters_of
from .plain import Assignment, is_plain
from .replacing import Cell


def arguments_of(cell: Cell) -> Iterator[tuple[str, Assignment]]:
    """Find the keywords of calls, the text keys of dicts and the defaults with plain values.

    Each has longer forms, too, with a dot after what it belongs to: the function that is called,
    the variable or keyword that gets the call's result or the dict, and the cell, as `cell12`. A
    function's name alone is the first argument of its calls.
    """
    owners: dict[ast.AST, str] = {}
    parameters = parameters_of(cell)
    for node in ast.walk(cell.tree):  # from the outside in
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
                named = [*defaults(node)]
        belongs = [f"{it}." for it in (function, owners.get(node), f"cell{cell.number}") if it]
        found = {f"{before}{name}": value for name, value in named for before in ("", *belongs)}
        if isinstance(node, ast.Call) and node.args:
            found[function] = node.args[0]
        for name, value in found.items():
            if name and is_plain(value):
                block, line = "a default" if isinstance(node, ast.arguments) else "", value.lineno
                at = Assignment(cell=cell.number, line=line, block=block, value=value)
                yield name, replace(at, is_plain=True, parameter=parameters.get(value))
