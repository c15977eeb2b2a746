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
from .calls import last_name
from .plain import LeftOut
from .replacing import Cell
from .searched import is_search
from .signatures import Signatures
from .syntax import keywords_of, names_in, unpacked_dicts

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
    for pattern, row in _table().items():
        if fnmatchcase(callee, pattern):
            return row
    return {}


class LeftOutArguments:
    """Finds the arguments that a notebook's calls of libraries leave out.

    If the notebook itself searches params, for example with `GridSearchCV`, the arguments of the
    objects that it may search are not found, because this search may set them.

    Args:
        cells: All code cells.
        signatures: Parameter names of the functions that the notebook calls.
    """

    def __init__(self, cells: Sequence[Cell], signatures: Signatures) -> None:
        self._signatures = signatures
        self._imported = imported_by(cells)
        #: All syntax tree nodes in calls that search params, such as `GridSearchCV(…)`, and in
        #: calls of `set_params(**…)`. `_searched_names` has the names of the variables in them.
        self._searched: set[ast.AST] = set()
        self._searched_names: set[str] = set()
        #: Names of the arguments that other calls of `set_params` state.
        self._set_later: set[str] = set()
        for cell in cells:
            for node in cell.nodes:
                if not isinstance(node, ast.Call):
                    continue
                is_set_params = last_name(node.func) == "set_params"
                if is_search(node) or (is_set_params and unpacked_dicts(node)):
                    self._searched |= {*ast.walk(node)}
                    self._searched_names |= {name.id for name in names_in(node)}
                elif is_set_params:
                    self._set_later |= {key.rpartition("__")[2] for key, _ in keywords_of(node)}

    def of(self, call: ast.Call, variable: str) -> Iterator[tuple[str, LeftOut]]:
        """Yield the arguments that a call leaves out and `defaults_of` lists, with their names.

        An argument is not yielded if the call may pass it after all, as in `Adam(**options)`, or if
        `set_params` or a search such as `GridSearchCV` may set it.

        Args:
            call: Any call.
            variable: Variable to which its result is assigned. Empty if it is assigned to none.
        """
        callee = dotted(call.func, self._imported)
        options = defaults_of(callee) if callee else {}
        if not options or self._may_be_searched(call, variable):
            return
        known = dict(self._signatures.named(call))
        is_understood = len(known) == len(call.args) and not unpacked_dicts(call)
        is_rate = bool(call.args) and re.search(r"keras.*\.optimizers\.", callee) is not None
        if not is_understood or is_rate:
            return  # The call may pass the argument after all: by position, or in `**options`.
        given = known.keys() | dict(keywords_of(call)).keys() | self._set_later
        for name, value in options.items():
            if name not in given:
                yield name, LeftOut.of(call, callee=callee, parameter=name, value=value)

    def _may_be_searched(self, call: ast.Call, variable: str) -> bool:
        """Return whether `GridSearchCV` or `set_params(**…)` may set arguments of an object.

        Args:
            call: Call that makes the object.
            variable: Variable to which the object is assigned. Empty if it is assigned to none.
        """
        if call in self._searched:
            return True
        has_other_name = variable != "" and variable not in self._searched_names
        return bool(self._searched_names) and not has_other_name


def dotted(function: ast.expr, imported: Mapping[str, str]) -> str:
    """Return the full name of an imported function. Empty if the function was not imported.

    Args:
        function: Function of a call, such as `optim.Adam`.
        imported: Full name of each imported name, as `imported_by` returns them.
    """
    first, _, rest = ast.unparse(function).partition(".")
    if first not in imported or "(" in rest:
        return ""
    return f"{imported[first]}.{rest}" if rest else imported[first]


def imported_by(cells: Iterable[Cell]) -> dict[str, str]:
    """Return the full name of each name that an import binds, such as `torch.nn` for `nn`."""
    found: dict[str, str] = {}
    for cell in cells:
        for node in cell.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    first = alias.name.partition(".")[0]
                    if alias.asname:
                        found[alias.asname] = alias.name
                    else:
                        found[first] = first
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found
