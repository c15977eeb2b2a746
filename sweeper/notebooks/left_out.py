"""Find the arguments that calls of libraries leave out, so that trials can set them.

For example, a trial can set the `lr` of `Adam(params)`, whose default is 0.001.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from ..settings.yaml_reader import read_yaml
from .plain import Assignment, LeftOut
from .replacing import Cell
from .signatures import Signatures

_TABLE = Path(__file__).with_name("defaults.yml")


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    content: Mapping[str, Mapping[str, Any]] = read_yaml(_TABLE.read_text("utf-8"))
    return content


def defaults_of(callee: str) -> Mapping[str, Any]:
    """Return the arguments of a library's class that people often vary, with their defaults.

    Args:
        callee: The class as imported, such as `torch.optim.Adam`.

    Returns:
        The defaults by argument, the most important argument first. Empty for a class that the
        table `defaults.yml` lacks.
    """
    return next((row for name, row in _table().items() if fnmatchcase(callee, name)), {})


class LeftOutArguments:
    """Finds the arguments that a notebook's calls of libraries leave out.

    If the notebook itself searches params, as with `GridSearchCV`, the arguments of the searched
    object are not found, because that search may set them.

    Args:
        cells: All code cells.
        signatures: Parameter names of the functions that the notebook calls.
    """

    def __init__(self, cells: Sequence[Cell], signatures: Signatures) -> None:
        self._signatures = signatures
        self._imported = imported_by(cells)
        calls = [
            node
            for cell in cells
            for node in ast.walk(cell.tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute)
        ]
        searches = [call for call in calls if _searches(call)]
        self._set_later = {
            str(option.arg).rpartition("__")[2]
            for call in calls
            for option in call.keywords
            if _name(call) == "set_params"
        }
        self._inside = {node for search in searches for node in ast.walk(search)}
        self._searched = {node.id for node in self._inside if isinstance(node, ast.Name)}

    def of(self, cell: Cell) -> Iterator[tuple[str, Assignment]]:
        """Yield the arguments that the calls of a cell leave out, each with a place for its value.

        An argument is yielded under several names: `SVC.C`, `cell4.C`, and `model.C` if the call's
        result is assigned to `model`.
        """
        owners: dict[ast.AST, str] = {}
        for node in ast.walk(cell.tree):  # Outer nodes come before the nodes inside of them.
            match node:
                case ast.Assign(targets=[ast.Name(id=target)], value=value):
                    owners[value] = target
                case ast.keyword(arg=str(target), value=value):
                    owners[value] = target
                case ast.Call(func=ast.Name(id=function) | ast.Attribute(attr=function)):
                    owner = owners.get(node, "")
                    if self._is_searched(node, owner):
                        continue
                    for value in self._left_out(node):
                        at = Assignment(
                            cell=cell.number, line=value.lineno, value=value, is_plain=True
                        )
                        for before in dict.fromkeys((function, owner, f"cell{cell.number}")):
                            if before:
                                yield f"{before}.{value.parameter}", at

    def _is_searched(self, call: ast.Call, owner: str) -> bool:
        """Return whether a `GridSearchCV` or the like in the notebook may set a call's arguments.

        Args:
            call: Call that makes the object.
            owner: Variable to which the object is assigned. Empty if it is assigned to none.
        """
        is_named = not owner or owner in self._searched
        return call in self._inside or (bool(self._searched) and is_named)

    def _left_out(self, call: ast.Call) -> Iterator[LeftOut]:
        callee = dotted(call.func, self._imported)
        options = defaults_of(callee) if callee else {}
        if not options:
            return
        known = dict(self._signatures.named(call))
        is_open = any(option.arg is None for option in call.keywords)
        is_rate = bool(call.args) and re.search(r"keras.*\.optimizers\.", callee) is not None
        if is_open or len(known) < len(call.args) or is_rate:
            return  # The call may pass the argument in a way that is not understood.
        given = {*known, *(option.arg for option in call.keywords)} | self._set_later
        for name, value in options.items():
            if name not in given:
                yield LeftOut.of(call, callee=callee, parameter=name, value=value)


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)


def _searches(call: ast.Call) -> bool:
    """Return whether a call may set any argument of an object, as a `GridSearchCV` does."""
    is_open = any(option.arg is None for option in call.keywords)
    return _name(call).endswith("SearchCV") or (_name(call) == "set_params" and is_open)


def dotted(function: ast.expr, imported: Mapping[str, str]) -> str:
    """Return the full name of an imported function. Empty if the function was not imported.

    Args:
        function: Function of a call, such as `optim.Adam`.
        imported: Full name of each imported name, as `imported_by` returns them.
    """
    first, _, rest = ast.unparse(function).partition(".")
    if first not in imported or "(" in rest:
        return ""
    return ".".join(filter(None, (imported[first], rest)))


def imported_by(cells: Iterable[Cell]) -> dict[str, str]:
    """Return the full name of each name that an import binds, such as `torch.nn` for `nn`."""
    found: dict[str, str] = {}
    for cell in cells:
        for node in ast.walk(cell.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.name if alias.asname else alias.name.partition(".")[0]
                    found[alias.asname or name] = name
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found
