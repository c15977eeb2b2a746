"""Guess from a notebook's code which scores it has, and on which lines of code they depend."""

from __future__ import annotations

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..notebooks.calls import last_name
from ..notebooks.own_training import own_nodes
from ..notebooks.replacing import Cell
from .evaluations import AnyFunction, Evaluations, names_in
from .metrics import ORDER, SPLITS, Metric, metric_of, split_of, words_of

NOTHING: Mapping[tuple[int, int], Collection[str]] = {}
_QUALIFIERS = frozenset("best final last mean avg average total epoch running".split())
#: Matches the code of values that are no single number, and so no score: a list, a mapping, a text,
#: and the history of all epochs that Keras returns.
_HOLDS_NONE = re.compile(r"[\[{']|.*\.history\[")
#: Matches the names of functions that may change the objects that are passed to them.
_TRAINS = re.compile("train|fit|learn|optim", re.IGNORECASE)
#: Functions whose result has the same elements as their argument.
_HANDS_ON = frozenset("dict enumerate list product reversed sorted tqdm tuple zip".split())


#: An element of a list or dict that a loop goes through: index of the statement, key, value.
_Element = tuple[int, ast.expr | None, ast.expr]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A score that a notebook may have.

    Attributes:
        name: Name of the score in the parameters file.
        how: How the notebook gives the score: `reported`, `assigned`, or the words of
            `SeenScore.how` if a run of the notebook has shown it.
        at: Index in `Code.statements` of the statement that gives the score.
        source: Key and value of the score's entry under `scores` in the parameters file, as
            `expression: …`. Empty if it needs none.
        better: Direction in which the score is better: `minimize` or `maximize`. Empty if the
            score's name decides.
        is_of_batches: Whether the score is a sum over batches or one of the last batch, so that the
            batch size changes it even if the model stays the same.
        is_loss: Whether the training minimises the score, as far as is known.
        is_called: Whether each trial has to call functions of the notebook again to compute it.
        data: Words of the data on which the code computes the score, if it shows them.
    """

    name: str
    how: str
    at: int
    source: str = ""
    better: str = ""
    is_of_batches: bool = False
    is_loss: bool = False
    is_called: bool = False
    data: Sequence[str] = ()

    @property
    def entry(self) -> str:
        """The score's entry under `scores`, as YAML."""
        key, _, text = self.source.partition(": ")
        return f"{{{key}: '{text.replace(chr(39), chr(39) * 2)}'}}"

    @property
    def direction(self) -> str:
        """`minimize` or `maximize`. If neither is known, a text that makes a person choose one.

        A sweep refuses that text.
        """
        if self.better:
            return self.better
        metric = _metric(self.name)
        return "minimize or maximize" if metric is None else metric.direction

    @property
    def rank(self) -> tuple[object, ...]:
        """Sort key: the likeliest score has the smallest one, as among the scores of a run."""
        words, metric = words_of(self.name), _metric(self.name)
        split = ORDER[split_of([*words, *self.data])]
        kind = 2 * (self.direction == "minimize")
        if metric is not None and not metric.is_weak:
            kind = int(metric.is_partial)
        return metric is None, split, kind, "best" in words, -self.at


class Code:
    """The code of a notebook, as the statements of its top level, and which ones a score needs.

    Args:
        cells: The sources of the code cells.
        changes: For each statement, given by its cell and line, the names whose objects it has
            changed when the notebook was run. For a statement that is not in the mapping, they are
            guessed from its calls.
        modules: Local modules that the code imports.
    """

    def __init__(
        self,
        cells: Sequence[str],
        changes: Mapping[tuple[int, int], Collection[str]] = NOTHING,
        modules: Iterable[Cell] = (),
    ) -> None:
        self._changes = changes
        #: Functions and methods of the local modules.
        self.helpers = [
            part
            for module in modules
            for part in ast.walk(module.tree)
            if isinstance(part, AnyFunction)
        ]
        self.is_observed = bool(changes)

        self.statements = [
            (n, _as_taken(node, changes.get((n, node.lineno))))
            for n, source in enumerate(cells, 1)
            for node in Cell(n, source).tree.body
        ]
        self.nodes = [(i, it) for i, (_, top) in enumerate(self.statements) for it in ast.walk(top)]
        self.calls = [
            (i, ast.unparse(it.func), {option.arg: option.value for option in it.keywords}, it.args)
            for i, it in self.nodes
            if isinstance(it, ast.Call)
        ]
        names = (it.asname or it.name for _, it in self.nodes if isinstance(it, ast.alias))
        imported = {name.partition(".")[0] for name in names}
        #: Index of the first statement that assigns a name.
        self._assigned_at: dict[str, int] = {}
        for index, it in self.nodes:
            if isinstance(it, ast.Name) and isinstance(it.ctx, ast.Store):
                self._assigned_at.setdefault(it.id, index)
        #: Names of imported objects, without names that the code also assigns. `_imported_at` adds
        #: these for the statements before the assignment.
        self.imported = imported - self._assigned_at.keys()
        self._imported_for_a_time = imported & self._assigned_at.keys()
        #: Texts in the code, each with the index of its statement.
        self.texts = [
            (i, it.value)
            for i, it in self.nodes
            if isinstance(it, ast.Constant) and isinstance(it.value, str)
        ]
        self.functions = {it.name: it for _, it in self.nodes if isinstance(it, AnyFunction)}
        #: Functions and classes by name, each with the index of its statement.
        self._definitions: dict[str, list[tuple[int, ast.stmt]]] = defaultdict(list)
        for index, (_, it) in enumerate(self.statements):
            for name in _defined(it):
                self._definitions[name].append((index, it))

    def lines(self, score: Score) -> set[tuple[int, int]]:
        """Return the cells and lines of the code on which a score depends.

        The statements are followed backwards from the one that gives the score. A statement counts
        if it assigns, or changes, a name that a later one needs.
        """
        last = self.run_by(score.at)
        passed_by = self.passed_by(score)
        needed, found = set[str](), list[tuple[int, ast.stmt | ast.expr]]()
        for index in range(last, -1, -1):
            cell, node = self.statements[index]
            if index == last and (item := _item(node, score.source)) is not None:
                needed = self._with_definitions(_names(item)[0], index)
                found.append((cell, item))
                continue
            read, stored = _names(node)
            if others := {part for at, part in passed_by if at == index}:
                kept = own_nodes([node], others)
                read &= {part.id for part in kept if isinstance(part, ast.Name)}
            if index == last or needed & (stored | self._changed(index)):
                if _defined(node):  # the body of a function reads its names only when it is called
                    read = _read_by_definition(node)
                needed = (needed - (stored - read)) | self._with_definitions(read, index)
                found.append((cell, node))
        nodes = [node for _, node in found]
        return {
            line
            for cell, node in found
            for part in _read_of(node, nodes)
            for line in _lines(cell, part)
        }

    def passed_by(self, score: Score) -> list[tuple[int, ast.expr]]:
        """Return the parts of a loop over models that belong to other models than the score's.

        Values in the code of these models do not change the score. The score's own model is the one
        that its name contains, as in `results_svm`. Else it is the loop's last one.

        Returns:
            Index of a statement, and the code of another model in it. Empty without such a loop.
        """
        last = self.run_by(score.at)
        if not isinstance(self.statements[last][1], ast.For):
            return []
        made = {
            node.targets[0].id: node.value
            for _, node in self.statements[:last]
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        names, appended = set[str](), list[_Element]()
        lists = [appended]
        for index in range(last, -1, -1):
            match self.statements[index][1]:
                # An earlier loop may have filled the list or dict that the last loop goes through.
                case ast.For(iter=value) as loop if index == last or names & _filled(loop):
                    names |= {part.id for part in _iterated(value) if isinstance(part, ast.Name)}
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in names:
                    pass
                case ast.Expr(
                    value=ast.Call(
                        func=ast.Attribute(attr="append", value=ast.Name(id=name))
                    ) as call
                ) if name in names:
                    appended[:0] = [(index, part, part) for part in call.args]
                    continue
                case _:
                    continue
            lists += [[(index, *it) for it in each] for each in _elements(value)]
        said = f"_{'_'.join(words_of(score.name))}_"
        named = [
            (len(words), position)
            for each in lists
            for position, (_, key, _) in enumerate(each)
            if key is not None
            if (words := "_".join(_words_of_key(made.get(last_name(key), key))))
            and f"_{words}_" in said
        ]
        own = max(named, default=(0, -1))[1]
        return [
            (index, part)
            for each in lists
            if any(
                isinstance(it, ast.Call | ast.Name) for *_, part in each for it in ast.walk(part)
            )
            for index, _, part in each
            if part is not each[min(own, len(each) - 1)][2]
        ]

    def changed_in_run(self, index: int) -> Collection[str] | None:
        """Return the names whose objects a statement changed when the notebook was run.

        None if no run has recorded it.
        """
        cell, node = self.statements[index]
        return self._changes.get((cell, node.lineno))

    def _changed(self, index: int) -> set[str]:
        """Return the names whose objects a statement changes.

        If no run has recorded them, they are guessed from the statement's calls.
        """
        seen, (_, node) = self.changed_in_run(index), self.statements[index]
        if seen is not None:
            return {*seen}
        imported = self._imported_at(index)
        fixed = {*self._definitions, *vars(builtins)} | imported
        return _changed(node, imported) - fixed

    def _imported_at(self, index: int) -> set[str]:
        """Return the names that are imported objects when a statement runs."""
        kept = {it for it in self._imported_for_a_time if self._assigned_at[it] >= index}
        return self.imported | kept

    def _with_definitions(self, names: set[str], index: int) -> set[str]:
        """Return names, and those that functions and classes among them read when they are used.

        Args:
            index: Index of the statement that uses the names. Of several definitions of a name, the
                last one before this statement counts.
        """
        found, imported = set[str](), self._imported_at(index)
        waiting = [*names - imported]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                definitions = self._definitions.get(name, [])
                before = [node for at, node in definitions if at < index] or [
                    node for _, node in definitions[:1]
                ]
                waiting += [] if not before else _names(before[-1])[0] - imported
        return found

    def evaluations(self) -> Evaluations:
        """Return an object that says which numbers of the code evaluate a model."""
        return Evaluations(self.statements)

    def run_by(self, statement: int) -> int:
        """Return the index of the last statement that runs another one.

        The body of a function or a class is run by the last statement that uses its name. Any other
        statement is run by itself.
        """
        own, later = _defined(self.statements[statement][1]), self.statements[statement + 1 :]
        users = [i for i, (_, it) in enumerate(later, statement + 1) if own & _names(it)[0]]
        return self.run_by(users[-1]) if users else statement


def _as_taken(node: ast.stmt, changed: Collection[str] | None) -> ast.stmt:
    """Return an `if` statement without the branches that were not executed in a run.

    A branch was not executed if the run has changed none of the variables that the branch assigns.
    A run does not record names that begin with an underscore, so these are ignored.

    Args:
        changed: Names of the variables that the statement changed in the run. None if they are not
            known: then the statement is returned as it is.
    """
    if not isinstance(node, ast.If) or changed is None:
        return node

    def taken(body: list[ast.stmt]) -> list[ast.stmt]:
        assigned = {name for part in body for name in _names(part)[1] if not name.startswith("_")}
        if not assigned or not assigned.isdisjoint(changed):
            return [_as_taken(part, changed) for part in body]
        return [ast.copy_location(ast.Pass(), body[0])]

    branch = ast.If(test=node.test, body=taken(node.body), orelse=taken(node.orelse))
    return ast.copy_location(branch, node)


def _iterated(node: ast.expr) -> list[ast.expr]:
    """Return the parts of an expression whose elements a loop over it goes through.

    For example `models` and `names` for `zip(names, models.values())`.
    """
    match node:
        case ast.Call(func=ast.Attribute(attr="items" | "values" | "keys", value=value)):
            return _iterated(value)
        case ast.Call(func=function, args=arguments) if last_name(function) in _HANDS_ON:
            return [each for part in arguments for each in _iterated(part)]
    return [node]


def _elements(node: ast.expr) -> list[list[tuple[ast.expr | None, ast.expr]]]:
    """Return the elements of each list or dict that a loop goes through, each with its key.

    An element of a list is its own key.
    """
    found = list[list[tuple[ast.expr | None, ast.expr]]]()
    for part in _iterated(node):
        match part:
            case ast.Dict(keys=keys, values=values):
                found.append([*zip(keys, values, strict=True)])
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                found.append([(each, each) for each in parts])
    return found


def _words_of_key(key: ast.expr) -> list[str]:
    """Return the words that name an element: `svm` for `("SVM", SVC())`, and `svc` for `SVC()`.

    Empty if the element has no name.
    """
    match key:
        case ast.Tuple(elts=[first, *_]) | ast.List(elts=[first, *_]):
            return _words_of_key(first)
        case ast.Call(func=function):
            return words_of(last_name(function))
    return words_of(_text(key))


def _filled(loop: ast.For) -> set[str]:
    """Return the names of the dicts that a loop fills: `models` for `models[name] = model`."""
    return {
        part.value.id
        for part in ast.walk(loop)
        if isinstance(part, ast.Subscript)
        and isinstance(part.ctx, ast.Store)
        and isinstance(part.value, ast.Name)
    }


def _item(node: ast.stmt, source: str) -> ast.expr | None:
    """Return the code of the item that is the score, if a statement makes a dict with this item.

    None for other statements. The score does not depend on the dict's other items.

    Args:
        source: `Score.source`. It ends with the item's key, as in `expression: scores['val']`.
    """
    match node:
        case ast.Assign(value=ast.Dict(keys=keys, values=values)):
            for key, value in zip(keys, values, strict=True):
                if key is not None and source.endswith(f"[{ast.unparse(key)}]"):
                    return value
    return None


def _read_of(node: ast.stmt | ast.expr, others: Sequence[ast.AST]) -> Sequence[ast.stmt | ast.expr]:
    """Return the parts of a statement that other code reads.

    If a statement makes a dict and other code reads only some of its items by their keys, they are
    the values of these items. Else the whole statement is.
    """
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(keys=keys, values=values)):
            parts = [part for other in others for part in ast.walk(other)]
            named = [
                part.slice.value
                for part in parts
                if isinstance(part, ast.Subscript)
                and isinstance(part.value, ast.Name)
                and part.value.id == name
                and isinstance(part.slice, ast.Constant)
            ]
            loads = [
                part
                for part in parts
                if isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Load)
            ]
            if len(loads) == len(named):
                return [
                    value
                    for key, value in zip(keys, values, strict=True)
                    if not isinstance(key, ast.Constant) or key.value in named
                ]
    return [node]


def _lines(cell: int, node: ast.stmt | ast.expr) -> set[tuple[int, int]]:
    return {(cell, line) for line in range(node.lineno, (node.end_lineno or 0) + 1)}


def scores_of(code: Code, parameters: set[str]) -> list[Score]:
    """Return the scores that a notebook may have, the likeliest first.

    They are the names that the notebook reports. If it reports nothing, they are the variables with
    a metric in their name that it assigns outside of functions and never uses as a collection or a
    function. Scores that are logged, printed or displayed are known only after a run.

    Args:
        parameters: Names that are no scores, because they could be swept.
    """
    others = {*_no_numbers(code), *parameters}
    found = [*_reported(code)] or [*_assigned(code, others)]
    likely: dict[str, Score] = {}
    for it in sorted(found, key=lambda it: it.rank):
        likely.setdefault(it.name, it)
    return [*likely.values()]


def _metric(name: str) -> Metric | None:
    """Return the metric with which a name ends, as `loss` in `train_loss`. None if there is none.

    Words for the data or a mean, such as `val` and `mean` in `val_loss_mean`, are ignored.
    """
    words = [word for word in words_of(name) if word not in SPLITS and word not in _QUALIFIERS]
    found = metric_of(words)
    is_last = found is not None and metric_of(words[-len(found.name.split()) :]) is found
    return found if is_last else None


def _is_score(name: str) -> bool:
    return _metric(name) is not None


def _text(node: ast.AST | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _reported(code: Code) -> Iterator[Score]:
    """Yield the names in calls of `report`, `score`, scrapbook's `glue` and the old `record`."""
    dicts = (node for _, node in code.nodes if isinstance(node, ast.Dict))
    keys = [_text(key) for node in dicts for key in node.keys]
    for index, function, options, arguments in code.calls:
        names = list[str]()
        if re.search(r"\b(report|score)$", function):
            is_ours = function.startswith("sweeper.")
            names = [name for name in options if name and (is_ours or _is_score(name))]
            # For `report(step, **metrics)`, take the keys of all dicts in the code.
            names += filter(_is_score, keys if None in options else ())
        elif re.search(r"\b(glue|record)$", function):
            names = [*filter(_is_score, map(_text, arguments[:1]))]
        yield from (Score(name=it, how="reported", at=index) for it in names)


def _assigned(code: Code, others: set[str]) -> Iterator[Score]:
    evaluations = code.evaluations()
    for index, (_, node) in enumerate(code.statements):
        for name in sorted(set() if _defined(node) else _names(node)[1] - others):
            if _is_score(name):
                meaning = evaluations.of(ast.Name(id=name, ctx=ast.Load()))
                data = [word for word in meaning.words if word in SPLITS]
                yield Score(name=name, how="assigned", at=index, data=data)


def _no_numbers(code: Code) -> Iterator[str]:
    """Yield the names that are a collection, a text or a function somewhere in a notebook."""
    for _, node in code.nodes:
        used = [getattr(node, "iter", None), getattr(node, "func", None)]
        if isinstance(node, ast.Subscript | ast.Attribute):
            used = [node.value]
        elif isinstance(node, ast.Assign) and _HOLDS_NONE.match(ast.unparse(node.value)):
            used = [*node.targets]
        yield from {it.id for it in used if isinstance(it, ast.Name)} | _defined(node)


def _defined(node: ast.AST) -> set[str]:
    """Return the name of the function or class that a statement defines. Empty for others."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    return set()


def _read_by_definition(node: ast.AST) -> set[str]:
    """Return the names that the definition of a function or class reads, before any call.

    They are in decorators, in defaults, and in the body of a class.
    """
    found = set[str]()
    waiting: list[ast.AST] = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            defaults = [it for it in part.args.kw_defaults if it is not None]
            waiting += [*part.decorator_list, *part.args.defaults, *defaults]
            continue
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
            found.add(part.id)
        waiting += [] if isinstance(part, ast.Lambda) else ast.iter_child_nodes(part)
    return found


def _names(node: ast.AST) -> tuple[set[str], set[str]]:
    """Return the names that a statement reads before it assigns them, and those that it assigns.

    Local variables of functions and comprehensions do not count.
    """
    parts = [*ast.walk(node)]
    inner = [part.target for part in parts if isinstance(part, ast.comprehension)]
    own_names = set[str]().union(*map(names_in, inner))
    names = [it for it in parts if isinstance(it, ast.Name) and it.id not in own_names]
    # `total += loss` reads the total, too.
    added_to = [part.target for part in parts if isinstance(part, ast.AugAssign)]
    gets_value = {it: isinstance(it.ctx, ast.Store) and it not in added_to for it in names}
    begins = {node: (0, 0)}  # where the innermost statement around a node begins
    for part in parts:
        if isinstance(part, ast.stmt):
            begins[part] = part.lineno, part.col_offset
        begins |= dict.fromkeys(ast.iter_child_nodes(part), begins[part])
    names.sort(key=lambda it: (begins[it], gets_value[it]))
    first = {it.id: not gets_value[it] for it in reversed(names)}
    read = {name for name, is_read in first.items() if is_read}
    if own := _defined(node):
        local = {it.arg for it in parts if isinstance(it, ast.arg)}
        if isinstance(node, ast.FunctionDef) and not any(
            isinstance(it, ast.Global) for it in parts
        ):
            local |= {it.id for it in names if isinstance(it.ctx, ast.Store)}
        return read - local, own
    return read, {it.id for it in names if isinstance(it.ctx, ast.Store)}


def _only_iterated(node: ast.AST) -> set[str]:
    """Return the names that code uses only as what its loops go through, such as `loader`."""
    parts = [*ast.walk(node)]
    loops = [part.iter for part in parts if isinstance(part, ast.For | ast.comprehension)]
    inside = {part for loop in loops for part in ast.walk(loop)}
    others = (part.id for part in parts if isinstance(part, ast.Name) and part not in inside)
    return set[str]().union(*map(names_in, loops)).difference(others)


def _changed(node: ast.AST, imported: set[str]) -> set[str]:
    """Return the names whose objects a statement may change.

    They are those whose methods it calls, those that it passes to a function that trains, and all
    that a loop with gradient steps reads, except what it only iterates over.
    """
    text = "" if _defined(node) else ast.unparse(node)
    takes_steps = re.search(r"\.(backward|step|apply_gradients)\(", text)
    found = _names(node)[0] - _only_iterated(node) if takes_steps else set()
    for root, method, behind in re.findall(r"(?<![\w.])(\w+)((?:\.\w+)*)(?=\((.*))", text):
        found |= {root} if method else set()
        if (not method or root in imported) and _TRAINS.search(method or root):
            found |= {*re.findall(r"\w+", behind)}
    return found
