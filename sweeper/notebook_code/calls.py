"""Find the functions and classes that a notebook defines, and what calls pass to them."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from .cell_code import words_run_by
from .plain import Parameter, Place
from .replacing import Cell
from .syntax import Named, arguments_of, keywords_of

Function = ast.FunctionDef | ast.AsyncFunctionDef


def last_name(node: ast.expr) -> str:
    """Return the last name of an expression: `fit` of `fit` and of `model.fit`.

    Returns:
        An empty text for an expression that is not a name or an attribute.
    """
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def last_names_called(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the last names of the functions that nodes call: `rand` of `np.random.rand()`."""
    return {last_name(node.func) for node in nodes if isinstance(node, ast.Call)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A function, method or class of the notebook that can be called.

    Attributes:
        node: The function or method, or a class without `__init__`.
        owner: Class of a method. Empty for a function, and for a class without `__init__`.
    """

    node: Function | ast.ClassDef
    owner: str = ""

    @property
    def is_class(self) -> bool:
        """Whether a call of this definition makes an object of a class."""
        return isinstance(self.node, ast.ClassDef) or self._is_init

    @property
    def is_method(self) -> bool:
        """Whether this is a method other than `__init__`."""
        return bool(self.owner) and not self._is_init

    @property
    def _is_init(self) -> bool:
        return bool(self.owner) and self.node.name == "__init__"

    @property
    def name(self) -> str:
        """The name that calls use: `fit` for a method, `Net` for `__init__` of the class `Net`."""
        return self.owner if self._is_init else self.node.name

    @property
    def callee(self) -> str:
        """The name that calls use, with a dot in front if it is the name of a method: `.fit`."""
        return f".{self.name}" if self.is_method else self.name

    @property
    def arguments(self) -> ast.arguments:
        """All parameters, including `self`. Empty for a class without `__init__`."""
        if isinstance(self.node, ast.ClassDef):
            return ast.arguments([], [], None, [], [], None, [])
        return self.node.args

    @property
    def own_name(self) -> str:
        """The name that a method uses for its object or class, usually `self`.

        Empty for functions, static methods, and classes without `__init__`.
        """
        if not self.owner or _is_static(self.node):
            return ""
        names = positional(self.arguments)
        return names[0] if names else ""

    @property
    def passed(self) -> Sequence[str]:
        """Names of the parameters that a call can pass by position."""
        names = positional(self.arguments)
        return names[1:] if self.own_name else names


def definitions_in(nodes: Iterable[ast.AST]) -> Iterator[Definition]:
    """Yield a definition for each function, method and class among nodes.

    For a class with an `__init__`, the definition of this method stands for the class.

    Args:
        nodes: Nodes of the code. A class comes before its methods, if these are among them.
    """
    methods = set[ast.AST]()
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            if init_of(node) is None:
                yield Definition(node=node)
            for method in methods_of(node):
                methods.add(method)
                yield Definition(node=method, owner=node.name)
        elif isinstance(node, Function) and node not in methods:
            yield Definition(node=node)


@dataclass(frozen=True, slots=True, kw_only=True)
class Override(Place):
    """A call that passes a value for a parameter.

    Attributes:
        value: Expression that is passed.
    """

    value: ast.expr


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
        #: Calls by the names that they get as arguments: the call `train(Net)` by `Net`. Each call
        #: has the number of its cell.
        self._given_to: defaultdict[str, list[tuple[int, ast.Call]]] = defaultdict(list)
        for cell in cells:
            self._may_call(cell.hidden_words)
            self._read_definitions(cell.nodes)
            self._read_calls(cell)
            self._read_names(cell.nodes)

    def overriding(
        self, parameter: Parameter, lines: Set[tuple[int, int]] | None = None
    ) -> Override | None:
        """Return a call that passes a value for a parameter, if the parameter's default is unused.

        The default is unused if all calls pass a value. It is also unused if a call gets the class
        as an argument, and the value as a prefixed keyword. skorch and scikeras take both:
        `NeuralNetClassifier(Net, module__hidden_dim=50)`.

        Args:
            parameter: The parameter.
            lines: Pairs of cell number and line. Calls of the function that begin elsewhere are
                ignored. None if no call is ignored.

        Returns:
            None if the default may be used: there is no call, a call may leave the parameter out,
            or there may be unknown calls. There may be such calls if code binds the function's name
            twice, or uses the name for anything but calls and annotations.
        """
        name = parameter.callee
        for cell, call in self._given_to[name]:
            for key, given in keywords_of(call):
                if key.endswith(f"__{parameter.name}"):
                    return Override(cell=cell, line=call.lineno, value=given)
        if name in self._passed_on or self._bound[name] != 1:
            return None
        found: list[Override] = []
        for cell, call in self._calls_of(name):
            if lines is not None and (cell, call.lineno) not in lines:
                continue
            value = _passed(call, parameter)
            if value is None:
                return None
            found.append(Override(cell=cell, line=call.lineno, value=value))
        return found[0] if found else None

    def _calls_of(self, name: str) -> list[tuple[int, ast.Call]]:
        """Return the calls of a function or method, each with the number of its cell.

        A call on a part of an object, such as `self.net.train()`, probably calls a library's method
        of the same name. Such a call is returned only if the part is known to be an object of the
        class that defines the method, or if there are no other calls.

        Args:
            name: Name of the function or class, or of the method with a dot in front: `.train`.
        """
        every = self._calls.get(name, [])
        owner = self._owner.get(name)
        own: list[tuple[int, ast.Call]] = []
        for cell, call in every:
            if not isinstance(call.func, ast.Attribute):
                continue
            whole = call.func.value
            if isinstance(whole, ast.Name) or owner in self._class_of[last_name(whole)]:
                own.append((cell, call))
        return own or every

    def _read_definitions(self, nodes: Iterable[ast.AST]) -> None:
        for definition in definitions_in(nodes):
            self._bound[definition.callee] += 1
            self._owner[definition.callee] = definition.owner

    def _read_calls(self, cell: Cell) -> None:
        for node in cell.nodes:
            self._may_call(words_run_by(node))
            if isinstance(node, ast.Call):
                for value in arguments_of(node):
                    if isinstance(value, ast.Name):
                        self._given_to[value.id].append((cell.number, node))
            match node:
                case ast.Call(func=ast.Name(id=name)):
                    self._calls[name].append((cell.number, node))
                case ast.Call(func=ast.Attribute(attr=name)):
                    self._calls[f".{name}"].append((cell.number, node))
                case ast.Assign(targets=[target], value=ast.Call(func=ast.Name(id=name))):
                    self._class_of[last_name(target)].add(name)

    def _read_names(self, nodes: Iterable[ast.AST]) -> None:
        """Record the names that code imports or assigns, and those that it uses but does not call.

        A function or class that is used but not called may be passed to other code, which may call
        it with unknown arguments. A name in an annotation, as in `config: Config`, is not recorded.
        """
        called = {node.func for node in nodes if isinstance(node, ast.Call)}
        used = called | {*_in_annotations(nodes)}
        for node in nodes:
            match node:
                case ast.alias(name=full, asname=short):
                    self._bound[short or full] += 1
                case ast.Name(id=name, ctx=ast.Store()):
                    self._bound[name] += 1
                case ast.Name(id=name) if node not in used:
                    self._passed_on.add(name)
                case ast.Attribute(attr=name) if node not in used:
                    self._passed_on.add(f".{name}")

    def _may_call(self, words: Iterable[str]) -> None:
        """Record words of code that is not parsed, as it may call functions with these names.

        Examples are the words of a cell with `%%bash`, and of a text that `eval` runs.
        """
        for word in words:
            self._passed_on |= {word, f".{word}"}


def _in_annotations(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        for field in ("annotation", "returns"):
            annotation = getattr(node, field, None)
            if annotation is not None:
                yield from ast.walk(annotation)


def parameters_of(cell: Cell) -> dict[ast.expr, Parameter]:
    """Return those parameters of the functions and methods in a cell that have a default.

    Only functions and classes at the top level count. Decorated ones, and decorated methods, are
    left out, because a decorator may change the parameters.

    Returns:
        The parameters, by the syntax tree nodes of their defaults.
    """
    statements = [node for node in cell.statements if not getattr(node, "decorator_list", [])]
    definitions = definitions_in(statements)
    return parameters_in(each for each in definitions if not each.node.decorator_list)


def parameters_in(definitions: Iterable[Definition]) -> dict[ast.expr, Parameter]:
    """Return the parameters that have a default, by the syntax tree nodes of their defaults."""
    found: dict[ast.expr, Parameter] = {}
    for definition in definitions:
        for name, value in defaults(definition.arguments):
            position = None
            if name in definition.passed:
                position = definition.passed.index(name)
            found[value] = Parameter(callee=definition.callee, name=name, position=position)
    return found


def methods_of(node: ast.AST) -> list[Function]:
    """Return the methods of a class. Other code has none."""
    body = node.body if isinstance(node, ast.ClassDef) else []
    return [inner for inner in body if isinstance(inner, Function)]


def init_of(node: ast.AST) -> Function | None:
    """Return the `__init__` of a class. None if it has none, or if the node is no class."""
    for method in methods_of(node):
        if method.name == "__init__":
            return method
    return None


def _is_static(method: Function | ast.ClassDef) -> bool:
    """Return whether a method has the decorator `@staticmethod`."""
    return any(last_name(decorator) == "staticmethod" for decorator in method.decorator_list)


def positional(arguments: ast.arguments) -> list[str]:
    """Return the names of the parameters that a call can pass by position."""
    options = [*arguments.posonlyargs, *arguments.args]
    return [option.arg for option in options]


def defaults(arguments: ast.arguments) -> Iterator[Named]:
    """Yield the names of the parameters that have a default, each with its default."""
    options = [*arguments.posonlyargs, *arguments.args]
    first = len(options) - len(arguments.defaults)  # Earlier parameters have no default.
    options = [*options[first:], *arguments.kwonlyargs]
    values = [*arguments.defaults, *arguments.kw_defaults]
    for option, value in zip(options, values, strict=True):
        if value is not None:
            yield option.arg, value


def _passed(call: ast.Call, parameter: Parameter) -> ast.expr | None:
    """Return the expression that a call passes for a parameter.

    Returns:
        None if the call may leave the parameter out.
    """
    stated = dict(keywords_of(call))
    if parameter.name in stated:
        return stated[parameter.name]
    position = parameter.position
    if position is None or position >= len(call.args):
        return None
    before = call.args[: position + 1]
    if any(isinstance(value, ast.Starred) for value in before):
        return None
    return call.args[position]
