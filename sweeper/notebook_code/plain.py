"""Plain values in a notebook: literal numbers, texts and None, and lists and dicts of these."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self, TypeGuard

from .syntax import arguments_of

#: Operators that a plain number may contain, because people write `10 ** -3` and `5 * 60`.
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
#: A power is computed only if its base and exponent are at most this number (chosen, not measured).
#: The computation of a very large power could take forever.
_MOST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of a function or class, with a default.

    Attributes:
        callee: Name of the function or class, or of a method with a dot in front.
        name: Name of the parameter.
        position: Position among the positional arguments, from 0. None if it can only be passed by
            keyword.
    """

    callee: str
    name: str
    position: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place in the code of a notebook.

    Attributes:
        cell: Number of the code cell, from 1.
        line: Line in the cell, from 1.
    """

    cell: int
    line: int

    def __str__(self) -> str:
        return f"code cell {self.cell}, line {self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment(Place):
    """One assignment of a value to one name.

    Attributes:
        index: Position of the top-level statement in the cell, from 0. Always 0 for an argument,
            and for a local variable with a name such as `train.lr`.
        block: Kind of the block that contains the assignment of a variable: `a function`,
            `a class`, `a loop` or `a branch`. Empty at the top level, and for an argument, an
            attribute, and a local variable with a name such as `train.lr`.
        target: Node that gets the value. None for an argument, for a variable in a block, and for a
            local variable with a name such as `train.lr`.
        value: Node of the value. None if a loop assigns one value after another.
        is_plain: Whether the value is plain, such as `0.1`. Only such a value can be replaced.
            False for a variable in a block, and in an assignment such as `a = b = 1`.
        is_default: Whether the value is the default of a parameter in a function's definition.
        is_attribute: Whether an attribute gets the value, as in `CFG.lr = 0.1`.
        parameter: Parameter whose default the value is, if calls may pass another value.
        item: Variable and key of the value: `("cfg", "lr")` for `0.1` in `cfg = {"lr": 0.1}` and in
            `cfg = Namespace(lr=0.1)`. For an item of an inner dict, the variable is a text such as
            `cfg.optimizer`. None for other values.
    """

    index: int = 0
    block: str = ""
    target: ast.expr | None = None
    value: ast.expr | None = None
    is_plain: bool = False
    is_default: bool = False
    is_attribute: bool = False
    parameter: Parameter | None = None
    item: tuple[str, str] | None = field(default=None, compare=False)


class LeftOut(ast.Constant):
    """A syntax tree node for an argument that a call leaves out.

    The syntax tree of the notebook does not contain this node. The node's line and column state
    where code could add the argument.

    Attributes:
        call: Call that leaves out the argument.
        callee: Called class as imported, such as `torch.optim.Adam`.
        parameter: Name of the argument.
        value: Default of the argument.
    """

    call: ast.Call
    callee: str
    parameter: str

    @classmethod
    def of(cls, call: ast.Call, *, callee: str, parameter: str, value: Any) -> Self:
        """Return a node for an argument, placed after the last argument of the call."""
        ends = [(node.end_lineno or 0, node.end_col_offset or 0) for node in arguments_of(call)]
        line, column = max(ends, default=(call.end_lineno or 0, (call.end_col_offset or 0) - 1))
        place = cls(value=value)
        place.lineno = place.end_lineno = line
        place.col_offset = place.end_col_offset = column
        place.call, place.callee, place.parameter = call, callee, parameter
        return place


def is_plain(value: ast.expr | None) -> TypeGuard[ast.expr]:
    """Return whether an expression is a literal number, text or None, or a list or dict of these.

    A product, quotient or power of two literal numbers, such as `10 ** -3`, counts, too.
    """
    try:
        return value is not None and isinstance(
            plain_value(value), int | float | str | list | tuple | dict | None
        )
    except (ArithmeticError, ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return False


def plain_value(value: ast.expr) -> Any:
    """Evaluate a literal, or a product, quotient or power of two literal numbers."""
    if isinstance(value, ast.BinOp) and (act := _ARITHMETIC.get(type(value.op))):
        left, right = ast.literal_eval(value.left), ast.literal_eval(value.right)
        are_numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if are_numbers and (act is not operator.pow or max(abs(left), abs(right)) <= _MOST):
            return act(left, right)
    return ast.literal_eval(value)
