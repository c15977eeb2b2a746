"""Names of the positional parameters of functions, both in the notebook and in libraries."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from ..settings.yaml_reader import read_yaml
from .plain import is_plain
from .replacing import Cell

_TABLE = Path(__file__).with_name("signatures.yml")


@cache
def _table() -> Mapping[str, Mapping[str, Sequence[str]]]:
    content: Mapping[str, Mapping[str, Sequence[str]]] = read_yaml(_TABLE.read_text("utf-8"))
    return content


class Signatures:
    """Names of positional parameters, by the last part of the called function's or class's name.

    Args:
        cells: All code cells. Their functions and classes have priority over libraries' ones.
    """

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._own = dict(_defined(node) for cell in cells for node in _definitions(cell.tree))

    def named(self, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
        """Yield the positional arguments of a call whose parameters' names are known."""
        for name, value in zip(self._names(call), call.args, strict=False):
            if isinstance(value, ast.Starred):
                return
            yield name, value

    def _names(self, call: ast.Call) -> Sequence[str]:
        match call.func:
            case ast.Name(id=callee) | ast.Attribute(attr=callee) if call.args:
                if callee in self._own:
                    return self._own[callee]
                kinds = ["from_a_number", "after_an_object"]
                if not is_plain(call.args[0]):
                    kinds.reverse()
                return next(
                    (_table()[kind][callee] for kind in kinds if callee in _table()[kind]), ()
                )
        return ()


def _definitions(
    tree: ast.Module,
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | None, bool]]:
    """Yield the functions and classes that a notebook defines.

    Yields:
        The name, the function that gets the arguments of a call, and whether its first parameter is
        the object (`self`). The function is None for a class without `__init__`.
    """
    methods = set()
    for node in ast.walk(tree):  # Outer nodes come before the nodes inside of them.
        if isinstance(node, ast.ClassDef):
            inside = [inner for inner in node.body if isinstance(inner, ast.FunctionDef)]
            methods |= {*inside}
            yield (
                node.name,
                next((method for method in inside if method.name == "__init__"), None),
                True,
            )
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node, node in methods


def _defined(
    found: tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | None, bool],
) -> tuple[str, Sequence[str]]:
    name, function, has_self = found
    if function is None:
        return name, ()
    options = [option.arg for option in (*function.args.posonlyargs, *function.args.args)]
    return name, options[1:] if has_self else options
