"""Find values in local modules that a sweep cannot replace, and say how to change the notebook.

A sweep replaces only values that are written in the notebook.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ...notebook_code.assignments import plain_values
from ...notebook_code.calls import parameters_of
from ...notebook_code.flows import Flows, LibraryCall
from ...notebook_code.plain import is_plain, plain_value
from ...notebook_code.replacing import Cell
from ...trials import is_number
from .spaces import is_searched


def constants_to_assign(
    flows: Flows, code: str, modules: Mapping[str, Cell]
) -> Iterator[tuple[str, str]]:
    """Yield the constants of local modules that a notebook reads and that people usually tune.

    Args:
        flows: Flow of values in the notebook, with its imports.
        code: The notebook's code.
        modules: Local modules by name.

    Yields:
        The name by which the notebook reads the constant, and a text that tells the user which
        assignment to write into the notebook.
    """
    for alias, dotted in flows.imported.items():
        above, _, own = dotted.rpartition(".")
        part = above.rpartition(".")[2]
        module = own if own in modules else part
        if module not in modules:
            continue
        for name, (value, _) in plain_values(modules[module].source).items():
            where = "below its import"
            if module == own:
                target = f"{alias}.{name}"
                is_read = target in code
            elif own == "*":
                target = name
                is_read = _has_word(code, name)
            else:
                target, where = alias, "in place of its import"
                is_read = own == name and _has_word(code, alias)
            if is_read and is_number(value) and is_searched(target.rpartition(".")[2]):
                remedy = f"assign `{target} = {value}` {where}"
                yield target, f"{target} is {value} in the module {module}: {remedy}"


def defaults_to_give(call: LibraryCall, modules: Mapping[str, Cell]) -> Iterator[str]:
    """Yield texts that tell the user to state defaults of a local module's function in a call.

    An option that the notebook's call states can be swept. There is a text for each default that
    is a number, that people usually tune, and that the call does not state.

    Args:
        call: The call. Nothing is yielded if it is not a call of a local module's function, or if
            it may pass more arguments, as in `f(**options)`.
        modules: Local modules by name.
    """
    above, _, name = call.callee.rpartition(".")
    module = modules.get(above.rpartition(".")[2])
    if module is None or call.is_open:
        return
    for default, parameter in parameters_of(module).items():
        option = parameter.name
        if parameter.callee != name or option in call.given or not is_searched(option):
            continue
        value = plain_value(default) if is_plain(default) else None
        if is_number(value):
            yield f"{option} is not given in {call}: write {option}={value} there"


def _has_word(code: str, word: str) -> bool:
    return re.search(rf"\b{word}\b", code) is not None
