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

from ..notebooks.calls import defaults, last_name, last_names_called
from ..notebooks.own_training import own_nodes
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
    "get_value evaluate_score".split()
)
_ABSOLUTE = frozenset("abs absolute fabs square norm power pow".split())
#: Functions and methods that tell how much numbers differ.
_SPREADS = frozenset("std nanstd stdev pstdev var nanvar variance sem".split())
_LOGARITHMS = frozenset("log log2 log10 log1p".split())
#: Functions of Python that have the same name as the method `compile` of Keras' models.
_OTHER_COMPILE = frozenset(["compile", "re.compile", "regex.compile"])
#: Attributes of fitted objects that are evaluations, in scikit-learn, SciPy and others. Other
#: attributes with a trailing underscore are states of the training.
_NO_STATE = frozenset("best_score_ oob_score_ inertia_ loss_ best_loss_ cost fun loss".split())


class Kind(StrEnum):
    """What a number is, as far as the code shows."""

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
        """Whether the number cannot evaluate the model: it is a literal, an input or a state."""
        return self.kind in (Kind.STATE, Kind.WRITTEN)


WRITTEN = Meaning(kind=Kind.WRITTEN)
UNKNOWN, STATE = Meaning(kind=Kind.UNKNOWN), Meaning(kind=Kind.STATE)
_ERROR = Meaning(kind=Kind.EVALUATION, words=("error",), direction="minimize")
_COUNT = Meaning(kind=Kind.EVALUATION)
_ANY = Meaning(kind=Kind.EVALUATION, is_any=True)
_HITS = Meaning(kind=Kind.EVALUATION, words=("accuracy",), direction="maximize")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Binding:
    """One assignment to a name, an attribute or an item, or one addition to it.

    Attributes:
        value: The expression that is assigned or added.
        scope: The function with the assignment. None for the notebook's top level.
        position: Item of the value that the name gets, from the end if it is negative. None if the
            name gets the whole value.
        is_added: Whether the value is added, with `+=` or `append`.
        is_of_grid: Whether it is appended in a loop that tries values of a param.
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


class Evaluations:
    """Follows the numbers in a notebook's code back to what they are.

    Args:
        statements: Statements of the top level, each with the number of its cell.
    """

    def __init__(self, statements: Sequence[tuple[int, ast.stmt]]) -> None:
        self._bindings: defaultdict[tuple[ast.AST | None, str], list[_Binding]] = defaultdict(list)
        self._functions: dict[str, _Function] = {}
        #: For the definition of each `__init__`, the name of its class.
        self._class_of: dict[ast.AST | None, str] = {}
        self._calls: defaultdict[str, list[tuple[ast.Call, ast.AST | None]]] = defaultdict(list)
        #: What the search for one number's origin has found so far, by step. `_path` has the steps
        #: that it is following at the moment.
        self._known: dict[tuple[ast.AST | None, object], Meaning] = {}
        #: For each variable that keeps the best value so far, the direction in which values are
        #: better: `minimize` for `best` in `if loss < best: best = loss`.
        self._kept: dict[tuple[ast.AST | None, str], str] = {}
        #: For each function by which code chooses the best object, the direction in which the
        #: function's result is better: `minimize` for `cost` in `min(population, key=cost)`.
        self._chosen_by: dict[str, str] = {}
        #: For each name of a fold's rows in a loop over `split`, whether they are for training or
        #: for validation: `val` for `va` in `for tr, va in folds.split(x)`.
        self._folds: dict[tuple[ast.AST | None, str], str] = {}
        self._path: list[tuple[ast.AST | None, object]] = []
        self.printings: list[Printing] = []
        for index, (_, node) in enumerate(statements):
            self._read(node, None, index, None, ())

    def of(self, value: ast.expr, scope: ast.AST | None = None) -> Meaning:
        """Return what the value of an expression is.

        Args:
            scope: The function with the expression. None for the notebook's top level.
        """
        self._known.clear()
        return self._of(value, scope)

    def is_grid(self, name: str) -> bool:
        """Return whether a top-level list has the results of a loop that tries a param's values."""
        return any(binding.is_of_grid for binding in self._bindings.get((None, name), ()))

    # --- reading the code -----------------------------------------------------------------------

    def _read(
        self,
        node: ast.AST,
        scope: ast.AST | None,
        index: int,
        test: ast.expr | None,
        loops: Sequence[ast.AST],
    ) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._functions[node.name] = node
                scope, test, loops = node, None, ()
            case ast.ClassDef(name=name, body=body):
                for part in body:
                    if isinstance(part, ast.FunctionDef) and part.name == "__init__":
                        self._class_of[part] = name
            case ast.For(target=target, iter=iterated):
                if isinstance(iterated, ast.Tuple | ast.List):
                    for item in iterated.elts:
                        self._bind(target, item, scope)
                else:
                    self._bind(target, iterated, scope, is_loop=True)
                loops = [*loops, node]
            case ast.While():
                loops = [*loops, node]
            case ast.If(
                test=ast.Compare(
                    left=left,
                    ops=[ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE() as operator],
                    comparators=[right],
                )
            ):
                sides = ast.unparse(left), ast.unparse(right)
                self._keep(node.body, sides, isinstance(operator, ast.Gt | ast.GtE), scope)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._bind(target, value, scope)
            case (
                ast.AnnAssign(target=target, value=ast.expr() as value)
                | ast.NamedExpr(target=target, value=value)
            ):
                self._bind(target, value, scope)
            case ast.AugAssign(target=target, value=value, op=ast.Add() | ast.Sub()):
                self._add(target, _Binding(value=value, scope=scope, is_added=True, test=test))
            case ast.Call(func=function, args=arguments):
                name = last_name(function)
                self._calls[name].append((node, scope))
                given = {option.arg: option.value for option in node.keywords}
                is_reverse = getattr(given.get("reverse"), "value", None) is True
                way = _CHOICES.get(name) or ("maximize" if is_reverse else None)
                if "key" in given and way is not None:
                    self._chosen_by[last_name(given["key"])] = way
                if name == "append" and isinstance(function, ast.Attribute) and arguments:
                    added = _Binding(
                        value=arguments[0],
                        scope=scope,
                        is_added=True,
                        is_of_grid=any(map(_tries_values, loops)),
                    )
                    self._add(function.value, added)
                if name in ("print", "display", "write", "info"):
                    self.printings += _printings(node, scope, index, len(loops))
        if isinstance(node, ast.For | ast.comprehension) and is_over_folds(node):
            tuples = [part for part in ast.walk(node.target) if isinstance(part, ast.Tuple)]
            for pair in tuples[-1:]:
                for rows, data in zip(pair.elts[-2:], ("train", "val"), strict=False):
                    self._folds[self._key(rows, scope)] = data
        for field, part in ast.iter_fields(node):
            for child in part if isinstance(part, list) else [part]:
                if isinstance(child, ast.AST):
                    inner = node.test if isinstance(node, ast.If) and field == "body" else test
                    self._read(child, scope, index, inner, loops)

    def _keep(
        self,
        body: Sequence[ast.stmt],
        compared: tuple[str, str],
        is_more: bool,
        scope: ast.AST | None,
    ) -> None:
        """Record the variables in which a branch keeps the smaller or the larger of two numbers.

        Args:
            compared: Code of the left and the right side of the branch's condition.
            is_more: Whether the condition is that the left side is larger.
        """
        for part in body:
            if isinstance(part, ast.Assign) and len(part.targets) == 1:
                kept = ast.unparse(part.value), ast.unparse(part.targets[0])
                if kept in (compared, compared[::-1]):
                    is_less = (kept == compared) != is_more
                    key = self._key(part.targets[0], scope)
                    self._kept[key] = "minimize" if is_less else "maximize"

    def _key(self, target: ast.AST, scope: ast.AST | None) -> tuple[ast.AST | None, str]:
        """Return the key of a target's bindings: its scope, and its text such as `scores['val']`.

        The text is empty for code that is no name, attribute or item.
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
            if not binding.is_added:
                self._folds.pop(key, None)  # If the name had rows of a fold, it has others now.

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
        """Return what `follow` finds for a step of the search, and remember it.

        Return `UNKNOWN` if the search is following this step already, which is a circle, or after
        `_DEEPEST` steps.
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
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                return self._of_comparison(left, operator, right)
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
        found = []
        for binding in reversed(bindings):
            if binding.test is not None and isinstance(binding.value, ast.Constant):
                counted = self._of(_compared(binding.test), binding.scope)
                found.append(counted if counted.is_evaluation else _COUNT)
            elif binding.position is not None:
                found.append(self._of_part(binding.value, binding.position))
            else:
                found.append(self._of(binding.value, binding.scope))
            if not binding.is_added and found[-1].kind is not Kind.UNKNOWN:
                break
        is_open = any(meaning.kind is Kind.UNKNOWN for meaning in found)
        every = _together(found)
        return UNKNOWN if is_open and every.is_none else every

    def _of_part(self, value: ast.expr, position: int) -> Meaning:
        """Return what one item of a call's result is: of a returned tuple, or of what is iterated.

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
            return self._once(
                (own, position), lambda: _together(self._of(part, own) for part in parts)
            )
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
            given = next((option.value for option in call.keywords if option.arg == name), None)
            if given is None and 0 <= position < len(call.args):
                given = call.args[position]
            if given is not None:
                return self._of(given, outer)
        is_default = name in dict(defaults(scope.args))
        return WRITTEN if is_default and scope in self._class_of else UNKNOWN

    def _of_call(self, call: ast.Call, scope: ast.AST | None) -> Meaning:
        name = last_name(call.func)
        inner = call.func.value if isinstance(call.func, ast.Attribute) else None
        own = self._functions.get(name)
        if own is not None and not self._is_inside(own):
            found = self._once(
                (own, None), lambda: _together(self._of(result, own) for result in results_of(own))
            )
            named = _named(words_of(name))
            if found.kind is Kind.UNKNOWN and name in self._chosen_by:
                return replace(found, direction=self._chosen_by[name])
            # A function of the notebook that gets rows of both kinds may evaluate either.
            folds = {self._fold_of(argument, scope, set()) for argument in call.args} - {""}
            words = named.words if _agree(named, found) else found.words
            return replace(found, words=(*words, *(folds if len(folds) == 1 else ())))
        data = self._data_of(call.args, scope)
        if name in ("score", "evaluate") and inner is not None and call.args:
            if any(self._of(part, scope).kind is Kind.STATE for part in call.args):
                return STATE
            if name == "evaluate":
                return self._of_evaluate(call)
            return replace(_HITS, words=("score", *data), is_named=True)
        if name in ("cross_validate", "evaluate_model"):
            return replace(_ANY, words=data)
        if name == "cross_val_score":
            scoring = [
                word
                for option in call.keywords
                if option.arg == "scoring" and isinstance(option.value, ast.Constant)
                for word in words_of(str(option.value.value))
            ]
            return replace(_named(scoring or ["score"]), is_named=True)
        if name == "classification_report":
            return replace(_HITS, words=("accuracy", *data))
        if name == "confusion_matrix":
            return Meaning(kind=Kind.EVALUATION, words=("recall",), direction="maximize")
        if name in ("diagonal", "trace", "diag"):
            parts = [*([inner] if inner is not None else []), *call.args]
            is_matrix = any(_is_confusion(part) for part in parts) or any(
                self._of(part, scope).is_evaluation for part in parts
            )
            return replace(_HITS, is_named=True) if is_matrix else UNKNOWN
        is_size = name in _ABSOLUTE | _SPREADS
        if is_size and any(self._is_residual(part, scope) for part in call.args):
            return _ERROR
        if name in _SPREADS:
            return STATE
        metric = metric_of(words_of(name)) if len(call.args) + len(call.keywords) > 1 else None
        if metric is not None and name not in _PASSES:
            values = [*call.args, *(option.value for option in call.keywords)]
            kinds = [self._of(value, scope).kind for value in values]
            if Kind.STATE in kinds:
                return STATE
            return replace(_named(words_of(name)), words=(*metric.name.split(), *data))
        if name in _PASSES or name in _ABSOLUTE:
            parts = [*([inner] if inner is not None else []), *call.args]
            found = _together(self._of(part, scope) for part in parts)
            if found.kind is Kind.UNKNOWN and name in _CHOICES:
                return replace(found, direction=_CHOICES[name])
            return found
        if isinstance(call.func, ast.Name) and len(call.args) > 1:
            return self._of_criterion(name, scope)
        if isinstance(call.func, ast.Attribute) and len(call.args) > 1 and "criterion" in name:
            return _named(["loss"])
        return UNKNOWN

    def _of_evaluate(self, call: ast.Call, position: int | None = None) -> Meaning:
        """Return what a call of `evaluate` returns.

        In Keras, it returns the loss and the metrics that `compile` names. In other libraries, it
        may return any metric.

        Args:
            position: Item of the result. None for the result as a whole.
        """
        calls = self._calls["compile"] if isinstance(call.func, ast.Attribute) else []
        every = [parts for made in calls if (parts := self._compiled(*made))]
        parts = every[0] if every and all(other == every[0] for other in every) else []
        if position is None and len(parts) == 1:
            position = 0  # Without metrics, the result is the loss itself.
        found = _ANY
        if position is not None and -len(parts) <= position < len(parts):
            found = parts[position]
        return replace(found, words=(*found.words, *data_in(call.args)))

    def _data_of(self, arguments: Sequence[ast.expr], scope: ast.AST | None) -> list[str]:
        """Return the words for the data on which a metric is computed from its arguments.

        The rows of a fold decide, where an argument has some. Else words in names do.
        """
        for argument in arguments:
            if data := self._fold_of(argument, scope, set()):
                return [data]
        return data_in(arguments)

    def _fold_of(self, node: ast.expr, scope: ast.AST | None, seen: set[str]) -> str:
        """Return of which part of a fold code is, `train` or `val`. Empty if it is of none.

        Args:
            seen: Names of the variables that were followed already. It grows.
        """
        called = {
            part
            for call in ast.walk(node)
            if isinstance(call, ast.Call)
            for part in ast.walk(call.func)
        }
        for part in ast.walk(node):
            if not isinstance(part, ast.Name) or part in called or part.id in seen:
                continue
            key = (scope, part.id)
            if key in self._folds:
                return self._folds[key]
            seen.add(part.id)
            # The last assignment is taken for the one that the call reads.
            for binding in reversed(self._bindings.get(key, ())):
                if data := self._fold_of(binding.value, scope, seen):
                    return data
        return ""

    def _compiled(self, call: ast.Call, scope: ast.AST | None) -> list[Meaning]:
        """Return what Keras' `compile` makes `evaluate` return: the loss, then each metric.

        Empty for other functions with the name `compile`.
        """
        if ast.unparse(call.func) in _OTHER_COMPILE:
            return []
        given = dict(zip(("optimizer", "loss", "metrics"), call.args, strict=False))
        given |= {option.arg: option.value for option in call.keywords if option.arg}
        if "loss" not in given:
            return []
        metrics = self.followed(given.get("metrics", ast.List(elts=[])), scope)
        listed = metrics.elts if isinstance(metrics, ast.List | ast.Tuple) else [metrics]
        named = [_named(_metric_words(metric)) for metric in listed]
        return [
            replace(_ERROR, words=("loss",)),
            *(found if found.is_evaluation else _ANY for found in named),
        ]

    def _of_criterion(self, name: str, scope: ast.AST | None) -> Meaning:
        """Return what a call of an object returns, as of `criterion` in `criterion = nn.MSELoss()`.

        The name of the object's class decides.
        """
        for binding in self._bindings.get((scope, name)) or self._bindings.get((None, name), []):
            if isinstance(binding.value, ast.Call):
                callee = last_name(binding.value.func)
                found = _named(["loss"] if callee.endswith("Loss") else words_of(callee))
                if found.is_evaluation:
                    return found
        return UNKNOWN

    def _of_comparison(self, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> Meaning:
        if any(isinstance(part, ast.Constant) for part in (left, right)):
            return replace(_named(words_of(ast.unparse(left))), is_named=False)
        match operator:
            case ast.Eq():
                return _HITS
            case ast.NotEq():
                return _ERROR
        return UNKNOWN

    def _of_operation(
        self,
        left: ast.expr,
        operator: ast.operator,
        right: ast.expr,
        scope: ast.AST | None,
    ) -> Meaning:
        first, second = (self._of(part, scope) for part in (left, right))
        match operator:
            case ast.Pow() if self._is_residual(left, scope):
                return _ERROR
            case ast.MatMult() if ast.unparse(left).removesuffix(".T") == ast.unparse(right):
                return _ERROR if self._is_residual(left, scope) else UNKNOWN
            case ast.Mult() if ast.unparse(left) == ast.unparse(right):
                if self._is_residual(left, scope):
                    return _ERROR
            case ast.Mult() if _is_minus(left) and not second.is_none:
                return _turned(second) if second.is_named else _as_loss(second, right)
            case ast.Sub() if second.is_evaluation and not first.is_evaluation:
                return _turned(second)
            case ast.Div() if first.kind is not Kind.WRITTEN and not second.is_evaluation:
                return first
        return _together([first, second])

    def _is_residual(self, node: ast.expr, scope: ast.AST | None) -> bool:
        """Return whether an expression is a difference, such as predictions minus targets.

        The difference of a variable between two steps (`new - old`, with `old = new`) is that of a
        state, such as the weights, and does not count.
        """
        match self.followed(node, scope):
            case ast.BinOp(left=ast.Name(id=new), op=ast.Sub(), right=ast.Name(id=old)):
                pairs = ((new, old), (old, new))
                return not any(
                    isinstance(binding.value, ast.Name) and binding.value.id == other
                    for name, other in pairs
                    for binding in self._bindings.get((scope, name), ())
                )
            case ast.BinOp(op=ast.Sub()):
                return True
        return False

    def followed(self, node: ast.expr, scope: ast.AST | None = None) -> ast.expr:
        """Return the code that is assigned to a variable in a scope. Other code is returned as is.

        The caller looks at the form of the code, for example whether it is a call or a list.
        """
        if isinstance(node, ast.Name):
            for binding in reversed(self._bindings.get((scope, node.id), [])):
                if not binding.is_added and binding.position is None:
                    return binding.value
        return node


def _printings(call: ast.Call, scope: ast.AST | None, index: int, loops: int) -> Iterator[Printing]:
    before = ""
    for argument in call.args:
        for piece in _pieces(argument):
            if isinstance(piece, str):
                before += piece
                continue
            yield Printing(before=before, value=piece, scope=scope, statement=index, loops=loops)
            before += COMPUTED
        before += " "


def _pieces(node: ast.expr) -> list[str | ast.expr]:
    """Split code that makes a text, such as an f-string, into its texts and values, in order.

    Code that makes no text is one value.
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
    """Return the evaluation by the metric that a name's words contain. `UNKNOWN` without metric."""
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


def _agree(first: Meaning, second: Meaning) -> bool:
    return first.is_evaluation and second.is_evaluation and first.direction == second.direction


def _turned(found: Meaning) -> Meaning:
    """Return what the negative of a number is. It is better in the opposite direction."""
    if found.direction is None:
        return found
    if not found.is_evaluation:
        return replace(found, direction=OPPOSITE[found.direction])
    words = ("error",) if found.direction == "maximize" else ("negative", "error")
    return replace(found, direction=OPPOSITE[found.direction], words=words)


def _as_loss(found: Meaning, node: ast.expr) -> Meaning:
    """Return what the negative of an expression is: a loss if the expression has a logarithm.

    Args:
        found: What the expression is.
        node: The expression.
    """
    has_logarithm = any(
        isinstance(part, ast.Call) and last_name(part.func) in _LOGARITHMS
        for part in ast.walk(node)
    )
    return replace(_ERROR, words=("loss",)) if has_logarithm else _turned(found)


def _together(found: Iterable[Meaning]) -> Meaning:
    """Return what a number is that is computed from several numbers.

    It is an evaluation if one of them is, else a state if one of them is, else unknown.
    """
    every = [*found]
    for meaning in every:
        if meaning.is_evaluation:
            return meaning
    if any(meaning.kind is Kind.STATE for meaning in every):
        return STATE
    return every[0] if len(every) == 1 else UNKNOWN


def _is_confusion(node: ast.expr) -> bool:
    """Return whether a name says that its value is a confusion matrix."""
    return not {"cm", "confusion", "conf"}.isdisjoint(words_of(ast.unparse(node)))


def _is_minus(node: ast.expr) -> bool:
    """Return whether a product begins with a minus."""
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
    """Return the position that an index states. None for other code."""
    match index:
        case ast.Constant(value=int(position)):
            return position
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(position))):
            return -position
    return None


def _metric_words(node: ast.expr) -> list[str]:
    """Return the words of a metric that code names by a text, a function or an object."""
    if isinstance(node, ast.Constant):
        return words_of(str(node.value))
    return words_of(last_name(node.func if isinstance(node, ast.Call) else node))


def _tries_values(loop: ast.AST) -> bool:
    """Return whether a loop tries values of a param, as `for k in ks: model = Model(k=k)`.

    The loop passes its variable as an option to a call. A call whose result is not used, such as
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


def data_in(parts: Iterable[ast.expr]) -> list[str]:
    """Return the words in code that name data, as `test` of `X_test`."""
    words = [word for part in parts for word in words_of(ast.unparse(part))]
    known = {"tst": "test", "trn": "train"}
    return [split for word in words if (split := known.get(word, word)) in SPLITS]


def is_over_folds(node: ast.AST) -> bool:
    """Return whether code is a loop over the folds that `split` gives.

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
    """Return the names in code, or only those with one use: `ast.Store` for assigned names."""
    return {
        part.id
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, use)
    }
