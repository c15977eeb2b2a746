"""Which scores a notebook has: those that it reports, else variables that are named like one."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..notebooks.cell_code import parse_or_none, plain_python
from ..notebooks.vocabulary import words_of
from .values import Kind, Variables, bodies

_SPLITS = {"val": 0, "valid": 0, "validation": 0, "dev": 0, "cv": 0, "test": 1, "eval": 1}
_TRAINED = {"train", "training", "pretrain"}
#: From what one would rather optimise to what one would rather not.
_GOOD = (
    "acc accuracy f1 auc auroc auprc map mcc kappa iou miou dice score r2 bleu rouge reward return "
    "returns ssim psnr precision recall ap top1 hit ndcg mrr silhouette likelihood top5"
).split()
_BAD = (
    "rmse mse mae mape logloss error err perplexity ppl nll wer cer fid elbo brier loss bce ce "
    "regret divergence distance cost time latency duration seconds"
).split()
_RANKS = {word: rank for rank, word in enumerate((*_GOOD, *_BAD))}
#: What is measured of the machine: it is a score only where the notebook reports it as one.
_CLOCKS = frozenset(
    "time times timer timestamp date clock latency duration seconds secs sec minutes elapsed "
    "runtime walltime eta".split()
)
#: What a score is compared with.
_MARKS = frozenset("baseline threshold cutoff dummy chance majority tolerance target".split())
_COUNTS = frozenset("n num number count counter counts idx index id total_steps".split())
_BESIDE = {"best", "final", "last", "mean", "avg", "average", "total", "epoch", "running", "macro"}


_MAY_BE_SCORES = (Kind.NUMBER, Kind.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The scores of a notebook, the one to optimise first.

    Attributes:
        names: of the scores; empty when none was found.
        how: how the notebook tells them, in words_of.
        series: whether it reports while it runs, so that a pruner has something to see.
    """

    names: Sequence[str]
    how: str
    series: bool


def direction(name: str) -> str:
    """`minimize` for what is named like a loss, else `maximize`."""
    return "minimize" if {*words_of(name)} & {*_BAD, "losses", "errors"} else "maximize"


def find_scores(cells: Sequence[str], parameters: Iterable[str]) -> Found:
    """The scores that a notebook's code has, without running it.

    Args:
        cells: sources of its code cells.
        parameters: names that are no scores, whatever they are called.
    """
    trees = _trees(cells)
    variables = Variables(trees)
    calls = _Calls(trees, variables)
    taken = {*parameters}
    told = [name for name in calls.names if name not in taken]
    told = [name for name in told if not _is_of_the_machine(name)] or told
    if told:
        return Found(names=_ranked(told), how="reported by the notebook", series=calls.series)
    if calls.passes_on:  # report(**metrics): their names are keys of some mapping
        keys = [name for tree in trees for name in _keys(tree) if _is_score(name)]
        if keys:
            names = _ranked(list(dict.fromkeys(keys)))
            return Found(names=names, how="reported by the notebook", series=calls.series)
    last_first = [name for tree in reversed(trees) for name in reversed(list(_globals(tree.body)))]
    likely = [
        name
        for name in dict.fromkeys(last_first)
        if name not in taken and _is_score(name) and variables.of(name) in _MAY_BE_SCORES
    ]
    return Found(names=_ranked(likely), how="a variable of the notebook", series=calls.series)


def compared_words(cells: Sequence[str], name: str) -> list[str]:
    """Words that a notebook compares a name with: `name == "sgd"`, `name in ("sgd", "adam")`."""
    found: list[str] = []
    for tree in _trees(cells):
        for node in ast.walk(tree):
            if not isinstance(node, ast.Compare):
                continue
            sides = [node.left, *node.comparators]
            if any(isinstance(side, ast.Name) and side.id == name for side in sides):
                found += [text for side in sides for text in _texts(side)]
    return list(dict.fromkeys(found))


def _texts(node: ast.expr) -> list[str]:
    parts = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return [p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]


def _trees(cells: Sequence[str]) -> list[ast.Module]:
    """The code of the cells that hold some."""
    trees = (parse_or_none(plain_python(source)) for source in cells)
    return [tree for tree in trees if tree is not None]


class _Calls:
    """Calls of `sweeper.report`, `sweeper.score`, scrapbook's `glue` and papermill's `record`.

    Attributes:
        names: what they tell, but for clocks, counters and what is no number.
    """

    def __init__(self, trees: Iterable[ast.Module], variables: Variables) -> None:
        self._told: dict[str, None] = {}
        self._variables = variables
        self.series = False
        self.passes_on = False
        nodes = [node for tree in trees for node in ast.walk(tree)]
        self._modules = {"sweeper"}
        self._functions: dict[str, str] = {}
        for node in nodes:
            if isinstance(node, ast.Import):
                self._modules |= {a.asname or a.name for a in node.names if a.name == "sweeper"}
            elif isinstance(node, ast.ImportFrom) and node.module in ("sweeper", "scrapbook"):
                self._functions |= {alias.asname or alias.name: alias.name for alias in node.names}
        for node in nodes:
            if isinstance(node, ast.Call):
                self._look(node)

    @property
    def names(self) -> list[str]:
        return list(self._told)

    def _look(self, call: ast.Call) -> None:
        what = self._what(call.func)
        if what in ("report", "score"):
            self.series |= what == "report"
            for option in call.keywords:
                if option.arg is None:
                    self.passes_on = True
                elif self._variables.kind(option.value) in _MAY_BE_SCORES:
                    self._told[option.arg] = None
        elif what in ("glue", "record") and len(call.args) > 1:
            for name in _texts(call.args[0]):
                kind = self._variables.kind(call.args[1])
                # These take anything: a figure or a table is as likely as a number.
                if kind is Kind.NUMBER or (kind is Kind.UNKNOWN and _is_score(name)):
                    self._told[name] = None

    def _what(self, called: ast.expr) -> str | None:
        if isinstance(called, ast.Name):
            return self._functions.get(called.id)
        if not isinstance(called, ast.Attribute) or not isinstance(called.value, ast.Name):
            return None
        if called.attr in ("report", "score"):
            return called.attr if called.value.id in self._modules else None
        return called.attr if called.value.id in ("sb", "scrapbook", "pm", "papermill") else None


def _keys(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            yield from (text for key in node.keys if key is not None for text in _texts(key))


def _globals(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Names that a cell's own statements assign, also inside loops; functions have their own."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        targets: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign | ast.AugAssign):
            targets = [statement.target]
        for target in targets:
            inside = (n for n in ast.walk(target) if isinstance(n, ast.Name))
            yield from (n.id for n in inside if isinstance(n.ctx, ast.Store))
        for inner in bodies(statement):
            yield from _globals(inner)


def _core(name: str) -> list[str]:
    """The words of a name without those that say of what, and which one."""
    return [w for w in _metric_words(name) if w not in {*_SPLITS, *_TRAINED, *_BESIDE}]


def _metric_words(name: str) -> list[str]:
    """`val_top1`, `f1`, `r2`: a number belongs to the word before it."""
    joined: list[str] = []
    for word in words_of(name):
        if word.isdigit() and joined and joined[-1] + word in _RANKS:
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _is_score(name: str) -> bool:
    core = _core(name)
    if not core or core[-1] not in _RANKS or _is_of_the_machine(name):
        return False
    is_some_map = core[-1] == "map" and len(core) > 1  # label_map, cost_map
    return not is_some_map and _MARKS.isdisjoint(words_of(name))


def _is_of_the_machine(name: str) -> bool:
    """Whether a name is that of a clock or a counter."""
    said = words_of(name)
    return not _CLOCKS.isdisjoint(said) or not _COUNTS.isdisjoint((said or [""])[:1])


def _ranked(names: Sequence[str]) -> list[str]:
    return sorted(names, key=_rank)  # the order among equals stays


def _rank(name: str) -> tuple[int, int]:
    said = _metric_words(name)
    split = next((_SPLITS[w] for w in said if w in _SPLITS), 3 if {*said} & _TRAINED else 2)
    core = _core(name)
    return split, _RANKS.get(core[-1], len(_GOOD)) if core else len(_RANKS)
