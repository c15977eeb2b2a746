"""Guesses of a notebook's scores from its code, and of the lines that they depend on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

#: The words of scores, and those that say of which data or of which of several values.
_GAIN = frozenset(
    "acc accuracy auc auroc f1 score r2 iou miou dice precision recall reward bleu psnr ssim map "
    "kappa likelihood top1 top5".split()
)
_LOSS = frozenset(
    "loss err error rmse mse mae mape nll perplexity ppl brier regret wer fid cost residual "
    "distance".split()
)
_SPLITS = {"val": 0, "valid": 0, "validation": 0, "dev": 0, "cv": 0, "cross": 0, "oob": 0}
_SPLITS |= {"test": 1, "eval": 1, "train": 3, "training": 3}
_QUALIFIERS = frozenset("best final last mean avg average total epoch running".split())
_WORD = "|".join(_GAIN | _LOSS)
#: In the code of a call: printed words with a score's among them, and a value behind them.
_PRINTED = re.compile(
    rf"(?<![\w%}}])((?:[^\W\d_]+[ _]+){{0,2}})({_WORD})((?:[ _]+[^\W_]+){{0,3}})(?![^\W_])"
    r"""[^\w{%]{0,4}(?:\{|%|['"](?:,| \+))""",
    re.IGNORECASE,
)
_NUMBER = r"\D{0,12}?([-+]?(?:\.?\d[\d.]*(?:e[-+]?\d+)?|nan|inf))"
#: Calls that have a score's word in them, and another result.
_SHOWS_NONE = re.compile(r"^print\(|plot|\.(?:map|compile|add|fit|add_loss)\(")
#: A list, a mapping, a text, and what Keras returns of all epochs.
_HOLDS_NONE = re.compile(r"[\[{']|.*\.history\[")
#: The functions that may change the objects that they are given.
_TRAINS = re.compile("train|fit|learn|optim", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A score that a notebook may have.

    Attributes:
        how: the notebook gives it: `reported`, `logged`, `assigned`, `printed` or `shown`.
        at: the place of the statement that does, in `Code`.
        source: the key under `scores` and its value; empty for none.
        better: what is better; empty for what its words say.
    """

    name: str
    how: str
    at: int
    source: str = ""
    better: str = ""

    @property
    def entry(self) -> str:
        """Its entry under `scores`, as YAML."""
        key, _, text = self.source.partition(": ")
        return f"{{{key}: '{text.replace(chr(39), chr(39) * 2)}'}}"

    @property
    def direction(self) -> str:
        """What is better."""
        if self.better:
            return self.better
        is_loss, is_negated = _measure(self.name) in _LOSS, ": -" in self.source
        return "minimize" if is_loss != is_negated else "maximize"

    @property
    def rank(self) -> tuple[object, ...]:
        """The likeliest first."""
        words, measure = words_of(f"{self.name} {self.source}"), _measure(self.name)
        split = min((_SPLITS[word] for word in words if word in _SPLITS), default=2)
        kind = (measure in _LOSS) + (measure == "loss")
        return not _is_score(self.name), split, kind, "best" in words, -self.at


class Code:
    """The code of a notebook: its statements outside of functions, loops and branches.

    Args:
        cells: the sources of the code cells.
    """

    def __init__(self, cells: Sequence[str]) -> None:
        from ..notebooks.cell_code import parse_or_none, plain_python

        trees = [parse_or_none(plain_python(cell)) or ast.Module([], []) for cell in cells]
        self.ends = {tree.body[-1] for tree in trees if tree.body}
        self.statements = [(n, node) for n, tree in enumerate(trees, 1) for node in tree.body]
        self.nodes = [(i, it) for i, (_, top) in enumerate(self.statements) for it in ast.walk(top)]
        self.calls = [
            (i, ast.unparse(it.func), {option.arg: option.value for option in it.keywords}, it.args)
            for i, it in self.nodes
            if isinstance(it, ast.Call)
        ]
        names = (it.asname or it.name for _, it in self.nodes if isinstance(it, ast.alias))
        self.imported = {name.partition(".")[0] for name in names}
        #: The texts in the code, each with the place of its statement.
        self.texts = [
            (i, it.value)
            for i, it in self.nodes
            if isinstance(it, ast.Constant) and isinstance(it.value, str)
        ]
        self.functions = {it.name: it for _, it in self.nodes if isinstance(it, ast.FunctionDef)}

    def lines(self, statement: int) -> set[tuple[int, int]]:
        """The cells and lines from which a statement's result follows, by the names in them."""
        imported = self.imported
        needed, found = set[str](), set[tuple[int, int]]()
        last = self.run_by(statement)
        for index in range(last, -1, -1):
            cell, node = self.statements[index]
            read, stored = _names(node)
            if index == last or needed & (stored | _changed(node, imported)):
                needed = (needed - (stored - read)) | (read - imported)
                found |= {(cell, it) for it in range(node.lineno, (node.end_lineno or 0) + 1)}
        return found

    def run_by(self, statement: int) -> int:
        """The last statement that runs another one: that calls it, where it defines a function."""
        own, later = _defined(self.statements[statement][1]), self.statements[statement + 1 :]
        users = [i for i, (_, it) in enumerate(later, statement + 1) if own & _names(it)[0]]
        return self.run_by(users[-1]) if users else statement


def words_of(name: str) -> list[str]:
    """The words of a name, in small letters."""
    return re.findall(r"[a-z]+\d*", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())


def scores_of(code: Code, parameters: set[str]) -> list[Score]:
    """The scores that a notebook may have, the likeliest first.

    These are the names that it reports; or else those with a score's word that a library logs, that
    it assigns outside of functions and never uses as a collection or a function, that it prints, or
    that Jupyter shows below a cell.
    """
    others = {*_no_numbers(code), *parameters}
    found = [*_reported(code)] or [*_logged(code), *_assigned(code, others), *_displayed(code)]
    likely: dict[str, Score] = {}
    for it in sorted(found, key=lambda it: it.rank):
        if it.name not in likely or (likely[it.name].source and not it.source):
            likely[it.name] = it  # at the same place
    return [*likely.values()]


def _measure(name: str) -> str:
    """The word of a name that says what it measures: `loss` of `val_loss_mean`."""
    words = [w for w in words_of(name) if w not in _SPLITS and w not in _QUALIFIERS]
    return words[-1] if words else ""


def _is_score(name: str) -> bool:
    return _measure(name) in _GAIN | _LOSS


def _text(node: ast.AST | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _reported(code: Code) -> Iterator[Score]:
    """The names in calls of sweeper's `report` and `score`, scrapbook's `glue`, old `record`."""
    dicts = (node for _, node in code.nodes if isinstance(node, ast.Dict))
    keys = [_text(key) for node in dicts for key in node.keys]
    for index, function, options, arguments in code.calls:
        names = list[str]()
        if re.search(r"\b(report|score)$", function):
            is_ours = function.startswith("sweeper.")
            names = [name for name in options if name and (is_ours or _is_score(name))]
            names += filter(_is_score, keys if None in options else ())  # report(step, **metrics)
        elif re.search(r"\b(glue|record)$", function):
            names = [*filter(_is_score, map(_text, arguments[:1]))]
        yield from (Score(name=it, how="reported", at=index) for it in names)


def _logged(code: Code) -> Iterator[Score]:
    """What Keras logs of `fit`, and what Lightning is told to log or to watch."""
    fits = [index for index, function, _, _ in code.calls if function.endswith(".fit")]
    compiled = [(i, options) for i, called, options, _ in code.calls if called.endswith(".compile")]
    for index, function, options, arguments in code.calls:
        names, at = [_text(options.get("monitor"))], max(fits, default=index)
        if function == "self.log":
            names += map(_text, arguments[:1])
        elif compiled and function.endswith(".fit"):
            metrics = [its.get("metrics") for i, its in compiled if i <= index][-1:]
            watched = [_text(it) for node in metrics if node for it in ast.walk(node)]
            before = "val_" if {"validation_data", "validation_split"} & {*options} else ""
            names, at = [f"{before}{it}" for it in [*watched, "loss"] if it], index
        yield from (Score(name=it, how="logged", at=at) for it in names if _is_score(it))


def _assigned(code: Code, others: set[str]) -> Iterator[Score]:
    for index, (_, node) in enumerate(code.statements):
        for name in sorted(set() if _defined(node) else _names(node)[1] - others):
            yield from [Score(name=name, how="assigned", at=index)] * _is_score(name)


def _no_numbers(code: Code) -> Iterator[str]:
    """The names that are a collection, a text or a function somewhere in a notebook."""
    for _, node in code.nodes:
        used = [getattr(node, "iter", None), getattr(node, "func", None)]
        if isinstance(node, ast.Subscript | ast.Attribute):
            used = [node.value]
        elif isinstance(node, ast.Assign) and _HOLDS_NONE.match(ast.unparse(node.value)):
            used = [*node.targets]
        yield from {it.id for it in used if isinstance(it, ast.Name)} | _defined(node)


def _displayed(code: Code) -> Iterator[Score]:
    """What is printed behind a score's word, and calls with one that end a cell."""
    for index, call in ((i, it) for i, it in code.nodes if isinstance(it, ast.Call)):
        text = re.sub(r"\\[ntr]", " ", ast.unparse(call))
        for before, measure, after in _PRINTED.findall(text) if text.startswith("print(") else ():
            split = [word for word in words_of(after) if word in _SPLITS]
            name = "_".join([*words_of(before), measure.lower(), *split])
            pattern = re.sub(r"(\\ )+", r"\\s+", re.escape(before + measure + after)) + _NUMBER
            yield Score(name=name, how="printed", at=index, source=f"pattern: {pattern}")
    later = set[str]()
    for index, (_, statement) in reversed([*enumerate(code.statements)]):
        text = ast.unparse(statement) if isinstance(statement, ast.Expr) else "print("
        read, stored = _names(statement)
        if statement in code.ends and not _SHOWS_NONE.search(text) and not read & later:
            names = re.findall(r"(\w+?)_?(?:\(|$|s?\.mean\()", text)
            text += ".mean()" * text.startswith(("cross_val_score(", "-cross_val_score("))
            for name in [*filter(_is_score, names)][:1]:
                yield Score(name=name, how="shown", at=index, source=f"expression: {text}")
        later |= stored


def _defined(node: ast.AST) -> set[str]:
    """The name of the function or class that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    return set()


def _names(node: ast.AST) -> tuple[set[str], set[str]]:
    """The names that a statement reads before it gives them a value, and those that it gives one.

    What a function assigns is its own."""
    names = [it for it in ast.walk(node) if isinstance(it, ast.Name)]
    names.sort(key=lambda it: (it.lineno, isinstance(it.ctx, ast.Store)))
    first = {it.id: isinstance(it.ctx, ast.Load) for it in reversed(names)}
    read = {name for name, is_read in first.items() if is_read}
    if own := _defined(node):
        return read - {it.arg for it in ast.walk(node) if isinstance(it, ast.arg)}, own
    return read, {it.id for it in names if isinstance(it.ctx, ast.Store)}


def _changed(node: ast.AST, imported: set[str]) -> set[str]:
    """The names whose objects a statement may change: those whose methods it calls, and those that
    it hands to a function that trains."""
    found = set[str]()
    text = "" if _defined(node) else ast.unparse(node)
    for root, method, behind in re.findall(r"(?<![\w.])(\w+)((?:\.\w+)*)(?=\((.*))", text):
        found |= {root} if method else set()
        if (not method or root in imported) and _TRAINS.search(method or root):
            found |= {*re.findall(r"\w+", behind)}
    return found
