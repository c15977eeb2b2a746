"""Guess from a notebook's code which scores it has, and on which lines of code they depend."""

from __future__ import annotations

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ...notebook_code.calls import last_name
from ...notebook_code.own_training import own_nodes
from ...notebook_code.replacing import Cell
from .evaluations import AnyFunction, Evaluations, names_in
from .metrics import ORDER, SPLITS, Metric, metric_of, preference, split_of, words_of

NOTHING: Mapping[tuple[int, int], Collection[str]] = {}
#: Direction in a draft that makes a person choose one, because a sweep refuses it.
UNKNOWN_DIRECTION = "minimize or maximize"
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


class Source(StrEnum):
    """How a notebook gives a score."""

    #: In a call such as `sweeper.report(epoch, val_loss=…)`.
    REPORTED = "reported"
    #: By an assignment to a variable. The notebook has not been run, so its value is not known.
    ASSIGNED = "assigned"
    #: In the log of a library, such as the history of Keras.
    LOGGED = "logged"
    #: As the value of a variable when the run ended.
    VARIABLE = "variable"
    #: As a part of such a value: an item, or the mean of an array.
    PART = "part"
    #: As the result that a cell displays.
    SHOWN = "shown"
    #: In printed text.
    PRINTED = "printed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A score that a notebook may have.

    Attributes:
        name: Name of the score in the parameters file.
        source: How the notebook gives the score.
        at: Index in `Code.statements` of the statement that computes or prints the score.
        key: Key of the score's entry under `scores` in the parameters file: `expression` or
            `pattern`. Empty if the score needs no entry, because trials find it by its name.
        text: The value of that key: the expression or the pattern.
        direction: Direction in which the score is better. None if it is not known.
        is_of_batches: Whether the score is a sum over batches or one of the last batch, so that the
            batch size changes it even if the model stays the same.
        is_loss: Whether the training minimises the score, as far as is known.
        is_called: Whether each trial has to call functions of the notebook again to compute it.
        data: Words of the data on which the code computes the score, if it shows them.
    """

    name: str
    source: Source
    at: int
    key: str = ""
    text: str = ""
    direction: str | None = None
    is_of_batches: bool = False
    is_loss: bool = False
    is_called: bool = False
    data: Sequence[str] = ()

    @property
    def entry(self) -> str:
        """The score's entry under `scores` in the parameters file, as YAML."""
        quoted = self.text.replace("'", "''")
        return f"{{{self.key}: '{quoted}'}}"

    @property
    def remark(self) -> str:
        """Text about the score for a comment in the drafted parameters file."""
        return self.source


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
            (number, _as_taken(node, changes.get((number, node.lineno))))
            for number, source in enumerate(cells, 1)
            for node in Cell(number, source).tree.body
        ]
        self.nodes = [
            (index, node)
            for index, (_, statement) in enumerate(self.statements)
            for node in ast.walk(statement)
        ]
        #: Calls: index of the statement, function, options and arguments.
        self.calls = list[tuple[int, str, dict[str | None, ast.expr], list[ast.expr]]]()
        self.functions: dict[str, AnyFunction] = {}
        imported, assigned = set[str](), set[str]()
        for index, node in self.nodes:
            match node:
                case ast.Call(func=function, args=arguments, keywords=keywords):
                    options = {option.arg: option.value for option in keywords}
                    self.calls.append((index, ast.unparse(function), options, arguments))
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self.functions[node.name] = node
                case ast.alias(name=name, asname=other):
                    imported.add((other or name).partition(".")[0])
                case ast.Name(id=name, ctx=ast.Store()):
                    assigned.add(name)
        #: Names of imported objects, without names that the code also assigns.
        self.imported = imported - assigned
        #: Functions and classes by name, each with the index of its statement.
        self._definitions: dict[str, list[tuple[int, ast.stmt]]] = defaultdict(list)
        for index, (_, statement) in enumerate(self.statements):
            for name in _defined(statement):
                self._definitions[name].append((index, statement))

    def lines(self, score: Score) -> set[tuple[int, int]]:
        """Return the cells and lines of the code on which a score depends.

        The statements are followed backwards from the one that gives the score. A statement counts
        if it assigns a name that a later statement needs, or changes the name's object.
        """
        last = self.run_by(score.at)
        passed_by = self.passed_by(score)
        needed, found = set[str](), list[tuple[int, ast.stmt | ast.expr]]()
        for index in range(last, -1, -1):
            cell, node = self.statements[index]
            item = _item(node, score.text) if index == last else None
            if item is not None:
                needed = self._with_definitions(_names(item)[0], index)
                found.append((cell, item))
                continue
            read, stored = _names(node)
            if index != last and not needed & (stored | self._changed(index)):
                continue
            if others := {part for at, part in passed_by if at == index}:
                kept = own_nodes([node], others)
                read &= {part.id for part in kept if isinstance(part, ast.Name)}
            if _defined(node):  # the body of a function reads its names only when it is called
                read = _read_by_definition(node)
            needed = (needed - (stored - read)) | self._with_definitions(read, index)
            found.append((cell, node))
        nodes = [node for _, node in found]
        return {
            (cell, line)
            for cell, node in found
            for part in _read_of(node, nodes)
            for line in range(part.lineno, (part.end_lineno or 0) + 1)
        }

    def passed_by(self, score: Score) -> list[tuple[int, ast.expr]]:
        """Return the code of the models that a score does not depend on, in a loop over models.

        The score belongs to the model whose name it contains, as in `results_svm`, or else to the
        loop's last model.

        Returns:
            For each piece of code of another model, the index of the statement that contains it,
            and the code. Empty without such a loop.
        """
        last = self.run_by(score.at)
        if not isinstance(self.statements[last][1], ast.For):
            return []
        lists = self._gone_through(last)
        said = f"_{'_'.join(words_of(score.name))}_"
        longest, own = 0, -1  # length and position of the longest model name in the score's name
        for elements in lists:
            for position, (_, key, _) in enumerate(elements):
                name = "_".join(_words_of_key(key))
                if len(name) > longest and f"_{name}_" in said:
                    longest, own = len(name), position
        found = list[tuple[int, ast.expr]]()
        for elements in lists:
            parts = [part for _, _, element in elements for part in ast.walk(element)]
            if any(isinstance(part, ast.Call | ast.Name) for part in parts):
                of_score = elements[min(own, len(elements) - 1)]
                found += [(each[0], each[2]) for each in elements if each is not of_score]
        return found

    def _gone_through(self, last: int) -> list[list[_Element]]:
        """Return the elements of each list or dict that a loop iterates over.

        The list or dict may be a literal in the loop, or have been made before: by a literal, by
        `append`, or by an earlier loop.

        Args:
            last: Index of the loop's statement.
        """
        names, appended = set[str](), list[_Element]()
        lists = [appended]
        for index in range(last, -1, -1):
            match self.statements[index][1]:
                case ast.For(iter=value) as loop if index == last or names & _filled(loop):
                    names |= {part.id for part in _iterated(value) if isinstance(part, ast.Name)}
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in names:
                    pass
                case ast.Expr(
                    value=ast.Call(
                        func=ast.Attribute(attr="append", value=ast.Name(id=name)), args=[added]
                    )
                ) if name in names:
                    appended.insert(0, (index, added, added))
                    continue
                case _:
                    continue
            lists += _elements(value, index)
        return [elements for elements in lists if elements]

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
        seen = self.changed_in_run(index)
        if seen is not None:
            return {*seen}
        node = self.statements[index][1]
        fixed = {*self._definitions, *vars(builtins), *self.imported}
        return _changed(node, self.imported) - fixed

    def _with_definitions(self, names: set[str], index: int) -> set[str]:
        """Return names, and the names that functions and classes among them read when used.

        Args:
            names: Names that a statement reads.
            index: Index of this statement. Of several definitions of a name, the last one before
                the statement counts.
        """
        found = set[str]()
        waiting = [*names - self.imported]
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            found.add(name)
            definitions = self._definitions.get(name, [])
            before = [node for at, node in definitions if at < index]
            if before or definitions:
                used = before[-1] if before else definitions[0][1]
                waiting += _names(used)[0] - self.imported
        return found

    def run_by(self, statement: int) -> int:
        """Return the index of the top-level statement in which the code of a statement runs.

        The code of a function or class runs in the last statement that uses its name. For other
        statements, and for names that nothing uses, the result is the given index.

        Args:
            statement: Index of the statement with the code.
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
    """Return the collections that a loop over an expression iterates over.

    For example `names` and `models` for `zip(names, models.values())`.
    """
    match node:
        case ast.Call(func=ast.Attribute(attr="items" | "values" | "keys", value=value)):
            return _iterated(value)
        case ast.Call(func=function, args=arguments) if last_name(function) in _HANDS_ON:
            return [each for part in arguments for each in _iterated(part)]
    return [node]


def _elements(node: ast.expr, index: int) -> list[list[_Element]]:
    """Return the elements of each list, tuple or dict literal that a loop iterates over.

    Each element has the index of its statement, its key and its value. In a list or tuple, the key
    is the value itself.

    Args:
        node: The loop's expression after `in`, or what the code assigns to a variable in it.
        index: Index of the statement with this code.
    """
    found = list[list[_Element]]()
    for part in _iterated(node):
        match part:
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
                found.append([(index, key, value) for key, value in pairs])
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                found.append([(index, element, element) for element in elements])
    return found


def _words_of_key(key: ast.expr | None) -> list[str]:
    """Return the words of a model's name in a list: `svm` for `("SVM", SVC())` and for `svm`.

    Empty if the model has no name.

    Args:
        key: The model's key in a dict, or the element of a list.
    """
    match key:
        case ast.Tuple(elts=[first, *_]) | ast.List(elts=[first, *_]):
            return _words_of_key(first)
        case ast.Call(func=function):
            return words_of(last_name(function))
        case ast.Name(id=name):
            return words_of(name)
    return words_of(_text(key))


def _filled(loop: ast.For) -> set[str]:
    """Return the names of the dicts that a loop fills: `models` for `models[name] = model`."""
    found = set[str]()
    for part in ast.walk(loop):
        match part:
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store()):
                found.add(name)
    return found


def _item(node: ast.stmt, expression: str) -> ast.expr | None:
    """Return the code of the dict item that is the score, if a statement assigns the dict.

    For the score `scores['val']` and the statement `scores = {"val": x, "n": y}`, return `x`: the
    score does not depend on the dict's other items. None if the statement assigns no such dict.

    Args:
        expression: The score's expression. It ends with the item's key, as in `scores['val']`.
    """
    match node:
        case ast.Assign(value=ast.Dict(keys=keys, values=values)):
            for key, value in zip(keys, values, strict=True):
                if key is not None and expression.endswith(f"[{ast.unparse(key)}]"):
                    return value
    return None


def _read_of(node: ast.stmt | ast.expr, others: Sequence[ast.AST]) -> Sequence[ast.stmt | ast.expr]:
    """Return the whole statement, or only those values of a dict literal that other code reads.

    Values are returned if the statement assigns a dict that other code reads only by literal keys,
    as in `d["a"]`. They are the values with these keys, and those whose own key is no literal.

    Args:
        node: The statement.
        others: All code in which the dict may be read. It may contain the statement itself.
    """
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(keys=keys, values=values)):
            n_read, read_keys = 0, list[object]()
            for part in (part for other in others for part in ast.walk(other)):
                match part:
                    case ast.Subscript(value=ast.Name(id=own), slice=ast.Constant(value=key)):
                        read_keys += [key] if own == name else []
                    case ast.Name(id=own, ctx=ast.Load()):
                        n_read += own == name
            if n_read == len(read_keys):
                return [
                    value
                    for key, value in zip(keys, values, strict=True)
                    if not isinstance(key, ast.Constant) or key.value in read_keys
                ]
    return [node]


def scores_of(code: Code, parameters: set[str]) -> list[Score]:
    """Return the scores that a notebook may have, the likeliest first.

    They are the names that the notebook reports. If it reports nothing, they are the variables with
    a metric in their name that it assigns outside of functions and never uses as a collection or a
    function. Scores that are logged, printed or displayed are known only after a run.

    Args:
        parameters: Names that are no scores, because they could be swept.
    """
    others = {*_no_numbers(code), *parameters}
    found = [*reported_in(code)] or [*_assigned(code, others)]
    likely: dict[str, Score] = {}
    for score in sorted(found, key=_rank):
        likely.setdefault(score.name, score)
    return [*likely.values()]


def _rank(score: Score) -> tuple[object, ...]:
    """Return a sort key for a guessed score. The likeliest score has the smallest key."""
    words, metric = words_of(score.name), _metric(score.name)
    order = ORDER[split_of([*words, *score.data])]
    kind = preference(metric, score.direction)
    return metric is None, order, kind, "best" in words, -score.at


def _guessed(name: str, source: Source, at: int, data: Sequence[str] = ()) -> Score:
    metric = _metric(name)
    direction = metric.direction if metric else None
    return Score(name=name, source=source, at=at, direction=direction, data=data)


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


def reported_in(code: Code) -> Iterator[Score]:
    """Yield scores for the names in calls of `report`, `score`, `glue` and `record`.

    `glue` is a function of scrapbook, and `record` an old one of papermill.
    """
    dicts = [node for _, node in code.nodes if isinstance(node, ast.Dict)]
    keys = [_text(key) for node in dicts for key in node.keys]
    for index, function, options, arguments in code.calls:
        names = list[str]()
        if re.search(r"\b(report|score)$", function):
            is_ours = function.startswith("sweeper.")
            names = [name for name in options if name and (is_ours or _is_score(name))]
            # For `report(step, **metrics)`, take the keys of all dicts in the code.
            names += filter(_is_score, keys if None in options else ())
        elif re.search(r"\b(glue|record)$", function):
            names += filter(_is_score, map(_text, arguments[:1]))
        for name in names:
            yield _guessed(name, Source.REPORTED, index)


def _assigned(code: Code, others: set[str]) -> Iterator[Score]:
    evaluations = Evaluations(code.statements)
    for index, (_, node) in enumerate(code.statements):
        given = set() if _defined(node) else _names(node)[1]
        for name in sorted(given - others):
            if _is_score(name):
                meaning = evaluations.of(ast.Name(id=name, ctx=ast.Load()))
                data = [word for word in meaning.words if word in SPLITS]
                yield _guessed(name, Source.ASSIGNED, index, data)


def _no_numbers(code: Code) -> Iterator[str]:
    """Yield the names that are a collection, a text or a function somewhere in a notebook."""
    for _, node in code.nodes:
        yield from _defined(node)
        match node:
            case (
                ast.Subscript(value=ast.Name(id=name))
                | ast.Attribute(value=ast.Name(id=name))
                | ast.Call(func=ast.Name(id=name))
                | ast.For(iter=ast.Name(id=name))
                | ast.comprehension(iter=ast.Name(id=name))
            ):
                yield name
            case ast.Assign(value=value) if _HOLDS_NONE.match(ast.unparse(value)):
                yield from names_in(node, ast.Store)


def _defined(node: ast.AST) -> set[str]:
    """Return the name of the function or class that a statement defines. Empty for others."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    return set()


def _read_by_definition(node: ast.AST) -> set[str]:
    """Return the names that the definition of a function or class reads, before any call.

    For a function, they are in its decorators and defaults. For a class, they are in all its code.
    """
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return _names(node)[0]
    defaults = [part for part in node.args.kw_defaults if part is not None]
    parts = [*node.decorator_list, *node.args.defaults, *defaults]
    return set[str]().union(*map(names_in, parts))


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
    """Return the names that code only iterates over, such as `loader` in `for x in loader`."""
    parts = [*ast.walk(node)]
    loops = [part.iter for part in parts if isinstance(part, ast.For | ast.comprehension)]
    inside = {part for loop in loops for part in ast.walk(loop)}
    others = (part.id for part in parts if isinstance(part, ast.Name) and part not in inside)
    return set[str]().union(*map(names_in, loops)).difference(others)


def _changed(node: ast.AST, imported: set[str]) -> set[str]:
    """Return the names whose objects a statement may change.

    They are names whose methods it calls, and names that it passes to a function that trains. If it
    takes gradient steps, they are also all names that it reads, except those that it only iterates
    over.
    """
    text = "" if _defined(node) else ast.unparse(node)
    takes_steps = re.search(r"\.(backward|step|apply_gradients)\(", text)
    found = _names(node)[0] - _only_iterated(node) if takes_steps else set()
    for root, method, behind in re.findall(r"(?<![\w.])(\w+)((?:\.\w+)*)(?=\((.*))", text):
        found |= {root} if method else set()
        if (not method or root in imported) and _TRAINS.search(method or root):
            found |= {*re.findall(r"\w+", behind)}
    return found
