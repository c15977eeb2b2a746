"""Find the scores of a notebook in its code: reported ones, else variables named like a score.

Only this module knows how people name scores.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..notebooks.cell_code import parse_or_none, plain_python
from ..notebooks.vocabulary import words_of
from .values import Kind, Variables, bodies

_SPLITS = {"val": 0, "valid": 0, "validation": 0, "dev": 0, "cv": 0, "test": 1, "eval": 1}
_TRAINED = {"train", "training", "pretrain"}
#: Words of scores to maximise and to minimise, the most suitable as an objective first.
_GOOD = (
    "acc accuracy f1 auc auroc auprc map mcc kappa iou miou dice score r2 bleu rouge reward return "
    "returns ssim psnr precision recall ap top1 hit ndcg mrr silhouette likelihood top5"
).split()
_BAD = (
    "rmse mse mae mape logloss error err perplexity ppl nll wer cer fid elbo brier loss bce ce "
    "regret divergence distance cost time latency duration seconds"
).split()
_RANKS = {word: rank for rank, word in enumerate((*_GOOD, *_BAD))}
#: Words of times: a score only where the notebook reports nothing else.
_CLOCKS = frozenset(
    "time times timer timestamp date clock latency duration seconds secs sec minutes elapsed "
    "runtime walltime eta".split()
)
#: Words of values with which a score is compared.
_REFERENCES = frozenset("baseline threshold cutoff dummy chance majority tolerance target".split())
#: First words of counters and identifiers.
_COUNTS = frozenset("n num number count counter counts idx index id total_steps".split())
#: Words for one of several values of a score.
_QUALIFIERS = frozenset("best final last mean avg average total epoch running macro".split())
_MAY_BE_SCORES = (Kind.NUMBER, Kind.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundScores:
    """The scores of a notebook.

    Attributes:
        names: their names, the most suitable objective first; empty where none was found.
        origin: where they come from, in words.
        has_series: whether the notebook reports while it runs, as a pruner needs.
    """

    names: Sequence[str]
    origin: str
    has_series: bool


def direction(name: str) -> str:
    """Return `minimize` for a name like that of a loss, else `maximize`."""
    return "minimize" if {*words_of(name)} & {*_BAD, "losses", "errors"} else "maximize"


def find_scores(cells: Sequence[str], parameters: Iterable[str]) -> FoundScores:
    """Find the scores in a notebook's code.

    Args:
        cells: the sources of its code cells.
        parameters: the names of the parameters cell, which are not scores.
    """
    trees = _trees(cells)
    variables = Variables(trees)
    calls = _Calls(trees, variables)
    taken = {*parameters}
    reported = [name for name in calls.names if name not in taken]
    reported = [name for name in reported if not _is_clock_or_counter(name)] or reported
    origin = "reported by the notebook"
    if reported:
        return FoundScores(names=_ranked(reported), origin=origin, has_series=calls.has_series)
    if calls.has_unpacking:  # report(**metrics): the names are keys of some mapping
        keys = [name for tree in trees for name in _keys(tree) if _is_score(name)]
        if keys:
            names = _ranked(list(dict.fromkeys(keys)))
            return FoundScores(names=names, origin=origin, has_series=calls.has_series)
    last_first = [name for tree in reversed(trees) for name in reversed(list(_globals(tree.body)))]
    candidates = [
        name
        for name in dict.fromkeys(last_first)
        if name not in taken and _is_score(name) and variables.of(name) in _MAY_BE_SCORES
    ]
    return FoundScores(
        names=_ranked(candidates),
        origin="a variable of the notebook",
        has_series=calls.has_series,
    )


def compared_words(cells: Sequence[str], name: str) -> list[str]:
    """List the texts in comparisons with a name: `name == "sgd"`, `name in ("sgd", "adam")`."""
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
    """Parse the cells that are Python."""
    trees = (parse_or_none(plain_python(source)) for source in cells)
    return [tree for tree in trees if tree is not None]


class _Calls:
    """Calls of `sweeper.report`, `sweeper.score`, scrapbook's `glue` and papermill's `record`.

    Attributes:
        names: the names that they report, without values that are not numbers.
        has_series: whether there is a call of `report`.
        has_unpacking: whether a call unpacks a mapping, as in `report(step, **metrics)`.
    """

    def __init__(self, trees: Iterable[ast.Module], variables: Variables) -> None:
        self._names: dict[str, None] = {}
        self._variables = variables
        self.has_series = False
        self.has_unpacking = False
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
        return list(self._names)

    def _look(self, call: ast.Call) -> None:
        function = self._function_of(call.func)
        if function in ("report", "score"):
            self.has_series |= function == "report"
            for option in call.keywords:
                if option.arg is None:
                    self.has_unpacking = True
                elif self._variables.kind(option.value) in _MAY_BE_SCORES:
                    self._names[option.arg] = None
        elif function in ("glue", "record") and len(call.args) > 1:
            for name in _texts(call.args[0]):
                kind = self._variables.kind(call.args[1])
                # `glue` and `record` take any value, also figures and tables.
                if kind is Kind.NUMBER or (kind is Kind.UNKNOWN and _is_score(name)):
                    self._names[name] = None

    def _function_of(self, called: ast.expr) -> str | None:
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
    """List the names that statements assign at the top level, also inside loops and conditions."""
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
    """The words of a name without those for the data split and for one of several values."""
    return [w for w in _metric_words(name) if w not in {*_SPLITS, *_TRAINED, *_QUALIFIERS}]


def _metric_words(name: str) -> list[str]:
    """The words of a name, with numbers joined to known words: `val_top1`, `f1`, `r2`."""
    joined: list[str] = []
    for word in words_of(name):
        if word.isdigit() and joined and joined[-1] + word in _RANKS:
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _is_score(name: str) -> bool:
    core = _core(name)
    if not core or core[-1] not in _RANKS or _is_clock_or_counter(name):
        return False
    is_mapping = core[-1] == "map" and len(core) > 1  # label_map, cost_map
    return not is_mapping and _REFERENCES.isdisjoint(words_of(name))


def _is_clock_or_counter(name: str) -> bool:
    """Whether a name is that of a time, a counter or an identifier."""
    words = words_of(name)
    return not _CLOCKS.isdisjoint(words) or not _COUNTS.isdisjoint(words[:1])


def _ranked(names: Sequence[str]) -> list[str]:
    return sorted(names, key=_rank)  # a stable sort keeps the order of equal ranks


def _rank(name: str) -> tuple[int, int]:
    words = _metric_words(name)
    split = next((_SPLITS[w] for w in words if w in _SPLITS), 3 if {*words} & _TRAINED else 2)
    core = _core(name)
    return split, _RANKS.get(core[-1], len(_GOOD)) if core else len(_RANKS)
