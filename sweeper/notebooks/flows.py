"""Find where a notebook's literals flow: to which parameters of libraries' functions and classes.

A literal may flow through variables, attributes, dictionaries, functions and classes. The code is
read and not run, so every flow that is possible counts.
"""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from .arguments import is_parsing, option_default
from .calls import Function, defaults, gets_object, methods_of, positional, texts_in
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
from .replacing import Cell, words_in
from .signatures import Signatures

#: A path names a variable or a part of a variable: `("cfg", "lr")` is `cfg.lr` and `cfg["lr"]`,
#: `("f()", "lr")` is the parameter of a function, and `("Net", "lr")` is the attribute of all
#: objects of a class.
Path = tuple[str, ...]

#: First part of a path that leads into a library. The callee and the parameter follow.
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
#: Functions whose result counts as their argument, so values flow through their calls.
_CONVERSIONS = frozenset({"float", "int", "str", "abs", "round"})
#: The search follows no path with more than `_DEEPEST` parts, and ends after `_FARTHEST` paths
#: (chosen, not measured).
_DEEPEST, _FARTHEST = 8, 300


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LibraryCall:
    """A call of a function, class or method that the notebook does not define.

    Attributes:
        callee: Function or class as imported, such as `torch.optim.Adam`, or a method as `.fit`.
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
class _Function:
    """A function, method or class of the notebook that can be called.

    Attributes:
        key: First part of the paths of its parameters.
        arguments: Its parameters. None for a class without `__init__`.
        skipped: Number of parameters that a call does not pass, such as `self`.
    """

    key: str
    arguments: ast.arguments | None
    skipped: int = 0

    def target(self, parameter: str | int) -> Path | None:
        """Return the path of a parameter, by its name or its position in a call."""
        if self.arguments is None:
            return (self.key, parameter) if isinstance(parameter, str) else None
        named = positional(self.arguments)
        if isinstance(parameter, int):
            position = parameter + self.skipped
            return (self.key, named[position]) if position < len(named) else None
        named += [option.arg for option in self.arguments.kwonlyargs]
        if parameter not in named and self.arguments.kwarg is not None:
            return self.key, self.arguments.kwarg.arg, parameter
        return self.key, parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """A scope: where the names in a piece of code are looked up.

    Attributes:
        key: First part of the paths of its variables.
        names: Names of its variables.
        own_name: Name that a method uses for its object, usually `self`.
        owner: Class of that object.
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
        return (self.key, name) if name in self.names else self.outer.path(name)


class Flows:
    """The flows of values in a notebook.

    Args:
        cells: All code cells.
        modules: Local modules that the notebook imports, by their names.

    Attributes:
        calls: Calls in the notebook of libraries and of local modules.
        imported: Imported object for each name that an import binds, as `torch.nn` for `nn`.
        steps: Literal learning rates in gradient steps such as `w -= 0.1 * grad`, each with the
            number of its code cell.
        reads: Names of the variables, attributes and keys that the notebook reads.
        handed_on: Names of the notebook's functions that it passes to other functions.
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
        self._steps = {
            node: factors for cell in whole for node, factors in steps_in(cell.tree).items()
        }
        self._training = training_code(whole)
        self._trained = {*map(ast.unparse, assigned_from_itself(self._training))}
        self._functions: dict[str, _Function] = {}
        self._methods: defaultdict[str, list[_Function]] = defaultdict(list)
        self._keys: dict[ast.AST, str] = {}
        self._owners: dict[ast.AST, str] = {}
        self._classes: set[str] = set()
        for cell in whole:
            for node in ast.walk(cell.tree):  # Outer nodes come before the nodes inside of them.
                self._define(node)
        self._skipped: set[ast.AST] = set()
        self._read_all(whole)
        for never_used in (self._overridden_defaults, self._branches_not_taken):
            if found := {*never_used()}:
                self._skipped |= found
                self._read_all(whole)

    def _read_all(self, cells: Sequence[Cell]) -> None:
        self.calls.clear()
        self.steps.clear()
        self._edges: defaultdict[Path, list[Path]] = defaultdict(list)
        self._literals: defaultdict[ast.expr, list[Path]] = defaultdict(list)
        self._paths: dict[ast.expr, list[Path]] = {}
        self._passed: defaultdict[str, list[set[str]]] = defaultdict(list)
        self._defaults: list[tuple[str, str, ast.expr]] = []
        self._branches: list[tuple[Path, ast.If]] = []
        #: Paths that may get a value that is no literal, such as a computed one.
        self._open: set[Path] = set()
        self._parameters: set[Path] = set()
        self._handed_over: set[ast.AST] = set()
        self.reads = self._names_in(cells)
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
        """Return the names that code reads.

        A variable that is passed to a function of the notebook counts only if this function reads
        its parameter. A cell that is not Python may read any variable that it names, so all its
        words count.
        """
        found, left_out = set[str](), self._skipped | self._handed_over
        for cell in cells:
            waiting: deque[ast.AST] = deque([cell.tree])
            found |= cell.hidden_words
            while waiting:
                node = waiting.popleft()
                found |= {*_names_read(node)}
                waiting += (part for part in ast.iter_child_nodes(node) if part not in left_out)
        return found

    def _overridden_defaults(self) -> Iterator[ast.AST]:
        """Yield the defaults that are never used, because all calls pass their parameter."""
        for function, name, default in self._defaults:
            passed = self._passed[function]
            if self._is_called_here(function) and all(name in names for names in passed):
                yield default

    def _branches_not_taken(self) -> Iterator[ast.AST]:
        """Yield the statements in branches that never run.

        Their condition asks for a value that a setting never has, as in `if optimizer == "sgd":`,
        where nothing but "adam" flows to `optimizer`.
        """
        for path, branch in self._branches:
            before = {*_spread([path], self._backwards)}
            values = [plain_value(literal) for literal in self._literals_of([path])]
            are_settings = all(isinstance(value, str | bool | None) for value in values)
            if not values or not are_settings or self._may_be_another(path, before):
                continue
            taken = {_is_taken(branch.test, value) for value in values}
            yield from branch.body if taken == {False} else []
            yield from branch.orelse if taken == {True} else []

    def _may_be_another(self, path: Path, before: Set[Path]) -> bool:
        """Return whether a path may get other values than the literals that flow to it.

        Args:
            before: All paths from which values flow to it.
        """
        if not before.isdisjoint(self._open):
            return True
        functions = {part[0] for part in before if part[0].endswith("()")}
        if any(not self._is_called_here(function) for function in functions):
            return True  # Libraries call functions as well: `net(x)` calls `forward`.
        is_attribute = len(path) > 1 and path[0] not in functions
        others = {*self._made_by, *self._backwards, *self._open} - before
        # An object may have several names, one of which gets another value for this attribute.
        return is_attribute and any(part[-1] == path[-1] and part[0] != _LIBRARY for part in others)

    def _is_called_here(self, function: str) -> bool:
        return bool(self._passed[function]) and function.partition("(")[0] not in self.handed_on

    def receivers(self, value: ast.expr) -> list[tuple[str, str]]:
        """List the library parameters that a literal flows to, the nearest first.

        Returns:
            Pairs of callee and parameter, such as `("torch.optim.Adam", "lr")`.
        """
        found = [path for path in self._reached(value) if path[0] == _LIBRARY]
        return [(path[1], path[-1]) for path in found if len(path) > 2 and path[-1] != _UNKNOWN]

    def names(self, value: ast.expr) -> list[str]:
        """List the parameters and attributes of the notebook that get a literal, in order."""
        paths = [path for path in self._reached(value) if path[0] != _LIBRARY]
        return [*dict.fromkeys(path[-1] for path in paths if path[-1] != _RESULT)]

    def is_used(self, value: ast.expr) -> bool:
        """Return whether the notebook or a library may read a literal after it is assigned."""
        return any(
            path[0] == _LIBRARY or path[-1] in self._used or path[-1] == _RESULT
            for path in self._reached(value)
        )

    def origins(self, value: ast.expr) -> list[ast.expr]:
        """List the literals that may flow into an argument of a library's function."""
        if value in self._literals:
            return [value]
        return self._literals_of(self._paths.get(value, ()))

    def may_be_another(self, value: ast.expr) -> bool:
        """Return whether an argument may get other values than those of `origins`.

        As in `for seed in seeds: fit(seed)`, or if a library calls the function with the argument.
        """
        return any(
            path in self._open
            or (path in self._parameters and not self._is_called_here(path[0]))
            or not any(
                path[:length] in known
                for length in range(1, len(path) + 1)
                for known in (self._made_by, self._backwards)
            )
            for path in _spread(self._paths.get(value, ()), self._backwards)
        )

    def _literals_of(self, paths: Iterable[Path]) -> list[ast.expr]:
        before = _spread(paths, self._backwards)
        return [literal for path in before for literal in self._made_by.get(path, ())]

    def _reached(self, value: ast.expr) -> list[Path]:
        return _spread(self._literals.get(value, ()), self._edges)

    # --- reading the notebook -------------------------------------------------------------------

    def _define(self, node: ast.AST) -> None:
        if isinstance(node, ast.ClassDef):
            self._classes.add(node.name)
            self._functions[node.name] = _Function(key=node.name, arguments=None)
            for inner in methods_of(node):
                self._owners[inner] = node.name
                self._keys[inner] = key = f"{node.name}.{inner.name}()"
                method = _Function(key=key, arguments=inner.args, skipped=int(gets_object(inner)))
                self._methods[inner.name].append(method)
                if inner.name == "__init__":
                    self._functions[node.name] = method
        elif isinstance(node, Function) and node not in self._keys:
            self._keys[node] = key = f"{node.name}()"
            self._functions[node.name] = _Function(key=key, arguments=node.args)

    def _read(self, cell: int, tree: ast.Module) -> None:
        waiting: deque[tuple[Iterable[ast.AST], _Scope]] = deque([(tree.body, _Scope())])
        while waiting:
            body, scope = waiting.popleft()
            for node in own_nodes(body, self._skipped):
                if self._is_uncalled(node):
                    continue
                self._read_node(cell, node, scope)
                match node:
                    case ast.FunctionDef() | ast.AsyncFunctionDef():
                        waiting.append((node.body, self._scope_of(node, scope)))
                    case ast.ClassDef(name=name):
                        inside = _bound(node.body)
                        waiting.append((node.body, _Scope(key=name, names=inside, outer=scope)))

    def _is_uncalled(self, node: ast.AST) -> bool:
        """Return whether a node is a function or class that never runs, as no code names it."""
        return (
            isinstance(node, Function | ast.ClassDef)
            and not node.decorator_list
            and node.name not in self.reads
            and node not in self._owners
        )

    def _scope_of(self, node: Function, outer: _Scope) -> _Scope:
        options = [option.arg for option in ast.walk(node.args) if isinstance(option, ast.arg)]
        names, owner = _bound(node.body) | {*options}, self._owners.get(node, "")
        self._parameters |= {(self._keys[node], option) for option in options}
        if owner and outer.key == owner and outer.outer is not None:
            outer = outer.outer  # Methods do not see the names in the body of their class.
        own_name = options[0] if owner and options and gets_object(node) else ""
        return _Scope(
            key=self._keys[node], names=names, own_name=own_name, owner=owner, outer=outer
        )

    def _read_node(self, cell: int, node: ast.AST, scope: _Scope) -> None:
        factors = self._steps.get(node, [])
        self.steps += [(cell, factor) for factor in factors if cell and is_plain(factor)]
        for factor in factors:
            self._flow(factor, (_LIBRARY, "gradient step", "learning_rate"), scope)
        if node in self._training:
            self._own_training(node, scope)
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign(target, value, scope)
            case (
                ast.AnnAssign(target=target, value=value)
                | ast.NamedExpr(target=target, value=value)
            ) if value is not None:
                self._assign(target, value, scope)
            case ast.Return(value=value) if value is not None and scope.key:
                self._flow(value, (scope.key, _RESULT), scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                for name, value in defaults(node.args):
                    self._defaults.append((self._keys[node], name, value))
                    if value not in self._skipped:
                        self._flow(value, (self._keys[node], name), scope)
            case ast.If(test=test):
                asked = _asked(test)
                if asked is not None and (path := self._path(asked, scope)) is not None:
                    self._branches.append((path, node))
            case ast.For(target=target) | ast.AugAssign(target=target):
                for part in ast.walk(target):
                    if isinstance(part, ast.expr) and (path := self._path(part, scope)) is not None:
                        self._open.add(path)
            case ast.ClassDef(name=name, bases=bases):
                for base in bases:
                    self._flow(base, (name,), scope)
            case ast.Call():
                self._call(cell, node, scope)

    def _own_training(self, node: ast.AST, scope: _Scope) -> None:
        callee, operands = operands_of(node)
        if callee == OWN_LOOP and not scope.owner:
            # Count only loops in methods. Loops in functions and at the top level often go through
            # data, so their ends are not settings.
            return
        for operand in operands:
            path = self._path(operand, scope)
            if path is not None and ast.unparse(operand) not in self._trained:
                self._flow(operand, (_LIBRARY, callee, path[-1]), scope)

    def _assign(self, target: ast.expr, value: ast.expr, scope: _Scope) -> None:
        for inner, part, is_own in unpacked(target, value):
            path = self._path(inner, scope)
            if part is not None and path is not None and (is_own or is_parsing(part)):
                self._flow(part, path, scope)
            elif path is not None:
                self._open.add(path)

    def _call(self, cell: int, call: ast.Call, scope: _Scope) -> None:
        passed = [*call.args, *(option.value for option in call.keywords)]
        self.handed_on |= {it.id for it in passed if isinstance(it, ast.Name)} & {*self._functions}
        function = self._function(call)
        named = [(option.arg, option.value) for option in call.keywords if option.arg]
        unpacked_dicts = [option.value for option in call.keywords if option.arg is None]
        if function is not None:
            given: list[tuple[str | int, ast.expr]] = [*enumerate(call.args), *named]
            self._passed[function.key].append(set())
            for parameter, value in given:
                if (target := function.target(parameter)) is not None:
                    self._flow(value, target, scope)
                    self._passed[function.key][-1].add(target[-1])
                    if self._path(value, scope) is not None:
                        # The call alone is no use of the variable: the function may not read it.
                        self._handed_over.add(value)
            for value in unpacked_dicts:
                self._flow(value, (function.key,), scope)
            if self._of_module(call.func) is None:
                return
        callee = self._dotted(call.func)
        if callee is None:
            return
        if callee.endswith(".add_argument"):
            for name, value in option_default(call):
                self._flow(value, (*_OPTIONS, name), scope)
            return
        named += self._signatures.named(call)
        whole = [*unpacked_dicts, *(call.args[:1] if callee in _OF_DICTS else ())]
        found = LibraryCall(
            callee=callee, node=call, cell=cell, given=dict(named), is_open=bool(whole)
        )
        if cell:
            self.calls.append(found)
        known = {value for _, value in named}
        if not hasattr(builtins, callee):
            named += [(_UNKNOWN, value) for value in call.args if value not in known]
        for name, value in named:
            if function is None or function.target(name) is None:
                self._flow(value, (_LIBRARY, callee, name), scope)
            if (path := self._path(value, scope)) is not None:
                self._paths[value] = [path]
        for value in whole:
            self._flow(value, (_LIBRARY, callee), scope)

    def _flow(self, value: ast.expr, target: Path, scope: _Scope) -> None:
        waiting = [(value, target)]
        while waiting:
            part, to = waiting.pop()
            if is_plain(part):
                self._literals[part].append(to)
            match part:
                case ast.Dict(keys=keys, values=values):
                    for key, inner in zip(keys, values, strict=True):
                        if key is None:
                            waiting.append((inner, to))
                        elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                            waiting.append((inner, (*to, key.value)))
                case ast.List(elts=parts) | ast.Tuple(elts=parts):
                    waiting += [(inner, to) for inner in parts if isinstance(inner, ast.Dict)]
                case ast.IfExp(body=first, orelse=second):
                    waiting += [(first, to), (second, to)]
                case ast.BoolOp(values=parts):
                    waiting += [(inner, to) for inner in parts]
                case ast.BinOp(left=left, right=right) if is_plain(left) is not is_plain(right):
                    waiting.append((right if is_plain(left) else left, to))
                    self._open.add(to)
                case ast.Call(func=ast.Name(id=name), args=[inner, *_]) if name in _CONVERSIONS:
                    waiting.append((inner, to))
                case ast.Call() if is_parsing(part):
                    self._edges[_OPTIONS].append(to)
                case ast.Call(args=arguments, keywords=options):
                    if (source := self._path(part, scope)) is not None:
                        self._edges[source].append(to)
                    elif to[0] != _LIBRARY:
                        self._open.add(to)
                        waiting += [
                            (option.value, (*to, option.arg) if option.arg else to)
                            for option in options
                        ]
                        waiting += [
                            (argument, to)
                            for argument in arguments[:1]
                            if isinstance(argument, ast.Dict)
                        ]
                case _:
                    source = self._path(part, scope)
                    if source is not None and source != to:
                        self._edges[source].append(to)
                    elif source is None and not is_plain(part):
                        self._open.add(to)

    def _path(self, value: ast.expr, scope: _Scope) -> Path | None:
        """Return the path that an expression reads or assigns. None if it has no path."""
        rest: list[str] = []
        while True:
            match value:
                case ast.Name(id=name):
                    return (*scope.path(name), *reversed(rest))
                case ast.Attribute(value=inner, attr=name):
                    pass
                case ast.Subscript(value=inner, slice=ast.Constant(value=str(name))):
                    pass
                case ast.Call(
                    func=ast.Attribute(value=inner, attr="get" | "pop"),
                    args=[ast.Constant(value=str(name)), *_],
                ):
                    pass
                case ast.Call(func=ast.Name(id=name)) if name in self._classes:
                    return (name, *reversed(rest))
                case ast.Call() if (function := self._function(value)) is not None:
                    return (function.key, _RESULT, *reversed(rest))
                case _:
                    return None
            rest.append(name)
            value = inner

    def _function(self, call: ast.Call) -> _Function | None:
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

    def _of_module(self, function: ast.expr) -> _Function | None:
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


def _spread(begin: Iterable[Path], edges: Mapping[Path, Sequence[Path]]) -> list[Path]:
    """Return all paths that can be reached along edges, the nearest first.

    If a path flows somewhere, its parts flow there too.
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
    """Return the expression whose value decides a condition. None if several values decide it."""
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
    names, others = set(), set()
    for node in own_nodes(body):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Global(names=declared):
                others |= {*declared}
    return frozenset(names - others)


def _names_read(node: ast.AST) -> Iterator[str]:
    """Yield the names of the variables, keys and attributes that an expression reads."""
    match node:
        case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
            yield name
        case ast.Subscript(slice=ast.Constant(value=str(key)), ctx=ast.Load()):
            yield key
        case ast.Call(
            func=ast.Attribute(attr="get" | "pop"), args=[ast.Constant(value=str(key)), *_]
        ):
            yield key
    yield from (word for text in texts_in(node) for word in words_in(text))
