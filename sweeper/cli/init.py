"""The commands `init` and `schema`: a first parameters file for a notebook, and the file's schema.

A draft is guessed from the notebook's code, which is not run.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .codes import OK

if TYPE_CHECKING:
    from ..notebooks.research import ResearchNotebook

#: A sweep over a seed, a budget, the data or the machine finds nothing about the model.
_NOT_SWEPT = frozenset(
    "seed state run epoch epochs step steps iter iters iteration iterations rounds patience time "
    "samples classes fold folds split splits test data dataset worker workers job jobs thread "
    "threads gpu gpus device rank path dir file url port verbose debug log every interval save "
    "figsize dpi version".split()
)
#: The words of scores, and those that say of which data or of which of several values.
_GAIN = frozenset(
    "acc accuracy auc auroc f1 score r2 iou miou dice precision recall reward bleu psnr ssim map "
    "kappa likelihood top1 top5".split()
)
_LOSS = frozenset(
    "loss err error rmse mse mae mape nll perplexity ppl brier regret wer fid cost residual "
    "distance".split()
)
_SPLITS = {"val": 0, "valid": 0, "validation": 0, "dev": 0, "cv": 0, "test": 1, "eval": 1}
_SPLITS |= {"train": 3, "training": 3}
_QUALIFIERS = frozenset("best final last mean avg average total epoch running".split())
#: The first words of counters, and of values with which a score is compared.
_NO_SCORE = frozenset("n num number count baseline".split())
_MOST_SCORES, _MOST_SWEPT = 6, 8
#: Larger numbers, and smaller ones, are no parameters that anybody varies.
_LARGEST = 1e15


def init(options: argparse.Namespace) -> int:
    """Print a parameters file made from a notebook."""
    from ..notebooks.research import ResearchNotebook

    print(draft(ResearchNotebook(options.input)), end="")
    return OK


def schema(_options: argparse.Namespace) -> int:
    """Print the JSON schema of the parameters file."""
    from ..settings import Settings

    print(json.dumps(Settings.json_schema(), indent=2))
    return OK


def draft(notebook: ResearchNotebook, *, trials: int = 20, needs_score: bool = False) -> str:
    """Write a parameters file for a notebook, with ranges and comments to be edited.

    A number's range reaches from a tenth of the notebook's own value to ten times of it; the first
    trial has the notebook's own values.

    Args:
        needs_score: refuse a notebook in which no score is found, instead of a line to fill in.

    Raises:
        NotebookError: the notebook is not Python, or has nothing to sweep.
    """
    from ..errors import NotebookError
    from ..settings.messages import as_yaml
    from ..settings.secrets import masked

    if notebook.language != "python":
        raise NotebookError(
            f"{notebook.display_name}: a draft can only be made from Python, and this notebook's "
            f"language is {notebook.language}; write the parameters file by hand"
        )
    own: dict[str, Any] = {}
    swept: list[str] = []
    left_out: list[str] = []
    for name, (value, comment) in _candidates(notebook).items():
        why_not = notebook.why_not(name)
        remark = f"{as_yaml(value)} in the notebook" + (f"; {comment}" if comment else "")
        dimension = _dimension(value, comment)
        is_usual = not _NOT_SWEPT.intersection(_words(name)) and not isinstance(value, bool)
        if masked(value, name) != value:
            left_out.append(f"  # {name}: a secret?")
        elif why_not:
            left_out.append(f"  # {name} is {why_not}")
        elif dimension is None:
            left_out.append(f"  # {name}: […]    # {remark}")
        elif is_usual and len(swept) < _MOST_SWEPT:
            own[name] = value
            swept.append(f"  {_text(name)}: {dimension}    # {remark}")
        else:
            left_out.append(f"  # {name}: {dimension}    # {remark}")
    if not swept:
        remedy = "give one a name and a plain value at the top level, as in `lr = 1e-3`"
        raise NotebookError(
            f"{notebook.display_name}: no number or choice to sweep; "
            f"{notebook.syntax_error() or remedy}"
        )
    scores = _scores(notebook.code, {*own})
    if needs_score and not scores:
        raise NotebookError(
            f"{notebook.display_name}: no score was found; let the last cell assign one, as in "
            "`val_acc = …`, or write its name into what `init` drafts"
        )
    objective = [f"  {scores[0]}" if scores else "  score: maximize    # FILL IN: the score's name"]
    objective += ["  # or one of these:"] * (len(scores) > 1) + [f"  # {s}" for s in scores[1:]]
    left_out = ["  # Not swept; a line without its # would be:", *left_out] if left_out else []
    sections = [
        [f"# A draft for {notebook.display_name}, to be edited: ranges and score are guesses."],
        ["study:", f"  trials: {trials}"],
        ["objective:", *objective],
        ["space:", *swept, *left_out],
        ["start:    # the notebook's own values", f"  - {json.dumps(own, ensure_ascii=False)}"],
    ]
    text = "\n\n".join(map("\n".join, sections))
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text) + "\n"


# --- parameters ------------------------------------------------------------------------------


def _candidates(notebook: ResearchNotebook) -> dict[str, tuple[Any, str]]:
    """Names with values and comments: of the parameters cell, else those that never change."""
    from ..notebooks.assignments import plain_values
    from ..notebooks.cell_code import parse_or_none, plain_python

    if notebook.parameters_cell:
        return plain_values(notebook.code[notebook.parameters_cell - 1])
    trees = [parse_or_none(plain_python(cell)) or ast.Module([], []) for cell in notebook.code]
    names = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name))
    read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    found: dict[str, tuple[Any, str]] = {}
    for cell in notebook.code:
        found |= plain_values(cell)
    constants = notebook.assignments.constants()
    return {name: it for name, it in found.items() if name in constants and name in read}


def _dimension(value: Any, comment: str) -> str | None:
    """A dimension around a value as YAML; None where nothing can be guessed."""
    if isinstance(value, bool):
        return "[false, true]"
    if isinstance(value, str):
        # The words that a comment lists, as in `sgd | adam`.
        listed = list(dict.fromkeys(re.split(r"\s*(?:\||,|\bor\b)\s*", comment)))
        are_words = all(re.fullmatch(r"[\w.+-]+", word) for word in listed)
        return _text(listed) if are_words and len(listed) > 1 and value in listed else None
    if not isinstance(value, int | float) or not 1 / _LARGEST < abs(value) < _LARGEST:
        return None
    if isinstance(value, int) and value >= 8 and value.bit_count() == 1:  # the size of something
        return _text([value // 4, value // 2, value, 2 * value, 4 * value])
    if value < 0:
        return _range(value * 10, min(value // 10, -1) if isinstance(value, int) else value / 10)
    if isinstance(value, int):
        return _range(max(1, value // 10), value * 10, log=value >= 10)
    # What is nearly 1 is a share, as a momentum or a decay, and comes ten times nearer.
    return _range(value / 10, 1 - (1 - value) / 10 if 0.1 <= value < 1 else value * 10, log=True)


def _range(low: float, high: float, *, log: bool = False) -> str:
    low, high = (x if isinstance(x, int) else float(f"{x:.6g}") for x in (low, high))
    return f"{{low: {low}, high: {high}{', log: true' if log else ''}}}"


def _text(value: Any) -> str:
    """YAML of a value, which all JSON is; names and plain words do without quotes."""
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    reserved = {"true", "false", "null"}
    if isinstance(value, str) and re.fullmatch(r"[^\W\d]\w*", value):
        return value if value.lower() not in reserved else f'"{value}"'
    return json.dumps(value, ensure_ascii=False, default=str)


# --- scores ----------------------------------------------------------------------------------


def _scores(cells: Sequence[str], parameters: set[str]) -> list[str]:
    """Entries of an objective such as `val_acc: maximize    # reported`, the likeliest first.

    These are the names that the notebook reports; or else those with a score's word that it assigns
    outside of functions, and never uses as a collection or a function.
    """
    from ..notebooks.cell_code import parse_or_none, plain_python

    trees = [parse_or_none(plain_python(cell)) or ast.Module([], []) for cell in cells]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    origins = dict.fromkeys(_reported(nodes), "reported") or _assigned(trees)
    no_numbers = {*_collections(nodes), *parameters}
    names = [
        name
        for name in origins
        if name not in no_numbers and _NO_SCORE.isdisjoint(_words(name)[:1])
    ]
    return [
        f"{_text(name)}: {'minimize' if _measure(name) in _LOSS else 'maximize'}    # "
        f"{origins[name]}"
        for name in sorted(names, key=_rank)[:_MOST_SCORES]
    ]


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z]+\d*", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())


def _measure(name: str) -> str:
    """The word of a name that says what it measures: `loss` of `val_loss_mean`."""
    words = [w for w in _words(name) if w not in _SPLITS and w not in _QUALIFIERS]
    return words[-1] if words else ""


def _is_score(name: str) -> bool:
    return _measure(name) in _GAIN | _LOSS


def _rank(name: str) -> tuple[bool, int, bool]:
    split = min((_SPLITS[word] for word in _words(name) if word in _SPLITS), default=2)
    return not _is_score(name), split, _measure(name) in _LOSS


def _reported(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """The names in calls of sweeper's `report` and `score`, scrapbook's `glue`, old `record`."""
    for call in nodes:
        if not isinstance(call, ast.Call):
            continue
        function = ast.unparse(call.func)
        if re.search(r"\b(report|score)$", function):
            named = [option.arg for option in call.keywords if option.arg]
            yield from (it for it in named if function.startswith("sweeper.") or _is_score(it))
            if len(named) < len(call.keywords):  # report(step, **metrics)
                keys = (key for node in nodes if isinstance(node, ast.Dict) for key in node.keys)
                texts = (str(key.value) for key in keys if isinstance(key, ast.Constant))
                yield from filter(_is_score, texts)
        elif re.search(r"\b(glue|record)$", function):
            names = (str(arg.value) for arg in call.args[:1] if isinstance(arg, ast.Constant))
            yield from filter(_is_score, names)


def _assigned(trees: Sequence[ast.Module]) -> dict[str, str]:
    """The names with a score's word that cells assign, the last one first, and where."""
    found: dict[str, str] = {}
    for number, tree in enumerate(trees, start=1):
        for node in _outside_of_functions(tree):
            if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Store):
                continue
            if _is_score(node.id):
                found = {node.id: f"assigned in code cell {number}", **found}
    return found


def _collections(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """The names that are a collection, a text or a function somewhere in a notebook."""
    for node in nodes:
        match node:
            case (
                ast.Subscript(value=ast.Name(id=name))
                | ast.Attribute(value=ast.Name(id=name))
                | ast.For(iter=ast.Name(id=name))
                | ast.comprehension(iter=ast.Name(id=name))
                | ast.Call(func=ast.Name(id=name))
                | ast.FunctionDef(name=name)
            ):
                yield name
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.List() | ast.ListComp() | ast.Dict() | ast.Constant(value=str()),
            ):
                yield name


def _outside_of_functions(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child
            yield from _outside_of_functions(child)
