"""Names of the positional parameters of functions, both in the notebook and in libraries."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from ..settings.yaml_reader import read_yaml
from .calls import definitions_in, last_name
from .plain import is_plain
from .replacing import Cell
from .syntax import Named

_TABLE = Path(__file__).with_name("signatures.yml")


@cache
def _table() -> Mapping[str, Mapping[str, Sequence[str]]]:
    content: Mapping[str, Mapping[str, Sequence[str]]] = read_yaml(_TABLE.read_text("utf-8"))
    return content


class Signatures:
    """The names of the positional parameters of functions and classes.

    A function is looked up by the last part of its name, such as `Adam` of `torch.optim.Adam`.

    Args:
        cells: All code cells. Their functions and classes have priority over libraries' ones.
    """

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._own: dict[str, Sequence[str]] = {}
        for cell in cells:
            for definition in definitions_in(cell.nodes):
                self._own[definition.name] = definition.passed

    def named(self, call: ast.Call) -> Iterator[Named]:
        """Yield the positional arguments of a call, each with the name of its parameter.

        Arguments whose parameter is unknown are left out.
        """
        for name, value in zip(self._names(call), call.args, strict=False):
            if isinstance(value, ast.Starred):
                return
            yield name, value

    def _names(self, call: ast.Call) -> Sequence[str]:
        callee = last_name(call.func)
        if not call.args or not callee:
            return ()
        if callee in self._own:
            return self._own[callee]
        kinds = ["after_an_object", "from_a_number"]
        if is_plain(call.args[0]):
            kinds.reverse()
        if _has_two_sizes(call, callee):
            kinds.insert(0, "of_two_sizes")
        for kind in kinds:
            if callee in _table()[kind]:
                return _table()[kind][callee]
        return ()


def _has_two_sizes(call: ast.Call, callee: str) -> bool:
    """Return whether a call may begin with two sizes, as `LSTM(10, 20)` of torch does.

    The second size may be a keyword. Keras' layers of the same names begin with one size. Their
    second argument is an activation: a text, or None.

    Args:
        call: Call of a function or class.
        callee: Last part of its name, such as `LSTM`.
    """
    if len(call.args) > 1:
        match call.args[1]:
            case ast.Constant(value=str() | None):
                pass
            case _:
                return True
    layer = _table()["of_two_sizes"].get(callee, ())
    return any(option.arg in layer[1:] for option in call.keywords)
