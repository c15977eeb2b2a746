"""Find out from a notebook's code which of its numbers evaluate the model.

An evaluation is the result of a metric, or of a comparison of predictions with targets. To find the
origin of a number, the code is followed backwards through variables, functions, classes and lists.
The notebook's names for these do not matter, nor the natural language that it is written in.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from ...notebook_code.calls import defaults, last_name, last_names_called
from ...notebook_code.own_training import own_nodes
from .metrics import OPPOSITE, SPLITS, metric_of, words_of

#: The search for the origin of a number follows at most this number of steps (chosen).
_DEEPEST = 40
#: Placeholder in a text for a part that the code computes, such as `{loss}` in an f-string.
COMPUTED = "\0"
AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef
_Function = AnyFunction | ast.Lambda
#: Functions that choose one of several numbers, and the direction in which the chosen one is best.
_CHOICES = {
    **dict.fromkeys("min nanmin amin".split(), "minimize"),
    **dict.fromkeys("max nanmax amax".split(), "maximize"),
}
#: Functions and methods whose result has the meaning of their argument: a mean error is an error.
_PASSES = _CHOICES.keys() | set(
    "float int round mean sum average item numpy data detach cpu squeeze tolist nanmean "
    "median list array asarray sqrt root append format str reshape flatten ravel print display "
    "trace diagonal diag get_value evaluate_score".split()
)
_ABSOLUTE = frozenset("abs absolute fabs square norm power pow".split())
#: Functions and methods that tell how much numbers differ.
_SPREADS = frozenset("std nanstd stdev pstdev var nanvar variance sem".split())
_PRINTS = frozenset("print display write info".split())
_LOGARITHMS = frozenset("log log2 log10 log1p".split())
#: Attributes of fitted objects that are evaluations, in scikit-learn, SciPy and others. Other
#: attributes with a trailing underscore are states of the training.
_NO_STATE = frozenset("best_score_ oob_score_ inertia_ loss_ best_loss_ cost fun loss".split())


#: A metric compares at least this number of values, such as predictions and targets.
_LEAST_COMPARED = 2
#: Short words in names of data, and the words that they stand for.
_DATA = {
    **dict.fromkeys(["tst", "te"], "test"),
    **dict.fromkeys(["trn", "tr"], "train"),
    "va": "val",
}


class Kind(StrEnum):
    """The role of a number in the notebook, as far as its code shows it."""

    EVALUATION = "an evaluation"
    STATE = "an input or a state of the training"
    WRITTEN = "a number that the code states"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What a number is, as far as the notebook's code shows.

    Attributes:
        kind: Evaluation, state, written number or unknown.
        words: Words for the metric, and for the data on which it was computed.
        direction: Direction in which the number is better. None if the code does not show it. For
            a number of unknown kind, it is the direction in which the code chooses the best one.
        is_named: Whether the name of a function, an attribute or a key says which metric it is.
        is_any: Whether it is an evaluation by a metric that the code does not show. Then the name
            of the score decides which metric it is.
    """

    kind: Kind
    words: Sequence[str] = ()
    direction: str | None = None
    is_named: bool = False
    is_any: bool = False

    @property
    def is_evaluation(self) -> bool:
        """Whether the number evaluates the model, as a metric or a comparison with targets."""
        return self.kind is Kind.EVALUATION

    @property
    def is_none(self) -> bool:
        """Whether the number is no evaluation: a literal, an input or a state of the training."""
        return self.kind in (Kind.STATE, Kind.WRITTEN)


WRITTEN = Meaning(kind=Kind.WRITTEN)
UNKNOWN, STATE = Meaning(kind=Kind.UNKNOWN), Meaning(kind=Kind.STATE)
_ERROR = Meaning(kind=Kind.EVALUATION, words=("error",), direction="minimize")
_ANY = Meaning(kind=Kind.EVALUATION, is_any=True)
_HITS = Meaning(kind=Kind.EVALUATION, words=("accuracy",), direction="maximize")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Binding:
    """One assignment to a name, an attribute or an item, or one addition to it.

    Attributes:
        value: The expression that is assigned or added.
        scope: The function with the assignment. None for the notebook's top level.
        position: Index of the item that the name gets, as 1 for `acc` in `loss, acc = test()`. It
            is negative for a name after a starred one, and 0 for a loop's single variable. None if
            the name gets the whole value.
        is_added: Whether the value is added, with `+=` or `append`.
        is_of_grid: Whether the value is appended in a loop that tries values of a param.
        test: The condition of the branch with the assignment. None outside of branches.
    """

    value: ast.expr
    scope: ast.AST | None
    position: int | None = None
    is_added: bool = False
    is_of_grid: bool = False
    test: ast.expr | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Printing:
    """A value that a call prints, with the text before it.

    Attributes:
        before: The text that the call prints before the value, with `COMPUTED` for each earlier
            value.
        value: The expression that is printed.
        scope: The function with the call. None for the notebook's top level.
        statement: Index of the top-level statement with the call.
        loops: Number of loops around the call.
    """

    before: str
    value: ast.expr
    scope: ast.AST | None
    statement: int
    loops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """The position of a piece of code in the notebook.

    Attributes:
        statement: Index of the top-level statement that contains the code.
        scope: The innermost function around the code. None for the notebook's top level.
        test: The condition of the branch with the code. None outside of branches.
        loops: The loops around the code, inside of the function.
    """

    statement: int
    scope: ast.AST | None = None
    test: ast.expr | None = None
    loops: Sequence[ast.stmt] = ()


class Evaluations:
    """Finds what the numbers in a notebook's code are, such as metrics or counters.

    Args:
        statements: Statements of the top level, each with the number of its cell.
    """

    def __init__(self, statements: Sequence[tuple[int, ast.stmt]]) -> None:
        self._bindings: defaultdict[tuple[ast.AST | None, str], list[_Binding]] = defaultdict(list)
        self._functions: dict[str, _Function] = {}
        #: For the definition of each `__init__`, the name of its class.
        self._class_of: dict[ast.AST | None, str] = {}
        self._calls: defaultdict[str, list[tuple[ast.Call, ast.AST | None]]] = defaultdict(list)
        #: What the current search for a number's origin has found, by step. `_path` has the steps
        #: whose search has not ended yet.
        self._known: dict[tuple[ast.AST | None, object], Meaning] = {}
        #: For each variable that keeps the best value so far, the direction in which values are
        #: better: `minimize` for `best` in `if loss < best: best = loss`.
        self._kept: dict[tuple[ast.AST | None, str], str] = {}
        self._path: list[tuple[ast.AST | None, object]] = []
        self.printings: list[Printing] = []
        for index, (_, node) in enumerate(statements):
            self._read(node, _Place(statement=index))

    def of(self, value: ast.expr, scope: ast.AST | None = None) -> Meaning:
        """Return what the code shows about the number that an expression gives.

        That is its role, such as an evaluation of the model, and its metric, such as accuracy.

        Args:
            scope: The function with the expression. None for the notebook's top level.
        """
        self._known.clear()
        return self._of(value, scope)

    def is_grid(self, name: str) -> bool:
        """Return whether a top-level list has the results of a loop that tries a param's values."""
        return any(binding.is_of_grid for binding in self._bindings.get((None, name), ()))

    # --- reading the code -----------------------------------------------------------------------

    def _read(self, node: ast.AST, place: _Place) -> None:
        scope = place.scope
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._functions[node.name] = node
                place = _Place(statement=place.statement, scope=node)
            case ast.ClassDef(name=name, body=body):
                for part in body:
                    if isinstance(part, ast.FunctionDef) and part.name == "__init__":
                        self._class_of[part] = name
            case ast.For(target=target, iter=ast.Tuple(elts=items) | ast.List(elts=items)):
                for item in items:
                    self._bind(target, item, scope)
            case ast.For(target=target, iter=iterated):
                self._bind(target, iterated, scope, is_loop=True)
            case ast.If(test=ast.Compare(left=left, ops=[operator], comparators=[right])):
                self._keep(node.body, left, operator, right, scope)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value, scope)
            case (
                ast.AnnAssign(target=target, value=ast.expr() as value)
                | ast.NamedExpr(target=target, value=value)
            ):
                self._bind(target, value, scope)
            case ast.AugAssign(target=target, value=value, op=ast.Add() | ast.Sub()):
                added = _Binding(value=value, scope=scope, is_added=True, test=place.test)
                self._add(target, added)
            case ast.Call():
                self._read_call(node, place)
        if isinstance(node, ast.For | ast.While):
            place = replace(place, loops=[*place.loops, node])
        for child in ast.iter_child_nodes(node):
            if isinstance(node, ast.If) and child in node.body:
                self._read(child, replace(place, test=node.test))
            else:
                self._read(child, place)

    def _read_call(self, call: ast.Call, place: _Place) -> None:
        name = last_name(call.func)
        self._calls[name].append((call, place.scope))
        if name == "append" and isinstance(call.func, ast.Attribute) and call.args:
            added = _Binding(
                value=call.args[0],
                scope=place.scope,
                is_added=True,
                is_of_grid=any(map(_tries_values, place.loops)),
            )
            self._add(call.func.value, added)
        if name in _PRINTS:
            self.printings += _printings(call, place)

    def _keep(
        self,
        body: Sequence[ast.stmt],
        left: ast.expr,
        operator: ast.cmpop,
        right: ast.expr,
        scope: ast.AST | None,
    ) -> None:
        """Record which variables keep the smallest or the largest value so far.

        For `if loss < best: best = loss`, record `minimize` for `best`.

        Args:
            body: Statements of the branch, such as `best = loss`.
            left: Left side of the branch's condition.
            operator: Operator of the condition.
            right: Right side of the condition.
            scope: The function with the branch. None for the notebook's top level.
        """
        match operator:
            case ast.Lt() | ast.LtE():
                smaller, larger = ast.unparse(left), ast.unparse(right)
            case ast.Gt() | ast.GtE():
                smaller, larger = ast.unparse(right), ast.unparse(left)
            case _:
                return
        for part in body:
            if isinstance(part, ast.Assign) and len(part.targets) == 1:
                kept, target = ast.unparse(part.value), ast.unparse(part.targets[0])
                key = self._key(part.targets[0], scope)
                if (kept, target) == (smaller, larger):
                    self._kept[key] = "minimize"
                elif (kept, target) == (larger, smaller):
                    self._kept[key] = "maximize"

    def _key(self, target: ast.AST, scope: ast.AST | None) -> tuple[ast.AST | None, str]:
        """Return the key under which assignments to a target are stored: its scope and a text.

        The text of an item is, for example, `scores['val']`. An attribute has a text such as
        `.loss` and the scope None, whatever its object is. Code that is no name, attribute or item
        has an empty text.
        """
        match target:
            case ast.Name(id=name):
                return scope, name
            case ast.Attribute(attr=name):
                return None, f".{name}"
            case ast.Subscript(value=inner, slice=ast.Constant(value=str(key))):
                own = self._key(inner, scope)
                return own[0], own[1] and f"{own[1]}[{key!r}]"
            case ast.Subscript(value=inner):
                return self._key(inner, scope)
        return scope, ""

    def _add(self, target: ast.expr, binding: _Binding) -> None:
        key = self._key(target, binding.scope)
        if key[1]:  # a target without a text could never be looked up
            self._bindings[key].append(binding)

    def _bind(
        self, target: ast.expr, value: ast.expr, scope: ast.AST | None, *, is_loop: bool = False
    ) -> None:
        match target, value:
            case ast.Name(id=own), ast.Lambda() as function:
                self._functions[own] = function
            case ast.Tuple(elts=names) | ast.List(elts=names), ast.Tuple(elts=values) if len(
                names
            ) == len(values):
                for name, part in zip(names, values, strict=True):
                    self._bind(name, part, scope)
            case ast.Tuple(elts=names) | ast.List(elts=names), _:
                is_behind_star = False
                for index, name in enumerate(names):
                    at = index - len(names) if is_behind_star else index
                    self._add(name, _Binding(value=value, scope=scope, position=at))
                    is_behind_star |= isinstance(name, ast.Starred)
            case _, ast.Dict(keys=keys, values=values) if not is_loop:
                for key, part in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(key.value, str):
                        item = ast.Subscript(value=target, slice=key, ctx=ast.Store())
                        self._add(item, _Binding(value=part, scope=scope))
            case _:
                position = 0 if is_loop else None
                self._add(target, _Binding(value=value, scope=scope, position=position))

    # --- following a number back ----------------------------------------------------------------

    def _once(self, step: tuple[ast.AST | None, object], follow: Callable[[], Meaning]) -> Meaning:
        """Return the result of `follow` for a step of the search. The search stores the result.

        Return `UNKNOWN` if this step leads back to itself, or if more than `_DEEPEST` steps lead to
        it.

        Args:
            step: Key of the result: a variable, a piece of code or a function's result, with its
                function.
            follow: Function that computes the result. It is called if no result is stored.
        """
        if step not in self._known:
            if step in self._path or len(self._path) > _DEEPEST:
                return UNKNOWN
            self._path.append(step)
            self._known[step] = follow()
            self._path.pop()
        return self._known[step]

    def _is_inside(self, function: _Function) -> bool:
        return any(scope is function for scope, _ in self._path)

    def _of(self, node: ast.AST, scope: ast.AST | None) -> Meaning:
        match node:
            case ast.Constant():
                return WRITTEN
            case ast.Name() | ast.Attribute() | ast.Subscript():
                return self._of_path(node, scope)
            case ast.Call():
                return self._of_call(node, scope)
            case ast.Compare(left=ast.Constant()) | ast.Compare(comparators=[ast.Constant()]):
                return UNKNOWN
            case ast.Compare(ops=[ast.Eq()]):
                return _HITS
            case ast.Compare(ops=[ast.NotEq()]):
                return _ERROR
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                found = self._of(inner, scope)
                return _turned(found) if found.is_named else _as_loss(found, inner)
            case ast.BinOp(left=left, op=operator, right=right):
                return self._of_operation(left, operator, right, scope)
            case ast.IfExp(body=body, orelse=orelse):
                return _together(self._of(part, scope) for part in (body, orelse))
            case ast.ListComp(elt=inner) | ast.GeneratorExp(elt=inner):
                return self._of(inner, scope)
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return _together(self._of(part, scope) for part in parts)
            case ast.FormattedValue(value=inner) | ast.Starred(value=inner):
                return self._of(inner, scope)
        return UNKNOWN

    def _of_path(self, node: ast.expr, scope: ast.AST | None) -> Meaning:
        if isinstance(node, ast.Subscript) and (position := _position_of(node.slice)) is not None:
            found = self._of_part(self.followed(node.value, scope), position)
            if found.kind is not Kind.UNKNOWN:
                return found
        key = self._key(node, scope)
        if key not in self._bindings:
            key = (None, key[1])
        if bindings := self._bindings.get(key):
            found = self._once(key, lambda: self._of_bindings(bindings))
            if found.kind is Kind.UNKNOWN and key in self._kept:
                return replace(_ERROR, words=("fitness",), direction=self._kept[key])
            return found
        return self._once((scope, node), lambda: self._of_unbound(node, scope))

    def _of_unbound(self, node: ast.expr, scope: ast.AST | None) -> Meaning:
        match node:
            case ast.Name(id=name):
                return self._of_parameter(name, scope)
            case ast.Attribute(value=inner, attr=name):
                if name in _NO_STATE or (metric_of(words_of(name)) and not name.endswith("_")):
                    return _named(words_of(name))
                if name in _PASSES:
                    return self._of(inner, scope)
                chain = [part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)]
                is_fitted = any(part.endswith("_") and not part.startswith("_") for part in chain)
                return STATE if is_fitted else UNKNOWN
            case ast.Subscript(value=inner, slice=ast.Constant(value=str(key_text))):
                words, found = words_of(key_text), self._of(inner, scope)
                named = _named(words)
                is_open = found.is_any or found.kind is Kind.UNKNOWN
                if is_open and (not named.is_evaluation or "time" in words):
                    # `fit_time` and `score_time` of `cross_validate` are no evaluations.
                    return UNKNOWN
                return named if named.is_evaluation and found.kind is not Kind.STATE else found
            case ast.Subscript(value=inner):
                return self._of(inner, scope)
        return UNKNOWN

    def _of_bindings(self, bindings: Sequence[_Binding]) -> Meaning:
        found = list[Meaning]()
        for binding in reversed(bindings):
            found.append(self._of_binding(binding))
            if not binding.is_added and found[-1].kind is not Kind.UNKNOWN:
                break
        is_open = any(meaning.kind is Kind.UNKNOWN for meaning in found)
        every = _together(found)
        return UNKNOWN if is_open and every.is_none else every

    def _of_binding(self, binding: _Binding) -> Meaning:
        if binding.position is not None:
            return self._of_part(binding.value, binding.position)
        if binding.test is None or not isinstance(binding.value, ast.Constant):
            return self._of(binding.value, binding.scope)
        # The variable counts how often a condition holds: `if y == p: hits += 1`.
        counted = self._of(_compared(binding.test), binding.scope)
        return counted if counted.is_evaluation else Meaning(kind=Kind.EVALUATION)

    def _of_part(self, value: ast.expr, position: int) -> Meaning:
        """Return the meaning of one item of a call's result, such as `acc` in `loss, acc = test()`.

        For `range` and `enumerate`, item 0 is the counter of a loop over the result.

        Args:
            value: The call. Other code gives `UNKNOWN`.
            position: Index of the item.
        """
        if not isinstance(value, ast.Call):
            return UNKNOWN
        name = last_name(value.func)
        own = self._functions.get(name)
        if own is not None and not self._is_inside(own):
            parts = [
                result.elts[position]
                for result in results_of(own)
                if isinstance(result, ast.Tuple)
                and -len(result.elts) <= position < len(result.elts)
            ]
            return self._of_results(own, position, parts)
        if name == "evaluate":
            return self._of_evaluate(value, position)
        if name in ("range", "enumerate") and position == 0:
            return WRITTEN
        return UNKNOWN

    def _of_parameter(self, name: str, scope: ast.AST | None) -> Meaning:
        if not isinstance(scope, ast.FunctionDef):
            return UNKNOWN
        named = [option.arg for option in (*scope.args.posonlyargs, *scope.args.args)]
        if name not in named:
            return UNKNOWN
        position = named.index(name) - (named[0] == "self")
        for call, outer in self._calls[self._class_of.get(scope, scope.name)]:
            given = {option.arg: option.value for option in call.keywords}
            if 0 <= position < len(call.args):
                given[name] = call.args[position]
            if name in given:
                return self._of(given[name], outer)
        is_default = name in dict(defaults(scope.args))
        return WRITTEN if is_default and scope in self._class_of else UNKNOWN

    def _of_call(self, call: ast.Call, scope: ast.AST | None) -> Meaning:
        name = last_name(call.func)
        own = self._functions.get(name)
        if own is not None and not self._is_inside(own):
            return self._of_own_function(own, name)
        inner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
        options = [option.value for option in call.keywords]
        data = data_in(call.args)
        match name:
            case "evaluate" | "score" if inner and call.args:
                if self._has_state(call.args, scope):
                    return STATE
                if name == "evaluate":
                    return self._of_evaluate(call)
                return replace(_HITS, words=("score", *data), is_named=True)
            case "cross_validate" | "evaluate_model":
                return replace(_ANY, words=data)
            case "cross_val_score":
                return _named(scoring_words(call) or ["score"])
            case "classification_report":
                return replace(_HITS, words=("accuracy", *data))
            case "confusion_matrix":
                return Meaning(kind=Kind.EVALUATION, words=("recall",), direction="maximize")
        if name in _ABSOLUTE | _SPREADS and any(
            self._is_difference(part, scope) for part in call.args
        ):
            return _ERROR
        if name in _SPREADS:
            return STATE
        if name in _PASSES | _ABSOLUTE:
            found = _together(self._of(part, scope) for part in [*inner, *call.args])
            if found.kind is Kind.UNKNOWN and name in _CHOICES:
                return replace(found, direction=_CHOICES[name])
            return found
        if len(call.args) + len(options) < _LEAST_COMPARED:
            return UNKNOWN
        metric = metric_of(words_of(name))
        if metric is not None:
            if self._has_state([*call.args, *options], scope):
                return STATE
            return replace(_named(words_of(name)), words=(*metric.name.split(), *data))
        if inner:
            return _named(["loss"]) if "criterion" in name else UNKNOWN
        return self._of_criterion(name, scope)

    def _has_state(self, values: Iterable[ast.expr], scope: ast.AST | None) -> bool:
        return any(self._of(value, scope).kind is Kind.STATE for value in values)

    def _of_results(
        self, function: _Function, position: int | None, parts: Sequence[ast.expr]
    ) -> Meaning:
        step = (function, position)
        return self._once(step, lambda: _together(self._of(part, function) for part in parts))

    def _of_own_function(self, function: _Function, name: str) -> Meaning:
        """Return the meaning of the result of a function that the notebook defines.

        Args:
            name: Name of the function. If the function returns an evaluation, and its name has a
                metric with the same direction, the meaning gets the words of the name.
        """
        found = self._of_results(function, None, results_of(function))
        named = _named(words_of(name))
        is_same = named.is_evaluation and found.is_evaluation
        if is_same and named.direction == found.direction:
            return replace(found, words=named.words)
        return found

    def _of_evaluate(self, call: ast.Call, position: int | None = None) -> Meaning:
        """Return the meaning of the result of a function or method `evaluate`.

        In Keras, it returns the loss and the metrics that `compile` names. In other libraries, it
        may return any metric.

        Args:
            call: The call of `evaluate`.
            position: Index of an item of the result. None for the result as a whole.
        """
        compiled = [parts for made in self._calls["compile"] if (parts := self._compiled(*made))]
        is_method = isinstance(call.func, ast.Attribute)
        is_sure = is_method and all(parts == compiled[0] for parts in compiled)
        parts = compiled[0] if compiled and is_sure else []
        if position is None and len(parts) == 1:
            position = 0  # Without metrics, the result is the loss itself.
        found = _ANY
        if position is not None and -len(parts) <= position < len(parts):
            found = parts[position]
        return replace(found, words=(*found.words, *data_in(call.args)))

    def _compiled(self, call: ast.Call, scope: ast.AST | None) -> list[Meaning]:
        """Return the meanings of what Keras' `evaluate` returns after a call of `compile`.

        The first one is the loss, and the others are the metrics. Empty for other functions with
        the name `compile`.
        """
        given = dict(zip(("optimizer", "loss", "metrics"), call.args, strict=False))
        given |= {option.arg: option.value for option in call.keywords if option.arg}
        is_of_model = isinstance(call.func, ast.Attribute) and last_name(call.func.value) != "re"
        if "loss" not in given or not is_of_model:
            return []
        metrics = self.followed(given.get("metrics", ast.List(elts=[])), scope)
        listed = metrics.elts if isinstance(metrics, ast.List | ast.Tuple) else [metrics]
        found = [replace(_ERROR, words=("loss",))]
        for metric in listed:
            named = _named(_metric_words(metric))
            found.append(named if named.is_evaluation else _ANY)
        return found

    def _of_criterion(self, name: str, scope: ast.AST | None) -> Meaning:
        """Return the meaning of the result of a call of an object, such as `criterion(y, p)`.

        It follows from the object's class, as in `criterion = nn.MSELoss()`.
        """
        for binding in self._bindings.get((scope, name)) or self._bindings.get((None, name), []):
            if isinstance(binding.value, ast.Call):
                callee = last_name(binding.value.func)
                found = _named(["loss"] if callee.endswith("Loss") else words_of(callee))
                if found.is_evaluation:
                    return found
        return UNKNOWN

    def _of_operation(
        self,
        left: ast.expr,
        operator: ast.operator,
        right: ast.expr,
        scope: ast.AST | None,
    ) -> Meaning:
        first, second = self._of(left, scope), self._of(right, scope)
        match operator:
            case ast.Pow() if self._is_difference(left, scope):
                return _ERROR
            case ast.Mult() | ast.MatMult() if self._is_difference(left, scope) and _is_square(
                left, right
            ):
                return _ERROR
            case ast.MatMult():
                return UNKNOWN
            case ast.Mult() if _is_minus(left) and not second.is_none:
                return _turned(second) if second.is_named else _as_loss(second, right)
            case ast.Sub() if second.is_evaluation and not first.is_evaluation:
                return _turned(second)
            case ast.Div() if first.kind is not Kind.WRITTEN and not second.is_evaluation:
                return first
        return _together([first, second])

    def _is_difference(self, node: ast.expr, scope: ast.AST | None) -> bool:
        """Return whether an expression is a difference, such as predictions minus targets."""
        match self.followed(node, scope):
            case ast.BinOp(op=ast.Sub()):
                return True
        return False

    def followed(self, node: ast.expr, scope: ast.AST | None = None) -> ast.expr:
        """Return the expression that is assigned last to a variable in a scope.

        Code that is no variable, or a variable without such an assignment, is returned as it is.

        Args:
            node: The variable, or other code.
            scope: The function in which assignments count. None for the notebook's top level.
        """
        if isinstance(node, ast.Name):
            for binding in reversed(self._bindings.get((scope, node.id), [])):
                if not binding.is_added and binding.position is None:
                    return binding.value
        return node


def _printings(call: ast.Call, place: _Place) -> Iterator[Printing]:
    before = ""
    for argument in call.args:
        for piece in _pieces(argument):
            if isinstance(piece, str):
                before += piece
                continue
            yield Printing(
                before=before,
                value=piece,
                scope=place.scope,
                statement=place.statement,
                loops=len(place.loops),
            )
            before += COMPUTED
        before += " "


def _pieces(node: ast.expr) -> list[str | ast.expr]:
    """Split code of a text, such as an f-string, into literal texts and expressions, in order.

    Other code is the only expression of the result.
    """
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=values):
            return [piece for value in values for piece in _pieces(value)]
        case ast.FormattedValue(value=value):
            return [value]
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod(), right=right):
            values = right.elts if isinstance(right, ast.Tuple) else [right]
            return _woven(re.split(r"%[-+ #0-9.]*[a-zA-Z]", text), values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            pieces = [*_pieces(left), *_pieces(right)]
            if any(isinstance(piece, str) for piece in pieces):  # else it is a sum of numbers
                return pieces
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            return _woven(re.split(r"\{[^{}]*\}", text), node.args)
        case ast.Call(func=ast.Name(id="str"), args=[value]):
            return [value]
    return [node]


def _woven(texts: Sequence[str], values: Sequence[ast.expr]) -> list[str | ast.expr]:
    found: list[str | ast.expr] = []
    for position, text in enumerate(texts):
        found.append(text.replace("%%", "%"))
        found += values[position : position + 1] if position < len(texts) - 1 else []
    return found


def _named(words: Sequence[str]) -> Meaning:
    """Return an evaluation by the metric in the words of a name. `UNKNOWN` without a metric."""
    metric = metric_of(words)
    if metric is None:
        return UNKNOWN
    found = Meaning(
        kind=Kind.EVALUATION, words=tuple(words), direction=metric.direction, is_named=True
    )
    # scikit-learn's `neg_mean_squared_error` is an error times -1, so more is better. `recall_neg`
    # and `neg_loss` are scores of the negative class, and keep their direction.
    is_error = metric.direction == "minimize" and not metric.is_weak
    is_turned = is_error and "neg" in words[:-1] and "neg" not in metric.name.split()
    return _turned(found) if is_turned else found


def _turned(found: Meaning) -> Meaning:
    """Return the meaning of a number times -1, which is better in the opposite direction."""
    if found.direction is None:
        return found
    if not found.is_evaluation:
        return replace(found, direction=OPPOSITE[found.direction])
    words = ("error",) if found.direction == "maximize" else ("negative", "error")
    return replace(found, direction=OPPOSITE[found.direction], words=words)


def _as_loss(found: Meaning, node: ast.expr) -> Meaning:
    """Return the meaning of an expression times -1: a loss if the expression has a logarithm.

    Args:
        found: Meaning of the expression.
        node: The expression.
    """
    has_logarithm = any(
        isinstance(part, ast.Call) and last_name(part.func) in _LOGARITHMS
        for part in ast.walk(node)
    )
    return replace(_ERROR, words=("loss",)) if has_logarithm else _turned(found)


def _together(found: Iterable[Meaning]) -> Meaning:
    """Return the meaning of a number that is computed from numbers with given meanings.

    It is an evaluation if one of them is, else a state if one of them is, else unknown. The meaning
    of a single number is returned as it is.
    """
    every = [*found]
    for meaning in every:
        if meaning.is_evaluation:
            return meaning
    if any(meaning.kind is Kind.STATE for meaning in every):
        return STATE
    return every[0] if len(every) == 1 else UNKNOWN


def _is_square(left: ast.expr, right: ast.expr) -> bool:
    """Return whether a product is a square, as `e * e` and `e.T @ e`."""
    return ast.unparse(left).removesuffix(".T") == ast.unparse(right)


def _is_minus(node: ast.expr) -> bool:
    """Return whether the first operand of an expression has a minus, as in `-p * log(q)`."""
    while isinstance(node, ast.BinOp):
        node = node.left
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)


def _compared(test: ast.expr) -> ast.expr:
    """Return the last part of a branch's condition, as `y == p` in `is_valid and y == p`."""
    return test.values[-1] if isinstance(test, ast.BoolOp) else test


def results_of(function: _Function) -> list[ast.expr]:
    """Return the expressions whose values a function returns."""
    if isinstance(function, ast.Lambda):
        return [function.body]
    return [
        part.value
        for part in own_nodes(function.body)
        if isinstance(part, ast.Return) and part.value is not None
    ]


def _position_of(index: ast.expr) -> int | None:
    """Return the whole number that code states as an index, as -1 for `a[-1]`.

    None if the index is computed, or is no whole number.
    """
    match index:
        case ast.Constant(value=int(position)):
            return position
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(position))):
            return -position
    return None


def _metric_words(node: ast.expr) -> list[str]:
    """Return the words of a metric's name. Code may give it as a text, a function or an object."""
    if isinstance(node, ast.Constant):
        return words_of(str(node.value))
    return words_of(last_name(node.func if isinstance(node, ast.Call) else node))


def _tries_values(loop: ast.AST) -> bool:
    """Return whether a loop tries values of a param, as `for k in ks: model = Model(k=k)`.

    Such a loop passes its variable as an option to a call. A call whose result is not used, such as
    `bar.set_postfix(epoch=epoch)`, makes no model and does not count.
    """
    if not isinstance(loop, ast.For):
        return False
    parts = [*ast.walk(loop)]
    unused = [part.value for part in parts if isinstance(part, ast.Expr)]
    calls = [part for part in parts if isinstance(part, ast.Call) and part not in unused]
    names = names_in(loop.target)
    return any(
        isinstance(option.value, ast.Name) and option.value.id in names
        for call in calls
        for option in call.keywords
    )


def scoring_words(call: ast.Call) -> list[str]:
    """Return the words of the metric that the option `scoring` of a call names."""
    for option in call.keywords:
        if option.arg == "scoring" and isinstance(option.value, ast.Constant):
            return words_of(str(option.value.value))
    return []


def data_in(parts: Iterable[ast.expr]) -> list[str]:
    """Return the words in code that name data, as `test` of `X_test` and of `X_te`."""
    words = [word for part in parts for word in words_of(ast.unparse(part))]
    full = [_DATA.get(word, word) for word in words]
    return [word for word in full if word in SPLITS]


def is_over_folds(node: ast.AST) -> bool:
    """Return whether code is a loop over the folds of cross validation that a method `split` gives.

    A fold is a pair, of training and validation data. A loop over single parts of a text or a
    tensor, which also have a method `split`, does not count.
    """
    if not isinstance(node, ast.For | ast.comprehension):
        return False
    calls = [part for part in ast.walk(node.iter) if isinstance(part, ast.Call)]
    splits = [call for call in calls if getattr(call.func, "attr", "") == "split" and call.args]
    is_counted = "enumerate" in last_names_called(calls)
    n_names = len(names_in(node.target)) - is_counted
    return bool(splits) and n_names >= 2 * len(splits)


def names_in(node: ast.AST, use: type[ast.expr_context] = ast.expr_context) -> set[str]:
    """Return the names in code.

    Args:
        use: Context in which a name has to be: `ast.Store` for assigned names. By default, any.
    """
    return {
        part.id
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, use)
    }
