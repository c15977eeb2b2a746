"""Guess what kind of value a notebook's variables have, without running the notebook."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from enum import StrEnum

from .cells import pairs


class Kind(StrEnum):
    """The kinds of values that matter in a search for scores."""

    NUMBER = "number"
    UNKNOWN = "unknown"
    CLOCK = "clock"
    COUNTER = "counter"
    SEVERAL = "several"
    OTHER = "other"


_NUMBERS = (Kind.NUMBER, Kind.COUNTER)
_CLOCKS = frozenset(
    "time time_ns perf_counter perf_counter_ns monotonic monotonic_ns process_time default_timer "
    "timer now utcnow today total_seconds strftime ctime".split()
)
#: Functions whose result is of the same kind as their argument.
_CONVERSIONS = frozenset({"float", "int", "round", "float32", "float64"})
#: Functions and methods that reduce several numbers to one; along an axis to fewer.
_REDUCING = frozenset(
    "mean sum max min median std var prod average nanmean item norm trapz score".split()
)
#: Functions and methods whose result is a collection.
_SEVERAL = frozenset(
    "array asarray zeros ones empty full arange linspace logspace list dict set tuple sorted "
    "range zip map filter enumerate reversed split items keys values tolist numpy DataFrame Series "
    "predict predict_proba predict_log_proba decision_function score_samples transform "
    "fit_transform cross_val_score cross_val_predict cross_validate learning_curve "
    "validation_curve permutation_test_score roc_curve precision_recall_curve det_curve "
    "precision_recall_fscore_support confusion_matrix classification_report "
    "silhouette_samples cumsum reshape ravel flatten stack concatenate read_csv".split()
)
#: The ends of the names of functions that compute a score.
_SCORING = ("_score", "_error", "_loss", "_deviance", "_corrcoef")
#: Attributes of collections only.
_OF_SEVERAL = frozenset(
    "append extend shape ndim index columns keys values items tolist mean std argmax argmin "
    "reshape plot hist iloc loc head update".split()
)
#: Attributes of models, metrics and similar objects only.
_OF_OBJECTS = frozenset("fit compute result reset update_state forward parameters run eval".split())
#: Functions whose arguments are collections.
_TAKES_SEVERAL = frozenset(
    "len enumerate zip list sorted mean std median average argmax argmin argsort plot hist bar "
    "scatter boxplot stack concatenate array DataFrame cumsum save".split()
)


class Variables:
    """The top-level variables of a notebook's cells.

    Args:
        trees: the syntax trees of the cells, in order.
    """

    def __init__(self, trees: Sequence[ast.Module]) -> None:
        self._kinds: dict[str, Kind] = {}
        for tree in trees:
            self._visit(tree.body)
        self._used = dict(_uses(trees))

    def of(self, name: str) -> Kind:
        """The kind of a variable after the last cell."""
        kind = self._kinds.get(name, Kind.UNKNOWN)
        return self._used.get(name, kind) if kind is Kind.UNKNOWN else kind

    def kind(self, expression: ast.expr) -> Kind:
        """The kind of an expression's value."""
        match expression:
            case ast.Constant(value=bool() | str() | bytes() | None):
                return Kind.OTHER
            case ast.Constant():
                return Kind.NUMBER
            case ast.Name(id=name):
                return self._kinds.get(name, Kind.UNKNOWN)
            case ast.UnaryOp(operand=operand):
                return self.kind(operand)
            case ast.BinOp(left=left, op=op, right=right):
                return _joined(self.kind(left), op, self.kind(right))
            case ast.IfExp(body=body):
                return self.kind(body)
            case ast.Subscript(slice=ast.Slice()) | ast.Attribute(attr="history" | "T"):
                return Kind.SEVERAL
            case ast.Call():
                return self._of_call(expression)
            case ast.List() | ast.Tuple() | ast.Dict() | ast.Set():
                return Kind.SEVERAL
            case ast.ListComp() | ast.DictComp() | ast.SetComp() | ast.GeneratorExp():
                return Kind.SEVERAL
            case ast.Lambda() | ast.Compare() | ast.BoolOp() | ast.JoinedStr():
                return Kind.OTHER
        return Kind.UNKNOWN

    def _of_call(self, call: ast.Call) -> Kind:
        named = _last_name(call.func)
        first = self.kind(call.args[0]) if call.args else Kind.UNKNOWN
        options = {option.arg: option.value for option in call.keywords}
        if named in _CLOCKS:
            return Kind.CLOCK
        if named in _SEVERAL or options.keys() & {"axis", "dim", "multioutput"}:
            return Kind.SEVERAL
        if isinstance(options.get("average"), ast.Constant) and ast.unparse(
            options["average"]
        ) == repr(None):
            return Kind.SEVERAL
        if named in _CONVERSIONS:
            return first if first in (Kind.CLOCK, Kind.COUNTER) else Kind.NUMBER
        if named in ("len", "count", "count_nonzero"):
            return Kind.COUNTER
        if named in _REDUCING or named.endswith(_SCORING):
            # The 1 in x.mean(1) is an axis, in max(1, x) it is not.
            is_axis = bool(call.args) and isinstance(call.args[0], ast.Constant)
            is_along = is_axis and isinstance(call.func, ast.Attribute)
            return Kind.SEVERAL if is_along else Kind.NUMBER
        return Kind.OTHER if named[:1].isupper() else Kind.UNKNOWN

    def _visit(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self._kinds[statement.name] = Kind.OTHER
                continue
            if isinstance(statement, ast.Assign):
                for target in statement.targets:
                    self._assign(target, statement.value)
            elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
                self._assign(statement.target, statement.value)
            elif isinstance(statement, ast.AugAssign):
                self._change(statement)
            for inner in bodies(statement):
                self._visit(inner)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        """Keep the kinds of a target's names; a part of a collection may be one itself."""
        whole = self.kind(value)
        for name, part in pairs(target, value):
            is_several = part is None and whole is Kind.SEVERAL
            known = Kind.SEVERAL if is_several else Kind.UNKNOWN
            self._kinds[name] = known if part is None else self.kind(part)

    def _change(self, statement: ast.AugAssign) -> None:
        if not isinstance(statement.target, ast.Name):
            return
        name, added = statement.target.id, self.kind(statement.value)
        before = self._kinds.get(name, Kind.UNKNOWN)
        is_step = isinstance(statement.value, ast.Constant) and isinstance(
            statement.value.value, int
        )
        if is_step and isinstance(statement.op, ast.Add | ast.Sub):
            self._kinds[name] = Kind.COUNTER
        elif Kind.CLOCK in (before, added):
            self._kinds[name] = Kind.CLOCK
        elif before in _NUMBERS:
            self._kinds[name] = Kind.NUMBER


def bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """List the bodies of a loop, a condition, a `with` or a `try`."""
    for field in ("body", "orelse", "finalbody"):
        yield getattr(statement, field, [])
    yield from (handler.body for handler in getattr(statement, "handlers", []))


def _joined(left: Kind, op: ast.operator, right: Kind) -> Kind:
    both = (left, right)
    for kind in (Kind.CLOCK, Kind.SEVERAL, Kind.OTHER):
        if kind in both:
            return kind
    if Kind.UNKNOWN in both:
        return Kind.UNKNOWN
    is_count = both == (Kind.COUNTER, Kind.COUNTER) and not isinstance(op, ast.Div)
    return Kind.COUNTER if is_count else Kind.NUMBER


def _last_name(called: ast.expr) -> str:
    if isinstance(called, ast.Attribute):
        return called.attr
    return called.id if isinstance(called, ast.Name) else ""


def _uses(trees: Sequence[ast.Module]) -> Iterator[tuple[str, Kind]]:
    """List the kinds of variables that follow from their use, as that of one that is called."""
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, Kind.OTHER
    for node in (node for tree in trees for node in _outside_of_functions(tree)):
        match node:
            case ast.Subscript(value=ast.Name(id=name)) | ast.Starred(value=ast.Name(id=name)):
                yield name, Kind.SEVERAL
            case ast.For(iter=ast.Name(id=name)) | ast.comprehension(iter=ast.Name(id=name)):
                yield name, Kind.SEVERAL
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                if attribute in _OF_SEVERAL:
                    yield name, Kind.SEVERAL
                elif attribute in _OF_OBJECTS:
                    yield name, Kind.OTHER
            case ast.Call(func=function, args=arguments):
                if _last_name(function) in _TAKES_SEVERAL:
                    yield from ((a.id, Kind.SEVERAL) for a in arguments if isinstance(a, ast.Name))


def _outside_of_functions(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child
            yield from _outside_of_functions(child)
