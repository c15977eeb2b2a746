"""Find where a notebook's literals flow: to which parameters of libraries' functions and classes.

A literal may flow through variables, attributes, dictionaries, functions and classes. The code is
read and not run, so every flow that is possible counts.
"""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .arguments import is_parsing, option_default
from .calls import (
    Calls,
    Definition,
    Function,
    defaults,
    definitions_in,
    parameters_in,
    positional,
)
from .cell_code import words_run_by
from .left_out import dotted, imported_by
from .own_training import (
    OWN_LOOP,
    assigned_from_itself,
    operands_of,
    own_nodes,
    steps_in,
    training_code,
)
from .plain import is_plain, plain_value
from .rebinding import unpacked
from .replacing import Cell
from .signatures import Signatures
from .syntax import arguments_of, items_of, keywords_of, part_of, unpacked_dicts

#: A path names a variable or a part of a variable: `("cfg", "lr")` is `cfg.lr` and `cfg["lr"]`,
#: `("f()", "lr")` is the parameter of a function, and `("Net", "lr")` is the attribute of all
#: objects of a class.
Path = tuple[str, ...]

#: First part of a path that leads into a library. The called function and the parameter follow, as
#: in `("=", "torch.optim.Adam", "lr")`.
_LIBRARY = "="
_NO_MODULES: Mapping[str, Cell] = {}
#: Path of the parsed options of a command line.
_OPTIONS: Path = ("options()",)
#: Last part of the path of a function's result.
_RESULT = "return"
#: Last part of a path to a library's positional parameter if the parameter's name is unknown.
_UNKNOWN = "?"
#: Library functions whose first argument is a dict of parameters.
_OF_DICTS = frozenset(
    {f"{library}.{name}" for library in ("lightgbm", "xgboost") for name in ("train", "cv")}
)
#: Functions whose result counts as the value of their argument, as in `int(epochs)`.
_CONVERSIONS = frozenset({"float", "int", "str", "abs", "round"})
#: The search follows no path with more than `_DEEPEST` parts, and ends after `_FARTHEST` paths
#: (chosen, not measured).
_DEEPEST, _FARTHEST = 8, 300


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LibraryCall:
    """A call of a function, class or method that the notebook does not define.

    Attributes:
        callee: Function or class as imported, such as `torch.optim.Adam`, or a method with a dot
            in front, such as `.fit`.
        node: Syntax tree node of the call.
        cell: Number of the code cell with the call, from 1.
        given: Arguments of the call, by the name of the parameter. Arguments for a parameter of
            unknown name are left out.
        is_open: Whether the call may pass more arguments, as in `f(**options)`.
    """

    callee: str
    node: ast.Call
    cell: int
    given: Mapping[str, ast.expr]
    is_open: bool

    def __str__(self) -> str:
        return f"{ast.unparse(self.node.func)} in code cell {self.cell}, line {self.node.lineno}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """A scope: where the names in a piece of code are looked up.

    Attributes:
        key: First part of the paths of its variables, as in `("fit()", "lr")`: `fit()` for a
            function, `Net.fit()` for a method, and `Net` for a class. Empty at the top level.
        names: Names of its variables.
        own_name: Name that a method uses for its object, usually `self`. Empty in other code.
        owner: Class of the method. Empty in other code.
        outer: Scope around this one. None at the top level.
    """

    key: str = ""
    names: frozenset[str] = frozenset()
    own_name: str = ""
    owner: str = ""
    outer: _Scope | None = None

    def path(self, name: str) -> Path:
        if self.own_name and name == self.own_name:
            return (self.owner,)
        if self.outer is None:
            return (name,)
        if name in self.names:
            return self.key, name
        return self.outer.path(name)


class Flows:
    """Where values flow in the code of a notebook: from literals to parameters of libraries.

    In `lr = 0.1` and `Adam(lr=lr)`, the literal `0.1` flows to the variable `lr`, and from there to
    the parameter `lr` of `Adam`.

    Args:
        cells: All code cells.
        modules: Local modules that the notebook imports, by their names.

    Attributes:
        calls: Calls in the notebook of libraries and of local modules.
        imported: Imported object for each name that an import binds, as `torch.nn` for `nn`.
        steps: Literal learning rates in gradient steps such as `w -= 0.1 * grad`, each with the
            number of its code cell.
        handed_on: Names of functions and classes that the code defines and passes to a call.
    """

    def __init__(self, cells: Sequence[Cell], modules: Mapping[str, Cell] = _NO_MODULES) -> None:
        self._modules = modules
        # The cells come last, so that their definitions override those of a module.
        whole = [*modules.values(), *cells]
        self.calls: list[LibraryCall] = []
        self.steps: list[tuple[int, ast.expr]] = []
        self.handed_on: set[str] = set()
        self._signatures = Signatures(whole)
        self.imported = imported_by(whole)
        self._steps: dict[ast.AST, list[ast.expr]] = {}
        for cell in whole:
            self._steps |= steps_in(cell.tree)
        self._training = training_code(whole)
        self._trained = {*map(ast.unparse, assigned_from_itself(self._training))}
        self._functions: dict[str, Definition] = {}
        self._methods: defaultdict[str, list[Definition]] = defaultdict(list)
        self._definitions: dict[ast.AST, Definition] = {}
        self._classes: set[str] = set()
        for cell in whole:
            for definition in definitions_in(cell.nodes):
                self._define(definition)
        self._skipped = _overridden_defaults(whole)
        self._read_all(whole)
        if never_run := {*self._branches_not_taken()}:
            self._skipped |= never_run
            self._read_all(whole)

    def _define(self, definition: Definition) -> None:
        self._definitions[definition.node] = definition
        if definition.is_method:
            self._methods[definition.name].append(definition)
        else:
            self._functions[definition.name] = definition
        if definition.is_class:
            self._classes.add(definition.name)

    def _read_all(self, cells: Sequence[Cell]) -> None:
        self.calls.clear()
        self.steps.clear()
        self._edges: defaultdict[Path, list[Path]] = defaultdict(list)
        self._literals: defaultdict[ast.expr, list[Path]] = defaultdict(list)
        self._paths: dict[ast.expr, Path] = {}
        #: Functions that the notebook calls, as `_key` returns them.
        self._called: set[str] = set()
        self._branches: list[tuple[Path, ast.If]] = []
        #: Paths that may get a value that is no literal, such as a computed one.
        self._open: set[Path] = set()
        self._parameters: set[Path] = set()
        self._handed_over: set[ast.AST] = set()
        self._read_names = self._names_in(cells)
        for cell in cells:
            self._read(cell.number, cell.tree)
        self._used = self._names_in(cells)
        self._made_by: defaultdict[Path, list[ast.expr]] = defaultdict(list)
        for value, paths in self._literals.items():
            for path in paths:
                self._made_by[path].append(value)
        self._backwards: defaultdict[Path, list[Path]] = defaultdict(list)
        for source, targets in self._edges.items():
            for target in targets:
                self._backwards[target].append(source)

    def _names_in(self, cells: Iterable[Cell]) -> set[str]:
        """Return the names of the variables, keys and attributes that code reads.

        Arguments in `_handed_over` do not count: they only pass a variable to a function of the
        notebook. Code in `_skipped` is never used, so it does not count either. A cell that is not
        Python may read any variable that it names, so all its words are returned.
        """
        found = set[str]()
        left_out = self._skipped | self._handed_over
        for cell in cells:
            waiting: deque[ast.AST] = deque([cell.tree])
            found |= cell.hidden_words
            while waiting:
                node = waiting.popleft()
                found.update(_names_read(node))
                for part in ast.iter_child_nodes(node):
                    if part not in left_out:
                        waiting.append(part)
        return found

    def _branches_not_taken(self) -> Iterator[ast.AST]:
        """Yield the statements in branches that never run.

        Their condition asks for a value that a variable never has, as in `if optimizer == "sgd":`,
        where nothing but "adam" flows to `optimizer`. Only variables whose literals are all texts,
        True, False or None are considered.
        """
        for path, branch in self._branches:
            values = [plain_value(literal) for literal in self._literals_of(path)]
            are_settings = all(isinstance(value, str | bool | None) for value in values)
            if not values or not are_settings:
                continue
            if self._may_be_another(path) or self._has_another_name(path):
                continue
            taken = {_is_taken(branch.test, value) for value in values}
            if taken == {False}:
                yield from branch.body
            elif taken == {True}:
                yield from branch.orelse

    def _may_be_another(self, path: Path) -> bool:
        """Return whether a variable may get other values than the literals that flow to it.

        Args:
            path: Path of the variable, parameter or attribute: `("cfg", "lr")` for `cfg.lr`.
        """
        for before in _spread([path], self._backwards):
            if before in self._open or not self._gets_values(before):
                return True
            if before[:2] in self._parameters and not self._is_called_here(before[0]):
                return True  # Libraries call functions as well: `net(x)` calls `forward`.
        return False

    def _gets_values(self, path: Path) -> bool:
        """Return whether a value flows to a variable, a parameter or an attribute.

        For the attribute `cfg.lr`, a value that flows to `cfg` counts, too. The value is a literal,
        or comes from another variable, an attribute or a function's result.

        Args:
            path: Path of the variable, parameter or attribute: `("cfg", "lr")` for `cfg.lr`.
        """
        for length in range(1, len(path) + 1):
            whole = path[:length]
            if whole in self._made_by or whole in self._backwards:
                return True
        return False

    def _has_another_name(self, path: Path) -> bool:
        """Return whether code may set an attribute by another name of its object.

        For `cfg.lr`, this is true if another variable or attribute named `lr`, such as `args.lr`,
        gets a value and does not flow to `cfg.lr`: `args` may be the same object as `cfg`.

        Args:
            path: Path of the attribute, such as `("cfg", "lr")`. The result is False for a
                variable, and for everything that is local to a function.
        """
        if len(path) == 1 or path[0].endswith("()"):
            return False
        others = {*self._made_by, *self._backwards, *self._open}
        others -= {*_spread([path], self._backwards)}
        same_attribute = [other for other in others if other[-1] == path[-1]]
        return any(other[0] != _LIBRARY for other in same_attribute)

    def _is_called_here(self, function: str) -> bool:
        """Return whether the notebook calls a function, and passes it to no other function.

        Args:
            function: The function, such as `fit()`, or `Net.fit()` for a method.
        """
        name = function.partition("(")[0]
        return function in self._called and name not in self.handed_on

    def receivers(self, value: ast.expr) -> list[tuple[str, str]]:
        """List the library parameters that a literal flows to, the nearest first.

        Returns:
            Pairs of callee and parameter, such as `("torch.optim.Adam", "lr")`.
        """
        found: list[tuple[str, str]] = []
        for path in self._reached(value):
            names_parameter = len(path) > 2 and path[-1] != _UNKNOWN
            if path[0] == _LIBRARY and names_parameter:
                found.append((path[1], path[-1]))
        return found

    def names(self, value: ast.expr) -> list[str]:
        """List the names of variables, parameters and attributes to which a literal flows.

        Those of libraries are left out. The nearest names come first.
        """
        found: dict[str, None] = {}
        for path in self._reached(value):
            if path[0] != _LIBRARY and path[-1] != _RESULT:
                found[path[-1]] = None
        return [*found]

    def is_used(self, value: ast.expr) -> bool:
        """Return whether the notebook or a library may read a literal after it is assigned."""
        for path in self._reached(value):
            if path[0] == _LIBRARY or path[-1] in self._used or path[-1] == _RESULT:
                return True
        return False

    def origins(self, value: ast.expr) -> list[ast.expr]:
        """List the literals that may flow into an argument of a library's function."""
        if value in self._literals:
            return [value]
        path = self._paths.get(value)
        return [] if path is None else self._literals_of(path)

    def may_be_another(self, value: ast.expr) -> bool:
        """Return whether an argument may get other values than the literals that flow to it.

        Examples are the variable of a loop, as in `for seed in seeds: fit(seed)`, and the parameter
        of a function that a library calls.
        """
        path = self._paths.get(value)
        return path is not None and self._may_be_another(path)

    def _literals_of(self, path: Path) -> list[ast.expr]:
        found: list[ast.expr] = []
        for source in _spread([path], self._backwards):
            found += self._made_by.get(source, ())
        return found

    def _reached(self, value: ast.expr) -> list[Path]:
        return _spread(self._literals.get(value, ()), self._edges)

    # --- reading the notebook -------------------------------------------------------------------

    def _read(self, cell: int, tree: ast.Module) -> None:
        waiting: deque[tuple[Sequence[ast.stmt], _Scope]] = deque()
        waiting.append((tree.body, _Scope()))
        while waiting:
            body, scope = waiting.popleft()
            for node in own_nodes(body, self._skipped):
                if self._is_uncalled(node):
                    continue
                self._read_node(cell, node, scope)
                if isinstance(node, Function):
                    waiting.append((node.body, self._scope_of(node, scope)))
                elif isinstance(node, ast.ClassDef):
                    inner = _Scope(key=node.name, names=_bound(node.body), outer=scope)
                    waiting.append((node.body, inner))

    def _is_uncalled(self, node: ast.AST) -> bool:
        """Return whether a node is a function or class that never runs, as no code names it."""
        if not isinstance(node, Function | ast.ClassDef) or node.decorator_list:
            return False
        definition = self._definitions.get(node)
        is_in_class = definition is not None and bool(definition.owner)
        return not is_in_class and node.name not in self._read_names

    def _scope_of(self, node: Function, outer: _Scope) -> _Scope:
        definition = self._definitions[node]
        key, owner = _key(definition), definition.owner
        options = [option.arg for option in ast.walk(node.args) if isinstance(option, ast.arg)]
        self._parameters |= {(key, option) for option in options}
        if owner and outer.key == owner and outer.outer is not None:
            outer = outer.outer  # Methods do not see the names in the body of their class.
        return _Scope(
            key=key,
            names=_bound(node.body) | {*options},
            own_name=definition.own_name,
            owner=owner,
            outer=outer,
        )

    def _read_node(self, cell: int, node: ast.AST, scope: _Scope) -> None:
        self._read_training(cell, node, scope)
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign(target, value, scope)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, value, scope)
            case ast.NamedExpr(target=target, value=value):
                self._assign(target, value, scope)
            case ast.Return(value=ast.expr() as value) if scope.key:
                self._flow(value, (scope.key, _RESULT), scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                for name, value in defaults(node.args):
                    if value not in self._skipped:
                        self._flow(value, (_key(self._definitions[node]), name), scope)
            case ast.If(test=test):
                asked = _asked(test)
                path = None if asked is None else self._path(asked, scope)
                if path is not None:
                    self._branches.append((path, node))
            case ast.For(target=target) | ast.AugAssign(target=target):
                self._open_all(target, scope)
            case ast.ClassDef(name=name, bases=bases):
                for base in bases:
                    self._flow(base, (name,), scope)
            case ast.Call():
                self._call(cell, node, scope)

    def _open_all(self, target: ast.expr, scope: _Scope) -> None:
        """Record that the target of a `for` loop or of `+=` gets values that are not literals."""
        for part in ast.walk(target):
            if isinstance(part, ast.expr):
                path = self._path(part, scope)
                if path is not None:
                    self._open.add(path)

    def _read_training(self, cell: int, node: ast.AST, scope: _Scope) -> None:
        """Record the settings of training that the notebook itself programs, without a library.

        The settings are the learning rates in a gradient step such as `w -= 0.1 * grad`, and the
        variables that decide how strong or how long the training is (`operands_of`). Nothing is
        recorded for a node that is neither a gradient step nor part of such training.

        Args:
            cell: Number of the code cell with the node. 0 in a local module.
            node: Any syntax tree node.
            scope: Scope of the node.
        """
        for factor in self._steps.get(node, []):
            self._flow(factor, (_LIBRARY, "gradient step", "learning_rate"), scope)
            if cell and is_plain(factor):
                self.steps.append((cell, factor))
        if node in self._training:
            self._own_training(node, scope)

    def _own_training(self, node: ast.AST, scope: _Scope) -> None:
        callee, operands = operands_of(node)
        if callee == OWN_LOOP and not scope.owner:
            # The ends of `range(n)` and of slices count only in methods. Elsewhere, loops often go
            # through data, so these ends are not settings.
            return
        for operand in operands:
            path = self._path(operand, scope)
            if path is not None and ast.unparse(operand) not in self._trained:
                self._flow(operand, (_LIBRARY, callee, path[-1]), scope)

    def _assign(self, target: ast.expr, value: ast.expr, scope: _Scope) -> None:
        for inner, part, is_own in unpacked(target, value):
            path = self._path(inner, scope)
            if path is None:
                continue
            if part is not None and (is_own or is_parsing(part)):
                self._flow(part, path, scope)
            else:
                self._open.add(path)

    def _call(self, cell: int, call: ast.Call, scope: _Scope) -> None:
        for value in arguments_of(call):
            if isinstance(value, ast.Name) and value.id in self._functions:
                self.handed_on.add(value.id)
        function = self._function(call)
        if function is not None:
            self._call_of_notebook(call, function, scope)
        if function is None or self._of_module(call.func) is not None:
            self._call_of_library(cell, call, function, scope)

    def _call_of_notebook(self, call: ast.Call, function: Definition, scope: _Scope) -> None:
        self._called.add(_key(function))
        for value in unpacked_dicts(call):
            self._flow(value, (_key(function),), scope)
        given: list[tuple[str | int, ast.expr]] = [*enumerate(call.args), *keywords_of(call)]
        for parameter, value in given:
            target = _target(function, parameter)
            if target is None:
                continue
            self._flow(value, target, scope)
            if self._path(value, scope) is not None:
                # A variable that is only passed does not count as read, because the function may
                # not read its parameter.
                self._handed_over.add(value)

    def _call_of_library(
        self, cell: int, call: ast.Call, function: Definition | None, scope: _Scope
    ) -> None:
        """Record a call of a library or a local module, and the values that flow into it.

        Args:
            cell: Number of the code cell with the call. 0 in a local module.
            call: The call.
            function: Function of the local module. None for a library.
            scope: Scope of the call.
        """
        callee = self._dotted(call.func)
        if callee is None:
            return
        if callee.endswith(".add_argument"):
            for name, value in option_default(call):
                self._flow(value, (*_OPTIONS, name), scope)
            return
        named = [*keywords_of(call), *self._signatures.named(call)]
        dicts = unpacked_dicts(call)
        if callee in _OF_DICTS:
            dicts += call.args[:1]
        if cell:
            given = dict(named)
            found = LibraryCall(
                callee=callee, node=call, cell=cell, given=given, is_open=bool(dicts)
            )
            self.calls.append(found)
        if not hasattr(builtins, callee):
            known = {value for _, value in named}
            named += [(_UNKNOWN, value) for value in call.args if value not in known]
        for name, value in named:
            if function is None or _target(function, name) is None:
                self._flow(value, (_LIBRARY, callee, name), scope)
            if (path := self._path(value, scope)) is not None:
                self._paths[value] = path
        for value in dicts:
            self._flow(value, (_LIBRARY, callee), scope)

    def _flow(self, value: ast.expr, target: Path, scope: _Scope) -> None:
        waiting = [(value, target)]
        while waiting:
            part, to = waiting.pop()
            if is_plain(part):
                self._literals[part].append(to)
            inner = _parts(part, to)
            if inner is not None:
                waiting += inner
                continue
            source = _OPTIONS if is_parsing(part) else self._path(part, scope)
            if source is None and not is_plain(part):
                self._open.add(to)
                waiting += _inputs(part, to)
            elif source is not None and source != to:
                self._edges[source].append(to)

    def _path(self, value: ast.expr, scope: _Scope) -> Path | None:
        """Return the path of an expression, such as `("cfg", "lr")` for `cfg.lr`.

        Returns:
            The path of a variable, an attribute, an item with a text key, or what a call of a
            function or class of the notebook or of a local module returns. None for other
            expressions.
        """
        rest: list[str] = []
        while (part := part_of(value)) is not None:
            value, name = part
            rest.insert(0, name)
        match value:
            case ast.Name(id=name):
                return (*scope.path(name), *rest)
            case ast.Call(func=ast.Name(id=name)) if name in self._classes:
                return (name, *rest)
            case ast.Call():
                function = self._function(value)
                if function is not None:
                    return (_key(function), _RESULT, *rest)
        return None

    def _function(self, call: ast.Call) -> Definition | None:
        """Return the notebook's function that a call runs. None if it runs another function."""
        match call.func:
            case ast.Name(id=name) if name in self._functions:
                return self._functions[name]
            case ast.Name() as name:
                return self._of_module(name)
            case ast.Attribute(value=ast.Name(id=name)) as function if name in self.imported:
                return self._of_module(function)
            case ast.Attribute(attr=name) if not name.startswith("__"):
                methods = self._methods.get(name, [])
                return methods[0] if len(methods) == 1 else None
        return None

    def _of_module(self, function: ast.expr) -> Definition | None:
        """Return the function of a local module that an expression names."""
        module, _, name = (dotted(function, self.imported) or "").rpartition(".")
        is_local = module.rpartition(".")[2] in self._modules
        return self._functions.get(name) if is_local else None

    def _dotted(self, function: ast.expr) -> str | None:
        """Return the full name of a function: `torch.optim.Adam` for `optim.Adam`.

        The class of an object is unknown, so a method has a short name: `.compile` for
        `model.compile`.
        """
        if found := dotted(function, self.imported):
            return found
        if isinstance(function, ast.Name):
            name = function.id
            is_own = "*" not in self.imported or hasattr(builtins, name)
            return name if is_own else f"{self.imported['*'].removesuffix('.*')}.{name}"
        return f".{function.attr}" if isinstance(function, ast.Attribute) else None


def _overridden_defaults(cells: Iterable[Cell]) -> set[ast.AST]:
    """Return the defaults that are never used, because calls pass a value for the parameter.

    `Calls.overriding` describes which calls do so.
    """
    calls = Calls(cells)
    return {
        default
        for cell in cells
        for default, parameter in parameters_in(definitions_in(cell.nodes)).items()
        if calls.overriding(parameter) is not None
    }


def _key(definition: Definition) -> str:
    """Return the first part of the paths of a function's parameters.

    This is `Net.fit()` in `("Net.fit()", "lr")`, the path of the parameter `lr` of a method.
    For a class without `__init__`, this is the name of the class.
    """
    if isinstance(definition.node, ast.ClassDef):
        return definition.name
    before = f"{definition.owner}." if definition.owner else ""
    return f"{before}{definition.node.name}()"


def _target(function: Definition, parameter: str | int) -> Path | None:
    """Return the path of a function's parameter, such as `("fit()", "lr")`.

    Args:
        function: The function.
        parameter: Name of the parameter, or its position in a call, from 0.

    Returns:
        None if the function has no parameter at this position.
    """
    key = _key(function)
    if isinstance(parameter, int):
        passed = function.passed
        return (key, passed[parameter]) if parameter < len(passed) else None
    options = function.arguments
    named = positional(options)
    named += [option.arg for option in options.kwonlyargs]
    if parameter not in named and options.kwarg is not None:
        return key, options.kwarg.arg, parameter
    return key, parameter


def _parts(value: ast.expr, to: Path) -> list[tuple[ast.expr, Path]] | None:
    """Return the parts of a value that flow unchanged to a variable, or to parts of the variable.

    Examples are the items of a dict, both results in `a if b else c`, and `x` in `int(x)`. Each
    part comes with the path to which it flows: if `{"lr": 0.1}` flows to `cfg`, `0.1` flows to
    `cfg.lr`.

    Args:
        value: The value.
        to: Path of the variable, parameter or attribute to which the value flows, such as
            `("cfg", "lr")` for `cfg.lr`.

    Returns:
        None for a value of another kind, such as a variable or a sum.
    """
    match value:
        case ast.Dict(keys=keys, values=values):
            found = [(inner, (*to, key)) for key, inner in items_of(value)]
            for key, inner in zip(keys, values, strict=True):
                if key is None:  # `**inner`
                    found.append((inner, to))
            return found
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [(inner, to) for inner in parts if isinstance(inner, ast.Dict)]
        case ast.IfExp(body=first, orelse=second):
            return [(first, to), (second, to)]
        case ast.BoolOp(values=parts):
            return [(inner, to) for inner in parts]
        case ast.Call(func=ast.Name(id=name), args=[inner, *_]) if name in _CONVERSIONS:
            return [(inner, to)]
    return None


def _inputs(value: ast.expr, to: Path) -> Iterator[tuple[ast.expr, Path]]:
    """Yield the inputs of a computation or a call, each with the path to which it flows.

    In `size = 2 * width`, the input `width` flows to `size`. In `cfg = Namespace(lr=0.1)`, the
    input `0.1` flows to `cfg.lr`. A computation counts only if exactly one of its two operands is a
    literal, and a call only if its result does not flow into a library.

    Args:
        value: The computation or the call.
        to: Path of the variable, parameter or attribute that gets the result, such as
            `("cfg", "lr")` for `cfg.lr`.
    """
    match value:
        case ast.BinOp(left=left, right=right) if is_plain(left) is not is_plain(right):
            yield (right if is_plain(left) else left), to
        case ast.Call(args=arguments) if to[0] != _LIBRARY:
            for name, inner in keywords_of(value):
                yield inner, (*to, name)
            dicts = [inner for inner in arguments[:1] if isinstance(inner, ast.Dict)]
            for inner in (*unpacked_dicts(value), *dicts):
                yield inner, to


def _spread(begin: Iterable[Path], edges: Mapping[Path, Sequence[Path]]) -> list[Path]:
    """Return the paths `begin`, and all paths to which their values flow, nearest first.

    If an object flows to a variable, its parts flow to the parts of the variable. The search ends
    at the limits `_DEEPEST` and `_FARTHEST`.

    Args:
        begin: Paths at which the search begins, such as `("cfg", "lr")` for `cfg.lr`.
        edges: For each path, the paths to which its value flows directly. For a search backwards,
            the paths from which it flows.
    """
    found, waiting = dict.fromkeys(begin), deque(begin)
    while waiting and len(found) < _FARTHEST:
        path = waiting.popleft()
        for length in range(len(path), 0, -1):
            for target in edges.get(path[:length], ()):
                reached = (*target, *path[length:])
                if reached not in found and len(reached) <= _DEEPEST:
                    found[reached] = None
                    waiting.append(reached)
    return [*found]


def _asked(test: ast.expr) -> ast.expr | None:
    """Return the expression that a condition tests: `a` of `a`, `not a` and `a == 1`.

    Returns:
        None for a condition of another form.
    """
    match test:
        case ast.Name() | ast.Attribute() | ast.Subscript():
            return test
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return _asked(inner)
        case ast.Compare(left=left, ops=[_]):
            return left
    return None


def _is_taken(test: ast.expr, value: str | bool | None) -> bool | None:
    """Return whether a condition holds if the expression that it tests has a given value.

    Args:
        test: The condition.
        value: Value of the expression, which may be None.

    Returns:
        None if that cannot be told from the code.
    """
    match test:
        case ast.Name() | ast.Attribute() | ast.Subscript():
            return bool(value)
        case ast.UnaryOp(operand=inner):
            held = _is_taken(inner, value)
            return None if held is None else not held
        case ast.Compare(ops=[operator], comparators=[right]) if is_plain(right):
            other = plain_value(right)
            match operator:
                case ast.Eq() | ast.Is():
                    return bool(value == other)
                case ast.NotEq() | ast.IsNot():
                    return bool(value != other)
                case ast.In() if isinstance(other, list | tuple):
                    return value in other
                case ast.NotIn() if isinstance(other, list | tuple):
                    return value not in other
    return None


def _bound(body: Iterable[ast.AST]) -> frozenset[str]:
    """Return the names that code assigns and does not declare as global."""
    names = set[str]()
    others = set[str]()
    for node in own_nodes(body):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Global(names=declared):
                others.update(declared)
    return frozenset(names - others)


def _names_read(node: ast.AST) -> Iterator[str]:
    """Yield the names of the variables, keys and attributes that an expression reads."""
    if isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
        return
    part = part_of(node)
    if isinstance(node, ast.Name):
        yield node.id
    elif part is not None:
        yield part[1]
    yield from words_run_by(node)
