"""A first parameters file for a notebook, guessed from its code, which is not run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .score_guesses import Code, scores_of, words_of

if TYPE_CHECKING:
    from ..notebooks.plain import Assignment
    from ..notebooks.research import ResearchNotebook

#: A sweep over a seed, a budget, the data or the machine finds nothing about the model; and the
#: size of an embedding has to be that of vectors which were loaded.
_NOT_SWEPT = frozenset(
    "seed state run epoch epochs step steps iter iters iteration iterations rounds patience time "
    "samples classes fold folds split splits test data dataset worker workers job jobs thread "
    "threads gpu gpus device rank path dir file url port verbose debug log every interval save "
    "figsize dpi version embed embedding".split()
)
_MOST_SCORES, _MOST_SWEPT = 4, 8
#: The words of what people sweep: of keywords in calls, only these are drafted. Of the functions,
#: the first argument is.
_KNOWN = frozenset(
    "lr learning eta0 momentum decay batch dropout hidden layers depth estimators leaf leaves "
    "neighbors clusters components units filters embed embedding lambda alpha gamma beta c l1 l2 "
    "subsample smoothing temperature".split()
)
_FIRST = frozenset("Dropout LSTM GRU SimpleRNN Adam SGD RMSprop l1 l2".split())
_WORDS = {"optimizer": ["adam", "rmsprop", "sgd"], "kernel": ["linear", "poly", "rbf", "sigmoid"]}
#: A whole number of these may as well have a fraction.
_REAL = frozenset("lr C alpha gamma learning_rate weight_decay".split())
#: Larger numbers, smaller and negative ones are no parameters that anybody varies.
_LARGEST = 1e15


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
    code = Code(notebook.code)
    candidates = _candidates(notebook)
    scores = scores_of(code, {*candidates})
    if not notebook.parameters_cell:
        its = [_behind(notebook, candidates, code.lines(it.at)) for it in scores]
        its = its or [_behind(notebook, candidates, None)]
        best = max(its, key=lambda found: (any(map(_is_known, found)), bool(found)))
        candidates, scores = best, scores[its.index(best) :]
    for name, (value, comment) in candidates.items():
        why_not = notebook.why_not(name)
        dimension = _dimension(value, comment, name)
        line = f"{_text(name)}: {dimension or '[…]'}    # {as_yaml(value)} in the notebook"
        line += f"; {comment}" if comment else ""
        words = words_of(name.rpartition(".")[2].replace("min_samples_", ""))
        is_usual = _NOT_SWEPT.isdisjoint(words) and not isinstance(value, bool)
        if masked(value, name) != value:
            left_out.append(f"  # {name}: a secret?")
        elif why_not:
            left_out.append(f"  # {name} is {why_not}")
        elif dimension is not None and is_usual and len(swept) < _MOST_SWEPT:
            own[name] = value
            swept.append(f"  {line}")
        else:
            left_out.append(f"  # {line}")
    if not swept:
        remedy = "give one a name and a plain value at the top level, as in `lr = 1e-3`"
        which = f" leads to {scores[0].name}" if scores and not notebook.parameters_cell else ""
        raise NotebookError(
            f"{notebook.display_name}: no number or choice to sweep{which}; "
            f"{notebook.syntax_error() or remedy}"
        )
    if needs_score and not scores:
        raise NotebookError(
            f"{notebook.display_name}: no score was found; let the last cell assign one, as in "
            "`val_acc = …`, or write its name into what `init` drafts"
        )
    scores = scores[:_MOST_SCORES]
    named = [
        f"{_text(it.name)}: {it.direction}    # {it.how} in code cell {code.statements[it.at][0]}"
        for it in scores
    ]
    objective = [
        f"  {it}" for it in named[:1] or ["score: maximize    # FILL IN: the score's name"]
    ]
    objective += ["  # or one of these:"] * (len(scores) > 1) + [f"  # {s}" for s in named[1:]]
    sources = [f"  {_text(it.name)}: {it.entry}" for it in scores if it.source]
    left_out = ["  # Not swept; a line without its # would be:", *left_out] if left_out else []
    sections = [
        [f"# A draft for {notebook.display_name}, to be edited: ranges and score are guesses."],
        ["study:", f"  trials: {trials}"],
        ["objective:", *objective],
        *([["scores:", *sources]] if sources else []),
        ["space:", *swept, *left_out],
        ["start:    # the notebook's own values", f"  - {json.dumps(own, ensure_ascii=False)}"],
    ]
    text = "\n\n".join(map("\n".join, sections))
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text) + "\n"


# --- parameters ------------------------------------------------------------------------------


def _candidates(notebook: ResearchNotebook) -> dict[str, tuple[Any, str]]:
    """Names with values and comments: of the parameters cell; else those that never change, and
    the arguments of calls that people sweep."""
    from ..notebooks.assignments import plain_values

    if notebook.parameters_cell:
        return plain_values(notebook.code[notebook.parameters_cell - 1])
    found: dict[str, tuple[Any, str]] = {}
    for cell in notebook.code:
        found |= plain_values(cell)
    constants = notebook.assignments.constants()
    arguments = [
        (name, (notebook.assignments.plain_value(name), ""))
        for name in notebook.assignments.arguments()
        if (name in _FIRST if name[0].isupper() and "." not in name else _is_known(name))
    ]
    names = [it for it in found.items() if it[0] in constants]
    names += [(name, it) for name, it in arguments if _dimension(*it, name) is not None]
    return dict(names)


def _behind(
    notebook: ResearchNotebook,
    names: Mapping[str, tuple[Any, str]],
    lines: set[tuple[int, int]] | None,
) -> dict[str, tuple[Any, str]]:
    """Of a notebook's names, those which people sweep, or else all; one for each value.

    Args:
        lines: the cells and lines of what counts; None for all.
    """
    found: dict[str, tuple[Any, str]] = {}
    taken: set[Assignment] = set()
    for name, it in names.items():
        places = {*notebook.assignments.places(name)}
        counts = lines is None or lines & {(place.cell, place.line) for place in places}
        if counts and not places & taken:
            found[name] = it
            taken |= places
    return {name: it for name, it in found.items() if _is_known(name)} or found


def _is_known(name: str) -> bool:
    own = name.rpartition(".")[2]
    return name in _FIRST or own in _WORDS or not _KNOWN.isdisjoint(words_of(own))


def _dimension(value: Any, comment: str, name: str) -> str | None:
    """A dimension around a value as YAML; None where nothing can be guessed."""
    if isinstance(value, bool):
        return "[false, true]"
    if isinstance(value, str):
        if value in (words := _WORDS.get(name.rpartition(".")[2], [])):
            return _text(words)
        # The words that a comment lists, as in `sgd | adam`.
        listed = list(dict.fromkeys(re.split(r"\s*(?:\||,|\bor\b)\s*", comment)))
        are_words = all(re.fullmatch(r"[\w.+-]+", word) for word in listed)
        return _text(listed) if are_words and len(listed) > 1 and value in listed else None
    if name.rpartition(".")[2] in _REAL and isinstance(value, int):
        value = float(value)
    if not isinstance(value, int | float) or not 1 / _LARGEST < value < _LARGEST:
        return None
    if isinstance(value, int) and value >= 8 and value.bit_count() == 1:  # the size of something
        return _text([value // 4, value // 2, value, 2 * value, 4 * value])
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
    if isinstance(value, str) and re.fullmatch(r"[^\W\d][\w.]*", value):
        return value if value.lower() not in reserved else f'"{value}"'
    return json.dumps(value, ensure_ascii=False, default=str)
