"""Find the calls that pass a parameter, so that the default of the parameter is never used."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass

from .plain import Parameter
from .replacing import Cell, words_in

Function = ast.FunctionDef | ast.AsyncFunctionDef

#: Functions that run a text as code, or find an object by a text.
_WITH_TEXTS = frozenset("eval exec getattr system getoutput run_line_magic run_cell_magic".split())


def last_name(node: ast.expr) -> str:
    """Return the last name of an expression: `fit` of `fit` and `model.fit`. Else an empty text."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def last_names_called(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the last names of what nodes call: `rand` of `np.random.rand()`."""
    return {last_name(node.func) for node in nodes if isinstance(node, ast.Call)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """A call that passes a value for a parameter.

    Attributes:
        cell: Number of the code cell, from 1.
        line: Line in the cell, from 1.
        value: Expression that is passed.
        is_keyword: Whether the call passes the value by keyword.
    """

    cell: int
    line: int
    value: ast.expr
    is_keyword: bool

    def __str__(self) -> str:
        return f"code cell {self.cell}, line {self.line}"


class Calls:
    """The calls of a notebook's functions and classes, by name.

    Args:
        cells: All code cells.
    """

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._calls: defaultdict[str, list[tuple[int, ast.Call]]] = defaultdict(list)
        self._bound: Counter[str] = Counter()
        #: For each method, such as `.fit`, the class that defines it. `_class_of` has the classes
        #: of the objects that are assigned to each variable or attribute.
        self._owner: dict[str, str] = {}
        self._class_of: defaultdict[str, set[str]] = defaultdict(set)
        self._passed_on: set[str] = set()
        #: Calls that get a function or a class as an argument, by its name.
        self._given_to: defaultdict[str, list[tuple[int, ast.Call]]] = defaultdict(list)
        for cell in cells:
            self._read(cell)

    def overriding(
        self, parameter: Parameter, lines: Set[tuple[int, int]] | None = None
    ) -> Override | None:
        """Return a call that passes a parameter, if all calls pass it.

        A library that gets a class may pass arguments to the class. skorch and scikit-learn take
        these arguments as prefixed keywords: `NeuralNetClassifier(Net, module__hidden_dim=50)`.

        Args:
            parameter: The parameter.
            lines: Cells and lines whose calls count. None if all calls count.

        Returns:
            None if some call does not pass the parameter, or if there may be unknown calls: code
            binds the function's name twice, or uses the name for anything but calls.
        """
        name = parameter.callee
        for cell, call in self._given_to.get(name, []):
            for keyword in call.keywords:
                if str(keyword.arg).endswith(f"__{parameter.name}"):
                    value = keyword.value
                    return Override(cell=cell, line=call.lineno, value=value, is_keyword=True)
        if name in self._passed_on or self._bound[name] != 1:
            return None
        calls = [
            (cell, call)
            for cell, call in self._calls_of(name)
            if lines is None or (cell, call.lineno) in lines
        ]
        found = [_passed(cell, call, parameter) for cell, call in calls]
        return found[0] if found and all(found) else None

    def _calls_of(self, name: str) -> list[tuple[int, ast.Call]]:
        """Return the calls of a function or method.

        A method of a part of an object, such as `self.net.train()`, is probably one of a library.
        Such a call counts if the part is known to be of the class, or if there are no other calls.
        """
        every, owner = self._calls.get(name, []), self._owner.get(name)
        own = [
            (cell, call)
            for cell, call in every
            if isinstance(call.func, ast.Attribute)
            and (
                isinstance(call.func.value, ast.Name)
                or owner in self._class_of[last_name(call.func.value)]
            )
        ]
        return own or every

    def _read(self, cell: Cell) -> None:
        self._may_call(cell.hidden_words)
        nodes = [*ast.walk(cell.tree)]
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        # A call `Net()` and an annotation `config: Config` name a class, but do not pass it to
        # other code, which might call it with unknown arguments.
        used = {call.func for call in calls} | {*_in_annotations(nodes)}
        for call in calls:
            for given in [*call.args, *(keyword.value for keyword in call.keywords)]:
                if isinstance(given, ast.Name):
                    self._given_to[given.id].append((cell.number, call))
        for node in nodes:
            self._may_call(word for text in texts_in(node) for word in words_in(text))
            match node:
                case ast.Call(func=ast.Name(id=name)):
                    self._calls[name].append((cell.number, node))
                case ast.Call(func=ast.Attribute(attr=name)):
                    self._calls[f".{name}"].append((cell.number, node))
                case (
                    ast.FunctionDef(name=name)
                    | ast.AsyncFunctionDef(name=name)
                    | ast.ClassDef(name=name)
                ):
                    self._bound[name] += 1
                    for method in methods_of(node):
                        self._bound[f".{method.name}"] += 1
                        self._owner[f".{method.name}"] = name
                case ast.Assign(targets=[target], value=ast.Call(func=ast.Name(id=name))):
                    self._class_of[last_name(target)].add(name)
                case ast.alias(name=full, asname=short):
                    self._bound[short or full] += 1
                case ast.Name(id=name, ctx=ast.Store()):
                    self._bound[name] += 1
                case ast.Name(id=name) if node not in used:
                    self._passed_on.add(name)
                case ast.Attribute(attr=name) if node not in used:
                    self._passed_on.add(f".{name}")

    def _may_call(self, words: Iterable[str]) -> None:
        """Record names in code that is no Python, which may call functions and methods by them."""
        self._passed_on |= {name for word in words for name in (word, f".{word}")}


def texts_in(node: ast.AST) -> list[str]:
    """Return the texts that a call runs as code, or by which it finds an object.

    Examples are the texts in calls of `eval` and `getattr`. IPython turns magics such as `%time`
    into such calls. Empty for other nodes.
    """
    is_call = isinstance(node, ast.Call) and last_name(node.func) in _WITH_TEXTS
    given = node.args if is_call else []  # type: ignore[attr-defined]
    return [str(argument.value) for argument in given if isinstance(argument, ast.Constant)]


def _in_annotations(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if annotation is not None:
                yield from ast.walk(annotation)


def parameters_of(cell: Cell) -> dict[ast.expr, Parameter]:
    """Return the parameters with a default of a cell's functions, classes and methods.

    Decorated functions, classes and methods are left out: a decorator may change the parameters.

    Returns:
        The parameters, by the syntax tree nodes of their defaults.
    """
    found = {}

    def read(callee: str, arguments: ast.arguments, skipped: int) -> None:
        names = positional(arguments)
        for option, value in defaults(arguments):
            position = names.index(option) - skipped if option in names else None
            found[value] = Parameter(callee=callee, name=option, position=position)

    for statement in cell.statements:
        match statement:
            case (
                ast.FunctionDef(name=name, decorator_list=[], args=arguments)
                | ast.AsyncFunctionDef(name=name, decorator_list=[], args=arguments)
            ):
                read(name, arguments, 0)
            case ast.ClassDef(name=name, decorator_list=[]):
                for method in methods_of(statement):
                    if not method.decorator_list:
                        callee = name if method.name == "__init__" else f".{method.name}"
                        read(callee, method.args, 1)
    return found


def methods_of(node: ast.AST) -> list[Function]:
    """Return the methods of a class. Other code has none."""
    body = node.body if isinstance(node, ast.ClassDef) else []
    return [inner for inner in body if isinstance(inner, Function)]


def init_of(node: ast.AST) -> Function | None:
    """Return the `__init__` of a class. None for a class without one, and for other code."""
    return next((method for method in methods_of(node) if method.name == "__init__"), None)


def gets_object(method: Function) -> bool:
    """Return whether the first parameter of a method is its object or class (it is not static)."""
    return all(last_name(decorator) != "staticmethod" for decorator in method.decorator_list)


def positional(arguments: ast.arguments) -> list[str]:
    """Return the names of the parameters that a call can pass by position."""
    return [option.arg for option in (*arguments.posonlyargs, *arguments.args)]


def defaults(arguments: ast.arguments) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names of the parameters that have a default, each with its default."""
    positional = [*arguments.posonlyargs, *arguments.args]
    options = positional[len(positional) - len(arguments.defaults) :] + arguments.kwonlyargs
    values = [*arguments.defaults, *arguments.kw_defaults]
    for option, value in zip(options, values, strict=True):
        if value is not None:
            yield option.arg, value


def _passed(cell: int, call: ast.Call, parameter: Parameter) -> Override | None:
    line = call.lineno
    for keyword in call.keywords:
        if keyword.arg == parameter.name:
            return Override(cell=cell, line=line, value=keyword.value, is_keyword=True)
    position = parameter.position
    if position is None or position >= len(call.args):
        return None
    if any(isinstance(value, ast.Starred) for value in call.args[: position + 1]):
        return None
    return Override(cell=cell, line=line, value=call.args[position], is_keyword=False)
