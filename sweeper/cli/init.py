"""The commands `init` and `schema`: a first parameters file for a notebook, and the file's schema.

A draft is guessed from the notebook's code, which is not run.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Container, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .codes import OK

if TYPE_CHECKING:
    from ..notebooks import ResearchNotebook

#: A sweep over a seed, a budget, the data or the machine finds nothing about the model.
_NOT_SWEPT = frozenset(
    "seed state run epoch epochs step steps iter iters iteration iterations rounds patience time "
    "samples classes fold folds split splits test data dataset worker workers job jobs thread "
    "threads gpu gpus device rank path dir file url port verbose debug log every interval save "
    "figsize dpi version".split()
)
_SECRET = frozenset("token key password passwd secret".split())
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
#: The words of times, and of values with which a score is compared; the first words of counters.
_NO_SCORE = frozenset(
    "time timer seconds secs elapsed duration latency clock date start end threshold "
    "baseline".split()
)
_COUNTERS = frozenset("n num number count counter idx index i j k".split())
#: What these functions return is a number, unless they get an axis.
_REDUCING = frozenset("round mean sum min max median std item norm average".split())
_CLOCKS = frozenset("time time_ns perf_counter monotonic process_time default_timer now".split())
#: What these functions return is a collection, as what ends or begins like the others.
_COLLECTIONS = frozenset(
    "array asarray zeros ones empty full arange linspace list dict set tuple sorted range zip "
    "items keys values tolist DataFrame Series cumsum reshape stack concatenate read_csv".split()
)
_ENDS, _BEGINNINGS = ("_curve", "_matrix", "_report", "_samples"), ("cross_val", "predict")
#: Collections have these attributes, and these functions take them.
_OF_SEVERAL = frozenset(
    "append extend shape items keys values plot len enumerate zip mean std sorted head iloc".split()
)
#: A draft lists six scores at most; a name that is no score's and is not printed must be assigned
#: in one of the last three cells.
_MOST_SCORES, _LAST_CELLS = 6, 3
#: Larger numbers, and smaller ones, are no parameters that anybody varies.
_LARGEST = 1e15
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\s*(?:to|and|-|–|\.\.+|…|,)\s*({_NUMBER})")


def init(options: argparse.Namespace) -> int:
    """Print a parameters file made from a notebook's parameters cell."""
    from ..notebooks import ResearchNotebook

    print(draft(ResearchNotebook(options.input)), end="")
    return OK


def schema(_options: argparse.Namespace) -> int:
    """Print the JSON schema of the parameters file."""
    from ..settings import Settings

    print(json.dumps(Settings.json_schema(), indent=2))
    return OK


def draft(notebook: ResearchNotebook) -> str:
    """Write a parameters file for a notebook, with ranges and comments to be edited.

    A number's range reaches from a tenth of the notebook's own value to ten times of it, unless the
    comment behind it states one; the first trial has the notebook's own values.

    Raises:
        NotebookError: the notebook is not Python, or its parameters cell has nothing to sweep.
    """
    from ..errors import NotebookError
    from ..notebooks.cell_code import assigned_values

    if notebook.language != "python":
        raise NotebookError(
            f"{notebook.display_name}: a draft can only be made from Python, and this notebook's "
            f"language is {notebook.language}; write the parameters file by hand"
        )
    names = notebook.parameters() or []
    assigned = assigned_values(notebook.parameters_source)
    swept, left_out, read = [], [], []
    own: dict[str, Any] = {}
    for name, (value, comment) in assigned.items():
        remark = f"{_text(value)} in the notebook" + (f"; {comment}" if comment else "")
        dimension = _dimension(value, comment)
        reader = _reader(notebook.parameters_source, name)
        if _SECRET.intersection(_words(name)):
            left_out.append(f"  # {name}: a secret?")
        elif dimension is None:
            left_out.append(f"  # {name}: […]    # {remark}")
        elif reader or _NOT_SWEPT.intersection(_words(name)) or isinstance(value, bool):
            why = f"; line {reader} of its cell reads it before it is injected" if reader else ""
            read += [name] * bool(reader)
            left_out.append(f"  # {name}: {dimension}    # {remark}{why}")
        else:
            own[name] = value
            swept.append(f"  {_text(name)}: {dimension}    # {remark}")
    if not swept:
        has = f"assigns only {', '.join(names)}" if names else "assigns nothing"
        why = "no number or choice to sweep; assign some there, as in `lr = 1e-3`"
        if read:
            why = f"it reads {', '.join(read)} itself; move the lines that do to a cell below"
        raise NotebookError(f"{notebook.display_name}: the parameters cell {has}: {why}")
    scores = _scores(notebook.code, {*names})
    objective = [f"  {scores[0]}" if scores else "  score: maximize    # FILL IN: the score's name"]
    objective += ["  # or one of these:"] * (len(scores) > 1) + [f"  # {s}" for s in scores[1:]]
    lines = [
        f"# A draft for {notebook.display_name}, to be edited: ranges and score are guesses.",
        "study:\n  trials: 20",
        "\n".join(["objective:", *objective]),
        "\n".join(["space:", *swept]),
        "\n".join(["  # Not swept; a line without its # would be:", *left_out]) if left_out else "",
        f"start:    # the notebook's own values\n  - {json.dumps(own, ensure_ascii=False)}",
    ]
    text = "\n\n".join(filter(None, lines)).replace("\n\n  # Not swept", "\n  # Not swept")
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text) + "\n"


# --- parameters ------------------------------------------------------------------------------


def _reader(source: str, name: str) -> int | None:
    """The line of a statement that reads a name in the cell that assigns it."""
    from ..notebooks.cell_code import parse, plain_python

    reads = (
        node.lineno
        for node in ast.walk(parse(plain_python(source)))
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    )
    return min(reads, default=None)


def _dimension(value: Any, comment: str) -> str | None:
    """A dimension around a value as YAML; None where nothing can be guessed."""
    if choices := _choices(value, comment):
        return _text(choices)
    if isinstance(value, bool):
        return "[false, true]"
    if not isinstance(value, int | float) or not 1 / _LARGEST < abs(value) < _LARGEST:
        return None
    if (found := _RANGE.search(comment)) and float(found[1]) < value < float(found[2]):
        low, high = (type(value)(float(bound)) for bound in found.groups())
        return _range(low, high, log=low > 0 and high / low >= 100)
    if isinstance(value, int) and value >= 8 and value.bit_count() == 1:  # the size of something
        return _text([value // 4, value // 2, value, 2 * value, 4 * value])
    if value < 0:
        return _range(value * 10, min(value // 10, -1) if isinstance(value, int) else value / 10)
    if isinstance(value, int):
        return _range(max(1, value // 10), value * 10, log=value >= 10)
    # What is nearly 1 is a share, as a momentum or a decay, and comes ten times nearer.
    return _range(value / 10, 1 - (1 - value) / 10 if 0.1 <= value < 1 else value * 10, log=True)


def _choices(value: Any, comment: str) -> list[Any]:
    """The words or numbers that a comment lists, as in `sgd | adam`, if the value is among them."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return []
    listed = re.sub(r"^[^:]*:|\([^()]*\)|[\[\]{}'\"]", "", comment)
    if listed.startswith("or "):
        listed = f"{value} {listed}"
    parts = [part.strip() for part in re.split(r"\||,|/|\bor\b", listed) if part.strip()]
    try:
        found = list(dict.fromkeys(type(value)(part) for part in parts))
    except ValueError:
        return []
    are_words = all(re.fullmatch(r"[\w.+-]+", part) for part in parts)
    return found if are_words and len(found) > 1 and value in found else []


def _range(low: float, high: float, *, log: bool = False) -> str:
    low, high = (x if isinstance(x, int) else float(f"{x:.6g}") for x in (low, high))
    return f"{{low: {low}, high: {high}{', log: true' if log else ''}}}"


def _text(value: Any) -> str:
    """YAML of a value, which all JSON is; names and plain words do without quotes."""
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    reserved = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
    if isinstance(value, str) and re.fullmatch(r"[^\W\d]\w*", value):
        return value if value.lower() not in reserved else f'"{value}"'
    return json.dumps(value, ensure_ascii=False, default=str)


# --- scores ----------------------------------------------------------------------------------


def _scores(cells: Sequence[str], parameters: set[str]) -> list[str]:
    """Entries of an objective such as `val_acc: maximize    # reported`, the likeliest first.

    These are the names that the notebook reports, or else those that its last cells print or
    assign at their top level, without parameters, clocks, counters and collections.
    """
    from ..notebooks.cell_code import parse_or_none, plain_python

    trees = [parse_or_none(plain_python(cell)) or ast.Module([], []) for cell in cells]
    others = {name for tree in trees for name in _used_otherwise(tree)}
    printed = {name for tree in trees for name in _printed(tree)}
    origins = dict.fromkeys(_reported(trees), "reported")
    order: dict[str, tuple[Any, ...]] = {}
    for number, tree in enumerate(trees if not origins else [], start=1):
        for name, value in _top_level(tree.body):
            is_late = name in printed or number > len(cells) - _LAST_CELLS
            if not _may_be_number(value, origins, others, is_known=_is_score(name)):
                others.add(name)
            elif _is_score(name) or (is_late and not isinstance(value, ast.Constant)):
                how = "printed" if name in printed else "assigned"
                origins[name] = f"{how} in code cell {number}"
                order[name] = (name not in printed, -number)
    names = [
        name
        for name in origins
        if name not in others | parameters
        and _NO_SCORE.isdisjoint(_words(name))
        and _COUNTERS.isdisjoint(_words(name)[:1])
    ]
    names.sort(key=lambda name: (*_rank(name), order.get(name, ())))
    return [
        f"{_text(name)}: {'minimize' if _measure(name) in _LOSS else 'maximize'}    # "
        f"{origins[name]}"
        for name in names[:_MOST_SCORES]
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


def _reported(trees: Sequence[ast.Module]) -> Iterator[str]:
    """The names in calls of sweeper's `report` and `score`, scrapbook's `glue`, old `record`."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    ours = {"sweeper"}
    for node in nodes:
        if isinstance(node, ast.Import):
            ours |= {alias.asname or "" for alias in node.names if alias.name == "sweeper"}
        elif isinstance(node, ast.ImportFrom) and node.module == "sweeper":
            ours |= {alias.asname or alias.name for alias in node.names}
    for call in nodes:
        if not isinstance(call, ast.Call):
            continue
        base = call.func.value if isinstance(call.func, ast.Attribute) else call.func
        if isinstance(base, ast.Name) and base.id in ours:
            yield from (option.arg for option in call.keywords if option.arg)
            if any(option.arg is None for option in call.keywords):  # report(step, **metrics)
                keys = (key for node in nodes if isinstance(node, ast.Dict) for key in node.keys)
                texts = (str(key.value) for key in keys if isinstance(key, ast.Constant))
                yield from filter(_is_score, texts)
        elif _called(call) in ("glue", "record") and len(call.args) > 1:
            name = call.args[0]
            if isinstance(name, ast.Constant) and _is_score(str(name.value)):
                yield str(name.value)


def _top_level(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.expr | None]]:
    """The names that statements assign, also inside loops and conditions, with their values.

    None stands for the value of a function, a class and a counter.
    """
    for statement in body:
        match statement:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, None
                continue
            case ast.Assign(targets=targets, value=value):
                yield from (pair for target in targets for pair in _pairs(target, value))
            case ast.AugAssign(
                op=ast.Add() | ast.Sub(), target=ast.Name(id=name), value=ast.Constant()
            ):
                yield name, None
            case (
                ast.AugAssign(target=target, value=value)
                | ast.AnnAssign(target=target, value=ast.expr() as value)
            ):
                yield from _pairs(target, value)
        for field in ("body", "orelse", "finalbody"):
            yield from _top_level(getattr(statement, field, []))
        for handler in getattr(statement, "handlers", []):
            yield from _top_level(handler.body)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List):
        parts = value.elts if isinstance(value, ast.Tuple | ast.List) else []
        for index, part in enumerate(target.elts):
            yield from _pairs(part, parts[index] if len(parts) == len(target.elts) else value)


def _called(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def _may_be_number(
    value: ast.expr | None, numbers: Container[str], others: Container[str], *, is_known: bool
) -> bool:
    """Whether a value may be one number; a value of unknown kind, if its name is a score's."""

    def may_be(inner: ast.expr, *, known: bool = is_known) -> bool:
        return _may_be_number(inner, numbers, others, is_known=known)

    match value:
        case ast.Constant(value=bool() | str() | bytes() | None):
            return False
        case ast.Constant():
            return True
        case ast.Name(id=name):
            return name not in others and (is_known or name in numbers)
        case ast.UnaryOp(operand=inner) | ast.IfExp(body=inner):
            return may_be(inner)
        case ast.BinOp(left=left, right=ast.Constant()):
            return may_be(left)
        case ast.BinOp(left=left, right=right):
            return may_be(left) and may_be(right)
        case ast.Call(func=function, args=[first, *_]) if _called(value) in ("float", "int"):
            return may_be(first, known=True)
        case ast.Call(func=function, args=arguments, keywords=options):
            name = _called(value)
            if name in _CLOCKS | _COLLECTIONS or name.endswith(_ENDS):
                return False
            if name.startswith(_BEGINNINGS) or {"axis", "dim"} & {str(o.arg) for o in options}:
                return False
            if name in _REDUCING or name.endswith(("_score", "_error", "_loss")):
                # The 1 in x.mean(1) is an axis, in max(1, x) it is not.
                is_axis = bool(arguments) and isinstance(arguments[0], ast.Constant)
                return not (is_axis and isinstance(function, ast.Attribute))
            return is_known and not name[:1].isupper()
        case ast.Subscript(slice=index):
            return is_known and not isinstance(index, ast.Slice)
        case ast.Attribute(attr=name):
            return is_known and name not in ("history", "T")
    return False


def _used_otherwise(tree: ast.AST) -> Iterator[str]:
    """The names that a cell uses as a collection or calls."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)):
                yield name
    for node in _outside_of_functions(tree):
        match node:
            case ast.Subscript(value=ast.Name(id=name)) | ast.Starred(value=ast.Name(id=name)):
                yield name
            case ast.For(iter=ast.Name(id=name)) | ast.comprehension(iter=ast.Name(id=name)):
                yield name
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                if attribute in _OF_SEVERAL:
                    yield name
            case ast.Call(args=arguments) if _called(node) in _OF_SEVERAL:
                yield from (a.id for a in arguments if isinstance(a, ast.Name))


def _printed(tree: ast.AST) -> Iterator[str]:
    for node in _outside_of_functions(tree):
        if isinstance(node, ast.Call) and _called(node) == "print":
            yield from (n.id for n in ast.walk(node) if isinstance(n, ast.Name))


def _outside_of_functions(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child
            yield from _outside_of_functions(child)
