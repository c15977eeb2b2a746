"""What gets the values of a notebook: which library's parameter, as far as its code shows."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ..notebooks.assignments import Assignments
from .spaces import Receiver, parameter_at


class Receivers:
    """The receivers of a notebook's values.

    A value in a call is received by the parameter of that call; the value of a variable, by what
    the variable is passed to; the value of a dictionary's key, by the function that the dictionary
    is passed to with `**`.

    Args:
        assignments: Assignments of the notebook.
    """

    def __init__(self, assignments: Assignments) -> None:
        self._assignments = assignments
        self._imported: dict[str, str] = {}
        #: By the expressions that are passed.
        self._of_values: dict[ast.expr, Receiver] = {}
        #: By the texts of the expressions that are passed, such as `lr` or `CFG.lr`.
        self._of_names: defaultdict[str, list[Receiver]] = defaultdict(list)
        #: Of dictionaries, what they are passed to with `**`, by their names.
        self._unpacked: defaultdict[str, list[str]] = defaultdict(list)
        self._keys: dict[ast.expr, str] = {}
        self._read_names: set[str] = set()
        nodes = [node for cell in assignments.cells for node in ast.walk(cell.tree)]
        for node in nodes:
            self._imported |= _imported_by(node)
        for node in nodes:
            if isinstance(node, ast.Call):
                self._read(node)
            if isinstance(node, ast.Dict):
                self._keys |= _text_keys(node)
            self._read_names |= {*_names_read_by(node)}
        for node in nodes:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict() as content):
                    for callee in self._unpacked[name]:
                        self._read_dict(callee, content)
                case ast.Assign(
                    targets=[ast.Name(id=name)],
                    value=ast.Call(func=ast.Name(id="dict"), keywords=keywords),
                ):
                    for callee in self._unpacked[name]:
                        self._read_keywords(callee, keywords)

    def of(self, name: str) -> list[Receiver]:
        """List what gets the values of a name: parameters of libraries first, then the name."""
        found = list(self._of_names.get(name, ()))
        for place in self._assignments.places(name):
            if place.value in self._of_values:
                found.append(self._of_values[place.value])
        return [*dict.fromkeys(found), Receiver(parameter=name)]

    def is_dead_key(self, name: str) -> bool:
        """Whether a name is only the key of a dictionary, and nothing reads that key by its name.

        So is the `C` of a dictionary of grades, which is looked up by the grades of the data.
        """
        values = [place.value for place in self._assignments.places(name)]
        return bool(values) and all(
            value in self._keys
            and value not in self._of_values
            and self._keys[value] not in self._read_names
            for value in values
        )

    def _read(self, call: ast.Call) -> None:
        callee = self._dotted(call.func)
        if callee is None:
            return
        self._read_keywords(callee, call.keywords)
        for position, value in enumerate(call.args):
            parameter = parameter_at(callee, position)
            if parameter is not None:
                self._note(Receiver(callee=callee, parameter=parameter), value)

    def _read_keywords(self, callee: str, keywords: Sequence[ast.keyword]) -> None:
        for keyword in keywords:
            if keyword.arg is not None:
                self._note(Receiver(callee=callee, parameter=keyword.arg), keyword.value)
            elif isinstance(keyword.value, ast.Name):
                self._unpacked[keyword.value.id].append(callee)
            elif isinstance(keyword.value, ast.Dict):
                self._read_dict(callee, keyword.value)

    def _read_dict(self, callee: str, content: ast.Dict) -> None:
        for value, key in _text_keys(content).items():
            self._note(Receiver(callee=callee, parameter=key), value)

    def _note(self, receiver: Receiver, value: ast.expr) -> None:
        self._of_values[value] = receiver
        if isinstance(value, ast.Name | ast.Attribute):
            self._of_names[ast.unparse(value)].append(receiver)

    def _dotted(self, function: ast.expr) -> str | None:
        """Return a function's name as imported: `optim.Adam` is torch.optim.Adam.

        Of a method of an object only the method is known: `model.compile` is `.compile`.
        """
        first, _, rest = ast.unparse(function).partition(".")
        if first in self._imported:
            return ".".join(filter(None, (self._imported[first], rest)))
        if "*" in self._imported and isinstance(function, ast.Name):
            return f"{self._imported['*'].removesuffix('.*')}.{first}"
        return f".{function.attr}" if isinstance(function, ast.Attribute) else None


def _imported_by(node: ast.AST) -> Mapping[str, str]:
    """Return the names that an import binds, with what they stand for."""
    return dict(_bindings(node))


def _bindings(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.asname is not None:
                yield alias.asname, alias.name
            else:
                yield alias.name.partition(".")[0], alias.name.partition(".")[0]
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        for alias in node.names:
            yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _text_keys(content: ast.Dict) -> dict[ast.expr, str]:
    """Return the keys of a dictionary that are texts, by the expressions of their values."""
    return {
        value: key.value
        for key, value in zip(content.keys, content.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


def _names_read_by(node: ast.AST) -> Iterator[str]:
    """Yield the keys and attributes that an expression reads by their names."""
    match node:
        case ast.Subscript(slice=ast.Constant(value=str(key)), ctx=ast.Load()):
            yield key
        case ast.Attribute(attr=name, ctx=ast.Load()):
            yield name
        case ast.Call(
            func=ast.Attribute(attr="get" | "pop"), args=[ast.Constant(value=str(key)), *_]
        ):
            yield key
