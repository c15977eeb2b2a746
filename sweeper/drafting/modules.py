"""Find values in modules next to a notebook, and say how the notebook can sweep them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..notebooks.assignments import plain_values
from ..notebooks.calls import defaults
from ..notebooks.cell_code import parse_or_none
from ..notebooks.flows import Flows, LibraryCall
from ..notebooks.plain import is_plain, plain_value


def constants_to_assign(
    flows: Flows, code: str, folder: Path, is_searched: Callable[[str], bool]
) -> Iterator[tuple[str, str]]:
    """Yield the constants of local modules that a notebook reads, with the remedy.

    Args:
        code: The notebook's code.
        folder: Folder of the notebook.
        is_searched: Whether people search a name.
    """
    for alias, dotted in flows.imported.items():
        module, _, own = dotted.rpartition(".")
        whole, part = _file(folder, dotted), _file(folder, module)
        file = part if whole is None else whole
        if file is None:
            continue
        for name, value in _numbers(file).items():
            if whole is not None:
                target, where = f"{alias}.{name}", "below its import"
                is_read = target in code
            elif own == "*":
                target, where = name, "below its import"
                is_read = re.search(rf"\b{name}\b", code) is not None
            else:
                target, where = alias, "in place of its import"
                is_read = own == name and re.search(rf"\b{alias}\b", code) is not None
            if is_read and is_searched(target.rpartition(".")[2]):
                remedy = f"assign `{target} = {value}` {where}"
                yield target, f"{target} is {value} in {file.name}: {remedy}"


def defaults_to_give(
    call: LibraryCall, folder: Path, is_searched: Callable[[str], bool]
) -> Iterator[str]:
    """Yield the defaults of a local module's function that a call keeps, with the remedy."""
    module, _, name = call.callee.rpartition(".")
    file = _file(folder, module)
    if file is None or call.is_open:
        return
    for parameter, value in _defaults(file, name).items():
        if parameter not in call.given and is_searched(parameter):
            yield f"{parameter} is not given in {call}: write {parameter}={value} there"


def _file(folder: Path, module: str) -> Path | None:
    file = folder.joinpath(*module.split(".")).with_suffix(".py") if module else folder
    return file if file.is_file() else None


def _text(file: Path) -> str:
    return file.read_text("utf-8", errors="replace")


def _numbers(file: Path) -> dict[str, float]:
    values = ((name, value) for name, (value, _) in plain_values(_text(file)).items())
    return {name: value for name, value in values if _is_number(value)}


def _defaults(file: Path, name: str) -> dict[str, float]:
    """Return the defaults of a module's function, or of `__init__` of a module's class."""
    tree = parse_or_none(_text(file)) or ast.Module([], [])
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        for inner in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
                functions[node.name] = inner  # type: ignore[attr-defined]
    if name not in functions:
        return {}
    options = defaults(functions[name].args)
    plain = {option: plain_value(value) for option, value in options if is_plain(value)}
    return {option: value for option, value in plain.items() if _is_number(value)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
