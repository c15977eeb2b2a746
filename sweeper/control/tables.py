"""Tables for a paper: mean scores with 95 % intervals, by the values of params."""

from __future__ import annotations

import math
import warnings
from bisect import bisect
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from statistics import fmean, quantiles
from typing import Any

from ..errors import SettingsError, StudyError
from ..settings.messages import nearest
from ..settings.space import SearchSpace
from ..trials import TrialRecord, has_score, interval_of, value_text
from .lookup import ExistingStudy

#: A param with more values than these, all numbers, has a row for each fourth of its trials, or for
#: fewer parts, so that each has at least three trials.
_MOST_VALUES, _PARTS, _FEWEST = 12, 4, 3
#: Lines take the place of the rules of booktabs where it is not loaded.
_RULES = "".join(rf"\providecommand{{\{it}rule}}{{\hline}}" for it in ("top", "mid", "bottom"))
_ESCAPES: dict[str, dict[int, str]] = {
    "csv": {},
    "markdown": str.maketrans({sign: f"\\{sign}" for sign in "\\|*_`<"}),
    "latex": str.maketrans(
        {sign: f"\\{sign}" for sign in "&%$#_{}"}
        | {sign: f"${sign}$" for sign in "<>|"}
        | {
            "[": "{[}",
            "\\": r"\textbackslash{}",
            "~": r"\textasciitilde{}",
            "^": r"\textasciicircum{}",
        }
    ),
}


def paper_table(existing: ExistingStudy, *, by: Sequence[str], kind: str) -> str:
    """Means over the completed trials of a study; where its best are confirmed, over those runs.

    Args:
        by: the params whose values, taken together, have a row each; none for the values of each
            param by itself, and of confirmed trials for all params together.
        kind: `latex`, `markdown` or `csv`.

    Raises:
        SettingsError: no trial has such a param.
        StudyError: no trial has completed.
    """
    import pandas as pd

    settings, confirmation = existing.settings, existing.confirmation()
    goals, escapes = settings.objective, _ESCAPES[kind]
    records, over, is_each = existing.study.records(), "completed trials", not by
    if confirmation is not None and confirmation.winner is not None:
        records = [run for one in confirmation.ranking for run in one.runs.values()]
        on = "fresh seeds" if confirmation.repeats is None else confirmation.repeats
        over, is_each = f"runs on {len(confirmation.seeds)} {on}", False
    records = [it for it in records if all(has_score(it, name) for name in goals)]
    if not records:
        raise StudyError(f"--table: no trial of the study {existing.study.name!r} has completed")
    params = [name for name in settings.space if any(name in it.params for it in records)]
    for name in by:
        if name not in params:
            raise SettingsError(f"--by {name}: no trial has such a param; {nearest(name, params)}")
    places = {name: _places(name, records, settings.search_space) for name in params}
    chosen = by or [name for name in params if len({*places[name]}) > 1] or params
    rows: list[list[Any]] = []
    for names in [[name] for name in chosen] if is_each else [chosen]:
        groups: defaultdict[tuple[tuple[float, str], ...], list[TrialRecord]] = defaultdict(list)
        for index, record in enumerate(records):
            groups[tuple(places[name][index] for name in names)].append(record)
        found = sorted(groups.items())
        columns = []
        for name, goal in goals.items():
            samples = [[(it.seed, it.scores[name]) for it in its] for _, its in found]
            columns.append(_cells(samples, 1 if goal.direction == "maximize" else -1, kind))
        for (place, its), *cells in zip(found, *columns, strict=True):
            labels = [*(names if is_each else ()), *(label for _, label in place)]
            rows.append([*(it.translate(escapes) for it in labels), len(its), *chain(*cells)])
    heads = ["param", "value", "trials"] if is_each else [*chosen, "trials"]
    parts = ("_mean", "_half_interval", "_is_best") if kind == "csv" else ("",)
    names = [*heads, *(f"{name}{part}" for name in goals for part in parts)]
    table = pd.DataFrame(rows, columns=[name.translate(escapes) for name in names])
    if kind == "csv":
        return str(table.to_csv(index=False)).rstrip()
    caption = (
        f"{existing.study.name}: means over {over}, with 95 % intervals. Bold are the best mean"
        f"{' for each param' * is_each} and those that a t test at the 5 % level (paired where the "
        "seeds are the same, else Welch's) does not tell from it; single trials never are."
    ).translate(escapes)
    n_labels = len(heads) - 1
    if kind == "latex":
        form = "l" * n_labels + "r" * (1 + len(goals))
        text = str(table.to_latex(index=False, escape=False, caption=caption, column_format=form))
        return text.replace(r"\begin{table}", f"{_RULES}\n\\begin{{table}}\n\\centering").rstrip()
    rule = ["---"] * n_labels + ["---:"] * (1 + len(goals))
    lines = [" | ".join(map(str, line)) for line in (table.columns, rule, *table.values)]
    return "\n".join([*(f"| {line} |" for line in lines), "", caption])


def _places(
    name: str, records: Sequence[TrialRecord], space: SearchSpace
) -> list[tuple[float, str]]:
    """For each trial the row of its value of a param: by what rows are sorted, and the label."""
    tried = [it.params[name] for it in records if name in it.params]
    numbers = [it for it in tried if isinstance(it, int | float) and not isinstance(it, bool)]
    is_numeric, texts = len(numbers) == len(tried), [*map(value_text, tried)]
    n_parts = min(_PARTS, len(tried) // _FEWEST)
    edges: list[float] = []
    if is_numeric and n_parts > 1 and not _MOST_VALUES >= len({*texts}) < len(texts):
        edges = quantiles(numbers, n=n_parts)
    order = [*map(value_text, getattr(space[name], "choices", ())), *texts]

    def place(value: Any) -> tuple[float, str]:
        if edges:
            part = [it for it in numbers if bisect(edges, it) == bisect(edges, value)]
            return min(part), f"{min(part):.3g} to {max(part):.3g}"
        text = f"{value:.4g}" if isinstance(value, float) else value_text(value)
        return (value if is_numeric else order.index(value_text(value))), text

    missing = math.inf, "n/a"
    return [place(it.params[name]) if name in it.params else missing for it in records]


def _cells(samples: Sequence[Sequence[tuple[int, float]]], sign: int, kind: str) -> list[list[Any]]:
    """The cells of one score, from the seeds and scores of each group."""
    means = [fmean(score for _, score in sample) for sample in samples]
    several = [index for index, sample in enumerate(samples) if len(sample) > 1]
    best = max(several, key=lambda index: sign * means[index], default=0)
    cells = []
    for index, (sample, mean) in enumerate(zip(samples, means, strict=True)):
        half = interval_of([score for _, score in sample])[1] - mean if index in several else None
        is_bold = index == best or (half is not None and not _differ(samples[best], sample))
        cells.append(_cell(mean, half, is_bold and len(several) > 1, kind))
    return cells


def _differ(first: Sequence[tuple[int, float]], second: Sequence[tuple[int, float]]) -> bool:
    """Whether a t test at the 5 % level tells means apart: paired for equal seeds, else Welch's."""
    from scipy.stats import ttest_ind, ttest_rel

    (seeds, a), (others, b) = (zip(*sorted(it), strict=True) for it in (first, second))
    is_paired = seeds == others and len({*seeds}) == len(seeds)
    with warnings.catch_warnings(action="ignore"):  # of scores that are all the same
        found = ttest_rel(a, b) if is_paired else ttest_ind(a, b, equal_var=False)
    is_known = not math.isnan(found.pvalue)
    return bool(found.pvalue < 0.05) if is_known else fmean(a) != fmean(b)


def _cell(mean: float, half: float | None, is_bold: bool, kind: str) -> list[Any]:
    """A mean with as many decimals as half of its interval, which has two digits."""
    if kind == "csv":
        return [mean, half, is_bold]
    decimals = 1 - math.floor(math.log10(half)) if half else 9
    form = f".{max(decimals, 0)}f" if decimals < 9 else ".4g"
    text = f"{mean:{form}}" + ("" if half is None else f" ± {half:{form}}")
    if kind == "markdown":
        return [f"**{text}**" if is_bold else text]
    text = text.replace("±", r"\pm")
    return [rf"$\mathbf{{{text}}}$" if is_bold else f"${text}$"]
