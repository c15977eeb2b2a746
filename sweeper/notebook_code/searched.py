"""Find the arguments whose values the notebook itself replaces, as a `GridSearchCV` does."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from .calls import Function, last_name
from .plain import Place
from .replacing import Cell
from .syntax import arguments_of, items_of, keywords_of, names_in, unpacked_dicts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setter(Place):
    """A call that replaces arguments of objects: a search, or `set_params`.

    Attributes:
        keys: Arguments that get other values, such as `C`, or `svc__C` for the step `svc` of a
            pipeline.
        objects: Code of the objects whose arguments the call replaces. For an object in a
            variable, this is the value that the notebook assigns to the variable. It is left out
            if other code may use the object with its original arguments.
        steps: Values of the variables inside of a search's arguments, such as that of `svc` in
            `GridSearchCV(Pipeline([("svc", svc)]), …)`. A variable that is itself an argument
            belongs to `objects`. Variables that other code uses as well are left out. Empty for
            `set_params`.
    """

    keys: set[str]
    objects: list[ast.expr]
    steps: list[ast.expr] = field(default_factory=list)


def set_again(cells: Sequence[Cell]) -> Mapping[ast.expr, Place]:
    """Return where searches (such as `GridSearchCV`) and `set_params` replace values of arguments.

    An argument of a model is left out if other code may use the model with the original value.

    Args:
        cells: All code cells.

    Returns:
        The replacing call, by the syntax tree node of the argument's value.
    """
    variables = _Variables(cells)
    found: dict[ast.expr, Place] = {}
    searches = [*_searches(cells, variables)]
    varied = {key for search in searches for key in search.keys}
    for setter in (*searches, *_calls_of_set_params(cells, variables, varied)):
        for key in setter.keys:
            for value in _meant(key, setter):
                found.setdefault(value, setter)
    return found


def is_search(call: ast.Call) -> bool:
    """Return whether the name of the called class ends in `SearchCV`, such as `GridSearchCV`."""
    return last_name(call.func).endswith("SearchCV")


class _Variables:
    """The values of variables, and where code reads these variables.

    Reads in a call such as `GridSearchCV(…)`, and of `model` in `model.set_params`, are left out.
    """

    def __init__(self, cells: Iterable[Cell]) -> None:
        self.values: defaultdict[str, list[ast.expr]] = defaultdict(list)
        self._reads: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        in_setters = set[ast.AST]()
        for cell in cells:
            for node in cell.nodes:
                match node:
                    case ast.Assign(targets=[ast.Name(id=name)], value=value):
                        self.values[name].append(value)
                    case ast.Call() if is_search(node):
                        in_setters |= {*ast.walk(node)}
                    case ast.Attribute(attr="set_params", value=whole):
                        in_setters.add(whole)
                    case ast.Name(id=name, ctx=ast.Load()) if node not in in_setters:
                        self._reads[name].append((cell.number, node.lineno))

    def unused(self, name: str, before: tuple[int, int] | None = None) -> list[ast.expr]:
        """Return the only value of a variable, in a list.

        The list is empty if code other than `set_params` and searches (such as `GridSearchCV`)
        reads the variable, or if the notebook assigns it no value or several values.

        Args:
            name: The variable.
            before: Number of a cell, and line. Reads from this line on are ignored. None if no read
                is ignored.
        """
        values = self.values[name]
        is_used = any(before is None or place < before for place in self._reads[name])
        return [] if is_used or len(values) > 1 else values


def _searches(cells: Iterable[Cell], variables: _Variables) -> Iterator[_Setter]:
    for cell in cells:
        for call in cell.nodes:
            if not isinstance(call, ast.Call) or not is_search(call):
                continue
            setter = _Setter(
                cell=cell.number,
                line=call.lineno,
                keys=_keys_of_dicts(call),
                objects=arguments_of(call),
            )
            passed = {*setter.objects}
            for name in names_in(call):
                for value in variables.values[name.id]:
                    setter.keys.update(_keys_of_dicts(value))
                objects = setter.objects if name in passed else setter.steps
                # A search changes only copies of an object, so code after the search still uses the
                # original values. Therefore, uses of the variable after the search count, too.
                objects += variables.unused(name.id)
            yield setter


def _keys_of_dicts(code: ast.expr) -> set[str]:
    """Return the texts that are keys of dicts in code, as in `{"C": [1, 10]}`."""
    dicts = [node for node in ast.walk(code) if isinstance(node, ast.Dict)]
    return {key for each in dicts for key, _ in items_of(each)}


def _calls_of_set_params(
    cells: Iterable[Cell], variables: _Variables, varied: Set[str]
) -> Iterator[_Setter]:
    """Yield the calls of `set_params` that run in each trial.

    Only calls on a variable count, as in `model.set_params(C=1)`. Calls in functions, classes, `if`
    and `try` at the top level are left out, because they may not run.

    Args:
        cells: All code cells.
        variables: The variables that these cells assign, with their values and uses.
        varied: Arguments that searches vary. `set_params(**search.best_params_)` sets all of them.
    """
    for cell in cells:
        for statement in cell.statements:
            if isinstance(statement, Function | ast.ClassDef | ast.If | ast.Try):
                continue
            for node in ast.walk(statement):
                match node:
                    case ast.Call(func=ast.Attribute(attr="set_params", value=ast.Name(id=name))):
                        keys = {key for key, _ in keywords_of(node)}
                        if unpacked_dicts(node):
                            keys |= varied
                        yield _Setter(
                            cell=cell.number,
                            line=node.lineno,
                            keys=keys,
                            objects=variables.unused(name, (cell.number, node.lineno)),
                        )


def _meant(key: str, setter: _Setter) -> list[ast.expr]:
    """Return the value of the argument that a key sets, in a list.

    The list is empty if no argument, or more than one, may be meant.

    Args:
        key: Name of an argument, after the names of the steps that lead to it: `svc__C`.
        setter: The call that sets it.
    """
    found = [*_arguments(setter.objects, key)]
    path, _, argument = key.rpartition("__")
    if path:
        wanted = path.split("__")[-1]
        inner: list[ast.AST] = []
        for step in setter.steps:
            inner += ast.walk(step)
        for whole in setter.objects:
            inner += [node for node in ast.walk(whole) if node is not whole]
        names = _names_of_steps(inner)
        named = [node for node in inner if names.get(node, wanted) == wanted]
        found += _arguments(named, argument)
    return found if len(found) == 1 else []


def _names_of_steps(nodes: Iterable[ast.AST]) -> dict[ast.AST, str]:
    """Return the names of a pipeline's steps, by the calls that make the steps.

    Code states a name and a call as in `("svc", SVC())`.
    """
    names: dict[ast.AST, str] = {}
    for node in nodes:
        match node:
            case ast.Tuple(elts=[ast.Constant(value=str(name)), ast.Call() as step, *_]):
                names[step] = name
    return names


def _arguments(nodes: Iterable[ast.AST], name: str) -> Iterator[ast.expr]:
    """Yield the values that the calls among nodes pass for the keyword argument `name`."""
    for node in nodes:
        stated = keywords_of(node) if isinstance(node, ast.Call) else []
        for known, value in stated:
            if known == name:
                yield value
