"""Names of the positional parameters of functions, both in the notebook and in libraries."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from ..settings.yaml_reader import read_yaml
from .calls import Function, gets_object, methods_of, positional
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
        self._own: dict[str, Sequence[str]] = {}
        classes: dict[ast.AST, str] = {}
        for node in (node for cell in cells for node in ast.walk(cell.tree)):
            if isinstance(node, ast.ClassDef):  # `ast.walk` yields a class before its methods.
                self._own[node.name] = ()
                classes |= dict.fromkeys(methods_of(node), node.name)
            elif isinstance(node, Function):
                owner = classes.get(node)
                names = positional(node.args)[owner is not None and gets_object(node) :]
                self._own[owner if owner and node.name == "__init__" else node.name] = names

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
                layer = _table()["of_two_sizes"].get(callee, ())
                # The second argument of a layer of Keras is an activation: a text, or None.
                is_size = len(call.args) > 1 and not (
                    isinstance(second := call.args[1], ast.Constant)
                    and isinstance(second.value, str | None)
                )
                if is_size or any(option.arg in layer[1:] for option in call.keywords):
                    kinds.insert(0, "of_two_sizes")
                return next(
                    (_table()[kind][callee] for kind in kinds if callee in _table()[kind]), ()
                )
        return ()
