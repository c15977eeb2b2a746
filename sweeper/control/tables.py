"""Make tables for a paper: mean scores with 95 % intervals, grouped by values of params."""

from __future__ import annotations

import math
import warnings
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, quantiles
from typing import Any

from ..errors import SettingsError, StudyError
from ..settings import Settings
from ..settings.messages import nearest
from ..settings.sections import Objective
from ..settings.space import SearchSpace
from ..trials import FOLD, TrialRecord, has_score, interval_of, is_number, value_text
from .lookup import ExistingStudy

#: A param with at most this many values has a row for each value (chosen, not measured). The trials
#: of a numeric param with more values are grouped by ranges.
_MOST_VALUES = 12
#: A param has at most `_MOST_PARTS` ranges, each with at least `_LEAST_TRIALS` trials (chosen, not
#: measured).
_MOST_PARTS, _LEAST_TRIALS = 4, 3
#: A mean without an interval, or with an interval of 0, has this many significant digits (chosen,
#: not measured).
_DIGITS = 4
#: A mean has at most this many decimals (chosen, not measured). An interval that needs more
#: decimals is due to rounding, so the mean is shown with significant digits instead.
_MOST_DECIMALS = 8
#: LaTeX that draws plain lines for the rules of booktabs if that package is not loaded.
_RULES = "".join(rf"\providecommand{{\{part}rule}}{{\hline}}" for part in ("top", "mid", "bottom"))
_MARKDOWN = str.maketrans({sign: f"\\{sign}" for sign in "\\|*_`<"})
_LATEX = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {sign: f"${sign}$" for sign in "<>|"}
    | {
        "[": "{[}",
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
    }
)


@dataclass(frozen=True, kw_only=True)
class _Mean:
    """The mean of a score over trials.

    Attributes:
        value: The mean.
        half_interval: Half of its 95 % interval. None for a single trial.
        is_best: Whether this mean is the best, or does not differ significantly from the best.
            False for a single trial, or if no other mean is of several trials.
    """

    value: float
    half_interval: float | None
    is_best: bool

    def __str__(self) -> str:
        """Format the mean and half of its 95 % interval, as in `0.912 ± 0.034`.

        Half of the interval has at least two significant digits. The mean has as many decimals.
        """
        half = self.half_interval
        decimals = 1 - math.floor(math.log10(half)) if half else math.inf
        form = f".{max(decimals, 0)}f" if decimals <= _MOST_DECIMALS else f".{_DIGITS}g"
        return f"{self.value:{form}}" + ("" if half is None else f" ± {half:{form}}")


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A row of a table: trials with the same values of some params, and means of their scores.

    A row may also combine all values in a range of a param.

    Attributes:
        labels: Texts of the label columns, such as values or ranges of params, in the order of
            `_Table.heads`.
        n_trials: Number of the trials.
        means: Mean of each score, in the order of `_Table.scores`.
    """

    labels: Sequence[str]
    n_trials: int
    means: Sequence[_Mean]


@dataclass(frozen=True, kw_only=True)
class _Table:
    """A table of means, before it is written in a format.

    Attributes:
        heads: Headings of the label columns.
        scores: Names of the scores that have a mean in each row.
        rows: Rows of the table.
        caption: Text that explains the table.
    """

    heads: Sequence[str]
    scores: Sequence[str]
    rows: Sequence[_Row]
    caption: str


#: The row of a trial in the table of one param: a number by which the rows are sorted, and the
#: label of the row, which is the value of the param or a range of values.
_Place = tuple[float, str]
#: The fold of a run as text (empty without folds) and its seed. Runs of two groups are compared in
#: pairs if these are equal.
_Pair = tuple[str, int]


def paper_table(existing: ExistingStudy, *, by: Sequence[str], kind: str) -> str:
    """Return a table of mean scores of a study's completed trials, as text.

    If the best trials were run again on fresh seeds (`confirm`), the table is made from these runs.
    If each set of params runs several times (`repeat`), it is made from the sets that have all
    their scores. Until these runs have shown a winner, it is made from all completed trials.

    Args:
        existing: The study.
        by: Params. Each combination of their values has a row. If empty, each value of each param
            has a row. If empty, and the table is made from the runs of `confirm` or `repeat`, each
            set of params has a row.
        kind: `latex`, `markdown` or `csv`.

    Raises:
        SettingsError: No trial has such a param.
        StudyError: No trial has completed.
    """
    return _WRITERS[kind](_table_of(existing, by))


def _table_of(existing: ExistingStudy, by: Sequence[str]) -> _Table:
    settings, confirmation = existing.settings, existing.confirmation()
    goals = settings.objective
    if confirmation is not None and confirmation.winner is not None:
        records = [run for trial in confirmation.ranking for run in trial.runs.values()]
        on = "fresh seeds" if confirmation.repeats is None else confirmation.repeats
        over = f"runs on {len(confirmation.seeds)} {on}"
        is_each = False
    else:
        records = existing.study.records()
        over = "completed trials"
        is_each = not by
    records = [record for record in records if all(has_score(record, name) for name in goals)]
    if not records:
        raise StudyError(
            f"--table: no trial of the study {existing.study.name!r} has completed; sweep it first"
        )
    params = _tried_params(records, settings)
    for name in by:
        if name not in params:
            raise SettingsError(f"--by {name}: no trial has such a param; {nearest(name, params)}")
    # Without `by`, each confirmed trial has its own row, so its values are not grouped in ranges.
    has_ranges = is_each or bool(by)
    space = SearchSpace(settings.space)
    places = {name: _places(name, records, space, has_ranges=has_ranges) for name in params}
    varied = [name for name in params if len({*places[name]}) > 1]
    chosen = by or varied or params
    rows: list[_Row] = []
    if is_each:
        for name in chosen:
            for row in _rows(records, [places[name]], goals):
                rows.append(replace(row, labels=[name, *row.labels]))
    else:
        rows = _rows(records, [places[name] for name in chosen], goals)
    for_each = " for each param" if is_each else ""
    return _Table(
        heads=["param", "value"] if is_each else chosen,
        scores=[*goals],
        rows=rows,
        caption=(
            f"{existing.study.name}: means over {over}, with 95 % intervals. Bold: the best mean"
            f"{for_each}, and means that do not differ significantly "
            "from it (t test at the 5 % level, paired where the seeds or folds are the same, else "
            "Welch's). Single trials are never bold."
        ),
    )


def _tried_params(records: Sequence[TrialRecord], settings: Settings) -> list[str]:
    """Return the params of the trials: first those of the search space, then all others, sorted."""
    tried = {name for record in records for name in record.params}
    if settings.repeat is not None and settings.repeat.by_fold:
        tried.discard(FOLD)
    present = [name for name in settings.space if name in tried]
    return present + sorted(tried.difference(present))


def _rows(
    records: Sequence[TrialRecord],
    places: Sequence[Sequence[_Place]],
    goals: Mapping[str, Objective],
) -> list[_Row]:
    """Group trials by their values of some params, and return a row for each group.

    Args:
        records: The trials.
        places: For each param, the row to which each trial belongs, in the order of `records`: a
            sort key and a label (`_Place`).
        goals: Objectives by the names of their scores.
    """
    groups: defaultdict[tuple[_Place, ...], list[TrialRecord]] = defaultdict(list)
    for record, *its_places in zip(records, *places, strict=True):
        groups[tuple(its_places)].append(record)
    ordered = sorted(groups.items())
    columns = []
    for name, goal in goals.items():
        samples = []
        for _, group in ordered:
            samples.append([(_pair_of(record), record.scores[name]) for record in group])
        columns.append(_means(samples, sign=1 if goal.direction == "maximize" else -1))
    return [
        _Row(labels=[label for _, label in key], n_trials=len(group), means=means)
        for (key, group), *means in zip(ordered, *columns, strict=True)
    ]


def _pair_of(record: TrialRecord) -> _Pair:
    """Return what two runs have in common if they are paired: the fold of the data and the seed."""
    return value_text(record.params.get(FOLD, "")), record.seed


def _places(
    name: str, records: Sequence[TrialRecord], space: SearchSpace, *, has_ranges: bool
) -> list[_Place]:
    """Return the row to which each trial belongs by its value of a param: a sort key and a label.

    Trials without the param have the last row.

    Args:
        name: The param.
        records: The trials.
        space: The search space.
        has_ranges: Whether a numeric param with many values is grouped by ranges.
    """
    values = [record.params[name] for record in records if name in record.params]
    numbers: list[Any] = [value for value in values if is_number(value)]
    are_numbers = len(numbers) == len(values)
    edges = _edges_of(numbers) if are_numbers and has_ranges else []
    choices = getattr(space.get(name), "choices", ())
    order = [value_text(value) for value in (*choices, *values)]

    def place(record: TrialRecord) -> _Place:
        if name not in record.params:
            return math.inf, "n/a"
        value: Any = record.params[name]
        if edges:
            index = bisect(edges, value)
            part = [number for number in numbers if bisect(edges, number) == index]
            return min(part), f"{min(part):.3g} to {max(part):.3g}"
        label = f"{value:.4g}" if isinstance(value, float) else value_text(value)
        return (value if are_numbers else order.index(value_text(value))), label

    return [place(record) for record in records]


def _edges_of(numbers: Sequence[float]) -> list[float]:
    """Return the numbers at which the values of a param are cut into ranges.

    Returns:
        An empty list if each value has its own row.
    """
    n_parts = min(_MOST_PARTS, len(numbers) // _LEAST_TRIALS)
    n_values = len({*map(value_text, numbers)})
    has_few = n_values <= _MOST_VALUES and n_values < len(numbers)
    return [] if n_parts < 2 or has_few else quantiles(numbers, n=n_parts)


def _means(samples: Sequence[Sequence[tuple[_Pair, float]]], *, sign: int) -> list[_Mean]:
    """Return the mean score of each group of trials, with its interval and whether it is best.

    Args:
        samples: For each group, the fold and seed, and the score of each trial.
        sign: Decides which mean is the best: 1 for the greatest one (the score is maximised), -1
            for the smallest one (it is minimised).
    """
    means = [fmean(score for _, score in sample) for sample in samples]
    several = [index for index, sample in enumerate(samples) if len(sample) > 1]
    best = max(several, key=lambda index: sign * means[index], default=None)
    found = []
    for index, (sample, mean) in enumerate(zip(samples, means, strict=True)):
        half, is_best = None, False
        if index in several:
            half = interval_of([score for _, score in sample])[1] - mean
        if len(several) > 1 and best is not None and half is not None:
            is_best = index == best or not _differ(samples[best], sample)
        found.append(_Mean(value=mean, half_interval=half, is_best=is_best))
    return found


def _differ(first: Sequence[tuple[_Pair, float]], second: Sequence[tuple[_Pair, float]]) -> bool:
    """Return whether the mean scores of two groups of trials differ at the 5 % level.

    If both groups have the same folds and seeds, this is a paired t test, else Welch's t test.

    Args:
        first: Fold and seed, and score, of each trial of a group.
        second: The same for the other group.
    """
    from scipy.stats import ttest_ind, ttest_rel

    first, second = sorted(first), sorted(second)
    pairs = [pair for pair, _ in first]
    is_paired = pairs == [pair for pair, _ in second] and len({*pairs}) == len(pairs)
    a = [score for _, score in first]
    b = [score for _, score in second]
    with warnings.catch_warnings(action="ignore"):  # SciPy warns if all scores are the same.
        found = ttest_rel(a, b) if is_paired else ttest_ind(a, b, equal_var=False)
    is_known = not math.isnan(found.pvalue)
    return bool(found.pvalue < 0.05) if is_known else fmean(a) != fmean(b)


# --- formats of a table ----------------------------------------------------------------------


def _csv(table: _Table) -> str:
    import pandas as pd

    parts = ("mean", "half_interval", "is_best")
    heads = [*table.heads, "trials", *(f"{name}_{part}" for name in table.scores for part in parts)]
    rows = []
    for row in table.rows:
        cells: list[Any] = [*row.labels, row.n_trials]
        for mean in row.means:
            cells += [mean.value, mean.half_interval, mean.is_best]
        rows.append(cells)
    return str(pd.DataFrame(rows, columns=heads).to_csv(index=False)).rstrip()


def _markdown(table: _Table) -> str:
    def cell(mean: _Mean) -> str:
        return f"**{mean}**" if mean.is_best else str(mean)

    heads, *rows = _cells(table, _MARKDOWN, cell)
    rule = ["---"] * len(table.heads) + ["---:"] * (1 + len(table.scores))
    lines = [f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows)]
    return "\n".join([*lines, "", table.caption.translate(_MARKDOWN)])


def _latex(table: _Table) -> str:
    import pandas as pd

    def cell(mean: _Mean) -> str:
        text = str(mean).replace("±", r"\pm")
        return rf"$\mathbf{{{text}}}$" if mean.is_best else f"${text}$"

    heads, *rows = _cells(table, _LATEX, cell)
    text = pd.DataFrame(rows, columns=heads).to_latex(
        index=False,
        escape=False,  # pandas would also escape the `$` of formulas.
        caption=table.caption.translate(_LATEX),
        column_format="l" * len(table.heads) + "r" * (1 + len(table.scores)),
    )
    return str(text).replace(r"\begin{table}", f"{_RULES}\n\\begin{{table}}\n\\centering").rstrip()


def _cells(table: _Table, escapes: dict[int, str], cell: Callable[[_Mean], str]) -> list[list[str]]:
    """Return the headings of a table, then the cells of each row.

    Args:
        table: The table.
        escapes: Replacements of signs in headings and labels, for `str.translate`.
        cell: Formats a mean. Its text is not escaped.
    """
    heads = [name.translate(escapes) for name in (*table.heads, "trials", *table.scores)]
    rows = []
    for row in table.rows:
        cells = [label.translate(escapes) for label in row.labels]
        cells.append(str(row.n_trials))
        cells += map(cell, row.means)
        rows.append(cells)
    return [heads, *rows]


_WRITERS: Mapping[str, Callable[[_Table], str]] = {
    "csv": _csv,
    "markdown": _markdown,
    "latex": _latex,
}
