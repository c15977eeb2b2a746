"""Small functions about syntax trees that several modules use."""

from __future__ import annotations

import ast
from collections.abc import Iterator

#: A value with the name of its parameter, or with its key in a dict.
Named = tuple[str, ast.expr]


def keywords_of(call: ast.Call) -> list[Named]:
    """Return the arguments that a call passes by name."""
    return [(option.arg, option.value) for option in call.keywords if option.arg is not None]


def unpacked_dicts(call: ast.Call) -> list[ast.expr]:
    """Return the dicts that a call unpacks: `options` of `f(**options)`."""
    return [option.value for option in call.keywords if option.arg is None]


def arguments_of(call: ast.Call) -> list[ast.expr]:
    """Return all expressions that a call passes, by position or by name."""
    return [*call.args, *(option.value for option in call.keywords)]


def items_of(whole: ast.expr) -> Iterator[Named]:
    """Yield the items of a dict whose keys are texts. Other code has none."""
    match whole:
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, value
        case ast.Call(func=ast.Name(id="dict")):
            yield from keywords_of(whole)


def part_of(code: ast.AST) -> tuple[ast.expr, str] | None:
    """Return the object and the name of the part if code names a part of an object.

    A part is an attribute or an item with a text key: `cfg.lr`, `cfg["lr"]` and `cfg.get("lr")`.

    Returns:
        None for other code.
    """
    match code:
        case ast.Attribute(value=whole, attr=name):
            return whole, name
        case ast.Subscript(value=whole, slice=ast.Constant(value=str(name))):
            return whole, name
        case ast.Call(
            func=ast.Attribute(value=whole, attr="get" | "pop"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            return whole, name
    return None


def names_in(code: ast.AST) -> Iterator[ast.Name]:
    """Yield the nodes in code that name variables."""
    for node in ast.walk(code):
        if isinstance(node, ast.Name):
            yield node
