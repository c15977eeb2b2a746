"""Plain values: numbers, texts, None, and lists or dicts of such; and where a notebook has one."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeGuard

#: How people write numbers, as in `10 ** -3` and `5 * 60`.
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
#: A power of greater numbers could take for ever.
_MOST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter with a default.

    Attributes:
        callee: Name of the function or class that is called.
        name: Name of the parameter.
        position: Position among the positional arguments, from 0; None for a keyword alone.
    """

    callee: str
    name: str
    position: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One statement's assignment of one name.

    Attributes:
        cell: Number of its code cell, from 1.
        line: Line of the statement in its cell, from 1.
        index: Number of the top-level statement in its cell, from 0.
        block: What it stands in, such as `a function`; empty at the top level.
        target: Target of the assignment; None for an argument.
        value: Value that is assigned; None where a loop assigns one value after another.
        is_plain: Whether the value can be replaced where it stands.
        is_attribute: Whether it is the value of an attribute, as in `CFG.lr = 0.1`.
        parameter: Parameter whose default the value is, where a call by name may pass another.
        item: Variable and key of an item that begins with the value, as of `cfg = {"lr": 0.1}`.
        is_option: Whether the value is the default of an option of a command line.
    """

    cell: int
    line: int
    index: int = 0
    block: str = ""
    target: ast.expr | None = None
    value: ast.expr | None = None
    is_plain: bool = False
    is_attribute: bool = False
    parameter: Parameter | None = None
    item: tuple[str, str] | None = field(default=None, compare=False)
    is_option: bool = False

    def __str__(self) -> str:
        return f"code cell {self.cell}, line {self.line}"


def is_plain(value: ast.expr | None) -> TypeGuard[ast.expr]:
    """Whether an expression is a plain value."""
    try:
        return value is not None and isinstance(
            plain_value(value), int | float | str | list | tuple | dict | None
        )
    except (ArithmeticError, ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return False


def plain_value(value: ast.expr) -> Any:
    """Evaluate a literal, or arithmetic with two numbers."""
    if isinstance(value, ast.BinOp) and (act := _ARITHMETIC.get(type(value.op))):
        left, right = ast.literal_eval(value.left), ast.literal_eval(value.right)
        are_numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if are_numbers and (act is not operator.pow or max(abs(left), abs(right)) <= _MOST):
            return act(left, right)
    return ast.literal_eval(value)
