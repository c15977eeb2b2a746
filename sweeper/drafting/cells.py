"""Read the assignments of a parameters cell: names, plain values, comments and annotations."""

from __future__ import annotations

import ast
import io
import math
import operator
import tokenize
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..notebooks.cell_code import parse, plain_python

#: Larger numbers are not varied as parameters, and some storages round them.
_LARGEST = 10**15


class NotPlain(Exception):
    """An expression is not a plain value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A name that the parameters cell assigns.

    Attributes:
        name: the name.
        value: the value; None where `is_plain` is false.
        is_plain: whether a parameters file can hold the value.
        comment: the comment behind the assignment, without its `#`.
        literals: the values that a `Literal[…]` annotation allows; empty without one.
    """

    name: str
    value: Any
    is_plain: bool
    comment: str
    literals: tuple[Any, ...] = ()


def assignments(source: str) -> list[Assignment]:
    """List the names that a cell assigns, in order, each with the last value.

    Raises:
        SyntaxError: the cell is not Python.
    """
    source = plain_python(source)
    comments = _comments(source)
    found: dict[str, Assignment] = {}
    for statement in parse(source).body:
        lines = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        comment = next((comments[line] for line in reversed(lines) if line in comments), "")
        if isinstance(statement, ast.Assign):
            both = [p for target in statement.targets for p in pairs(target, statement.value)]
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            both = pairs(statement.target, statement.value)
        elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            both = [(statement.target.id, None)] if statement.target.id in found else []
        else:
            continue
        for name, expression in both:
            is_plain, value = _plain(expression)
            allowed = statement.annotation if isinstance(statement, ast.AnnAssign) else None
            found[name] = Assignment(
                name=name,
                value=value,
                is_plain=is_plain,
                comment=comment,
                literals=_literals(allowed),
            )
    return list(found.values())


def pairs(target: ast.expr, value: ast.expr) -> list[tuple[str, ast.expr | None]]:
    """Pair each name of an assignment's target with its expression; None where that is unknown."""
    if isinstance(target, ast.Name):
        return [(target.id, value)]
    if isinstance(target, ast.Tuple | ast.List):
        parts = target.elts
        values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
        starred = any(isinstance(part, ast.Starred) for part in (*parts, *values))
        if len(values) == len(parts) and not starred:
            both = zip(parts, values, strict=True)
            return [pair for part, inner in both for pair in pairs(part, inner)]
    stored = (n for n in ast.walk(target) if isinstance(n, ast.Name))
    return [(n.id, None) for n in stored if isinstance(n.ctx, ast.Store)]


def _plain(expression: ast.expr | None) -> tuple[bool, Any]:
    """Whether an expression is a plain value, and the value."""
    if expression is None:
        return False, None
    try:
        return True, plain_value(expression)
    except (NotPlain, ArithmeticError, ValueError, TypeError, RecursionError):
        return False, None


def plain_value(node: ast.expr) -> Any:
    """Evaluate an expression of constants only.

    Raises:
        NotPlain: it has anything else, or a parameters file cannot hold the value.
    """
    match node:
        case ast.Constant(value=bool() | None as value):
            return value
        case ast.Constant(value=int() | float() as value):
            return _in_bounds(value)
        case ast.Constant(value=str() as value) if value.isascii() or _encodes(value):
            return value
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](plain_value(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            numbers = (plain_value(left), plain_value(right))
            if not all(isinstance(number, int | float) for number in numbers):
                raise NotPlain
            if isinstance(op, ast.Pow) and abs(numbers[1]) > 64:
                raise NotPlain
            return _in_bounds(_BINARY[type(op)](*numbers))
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [plain_value(element) for element in elements]
        case ast.Dict(keys=keys, values=values):
            read = [(plain_value(k), plain_value(v)) for k, v in _items(keys, values)]
            return dict(read)
    raise NotPlain


def _items(keys: list[ast.expr | None], values: list[ast.expr]) -> list[tuple[ast.expr, ast.expr]]:
    pairs = [(k, v) for k, v in zip(keys, values, strict=True) if k is not None]
    if len(pairs) < len(keys):  # {**other}
        raise NotPlain
    return pairs


def _in_bounds(value: Any) -> int | float:
    if not isinstance(value, int | float) or (isinstance(value, float) and math.isnan(value)):
        raise NotPlain
    if abs(value) > _LARGEST:
        raise NotPlain
    return value


def _encodes(text: str) -> bool:
    """Whether UTF-8 can encode a text, which it cannot with half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}
_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}


def _literals(annotation: ast.expr | None) -> tuple[Any, ...]:
    """List the values of an annotation such as `Literal["sgd", "adam"]`; empty for any other."""
    if not isinstance(annotation, ast.Subscript):
        return ()
    base = annotation.value
    if (base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")) != "Literal":
        return ()
    inside = annotation.slice
    read = [_plain(e) for e in (inside.elts if isinstance(inside, ast.Tuple) else [inside])]
    return tuple(value for is_plain, value in read if is_plain)


def _comments(source: str) -> dict[int, str]:
    """Map lines to the comments behind their code, without `#`."""
    comments: dict[int, str] = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT and token.line[: token.start[1]].strip():
                comments[token.start[0]] = token.string.lstrip("#").strip()
    except (tokenize.TokenError, SyntaxError):
        pass  # the parser accepts the cell, so only the comments after this are lost
    return comments
