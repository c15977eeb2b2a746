"""Render a study's result for Jupyter: a headline, and its trials as a table."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from .insights import Sentence
from .records import TrialRecord, short_text

if TYPE_CHECKING:
    from .confirmation import Confirmation, ConfirmedTrial

#: Largest number of rows in the table (chosen, not measured).
MOST_ROWS = 20
#: Largest number of characters in a table cell (chosen, not measured), so that scores and times
#: stay visible next to long messages.
_WIDEST = 40


def headline(
    study: str,
    counts: Mapping[str, int],
    best: Sequence[TrialRecord],
    objectives: Sequence[str],
    *,
    confirmation: Confirmation | None = None,
) -> str:
    """Describe a study in one line: its counts of trials, and its best trial.

    Args:
        study: Name of the study.
        counts: Number of trials by state.
        best: Best trials. Only the first one is named.
        objectives: Names of the objectives.
        confirmation: Ranking on fresh seeds. None if there is none.
    """
    winner = None if confirmation is None else confirmation.winner
    fresh = "" if winner is None else f", by a mean of {winner.mean:.6g} over fresh seeds"
    scores = [
        f"best: {record.run_id}, "
        + ", ".join(f"{name}={record.scores[name]:.6g}" for name in objectives)
        + fresh
        for record in best[:1]
    ]
    return "; ".join([f"study {study}: {counts_line(counts)}", *scores])


def counts_line(counts: Mapping[str, int]) -> str:
    """Format the number of trials by state in one line: `11 completed, 1 failed`."""
    return ", ".join(f"{n} {state}" for state, n in counts.items() if n) or "no trials"


def sentences_list(sentences: Sequence[Sentence]) -> str:
    """Return the sentences of a study's answer as an HTML list, each with its topic."""
    items = (
        f"<dt><strong>{html.escape(topic)}</strong></dt><dd>{_with_code(text)}</dd>"
        for topic, text in sentences
    )
    style = "display:grid;grid-template-columns:max-content auto;gap:0 1em;text-align:left"
    return f'<dl style="{style}">{"".join(items)}</dl>' if sentences else ""


def _with_code(text: str) -> str:
    """Return a text as HTML, in which words in backticks become code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text))


def link(path: Path, text: str) -> str:
    """Return an HTML link to a file, relative to the working folder, as Jupyter requires."""
    return f'<a href="{html.escape(quote(os.path.relpath(path)))}">{html.escape(text)}</a>'


def trials_table(
    records: Sequence[TrialRecord],
    best: Sequence[TrialRecord],
    objectives: Sequence[str],
) -> str:
    """Return the trials as an HTML table with links to notebooks, the best trials first."""
    first = {record.number for record in best}
    rows = sorted(records, key=lambda record: (record.number not in first, record.number))
    params = [*dict.fromkeys(name for record in records for name in record.params)]
    names = ("run_id", "state", *objectives, "duration_s", *params)
    head = "".join(_cell(name, "th") for name in names)
    body = "".join(f"<tr>{_row(record, objectives, params)}</tr>" for record in rows[:MOST_ROWS])
    left = len(rows) - MOST_ROWS
    more = f"<p>and {left} more</p>" if left > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def ranking_table(confirmation: Confirmation) -> str:
    """Return a ranking on fresh seeds as an HTML table, with links to the notebooks of the runs."""
    names = ("run_id", "mean", "95 % interval", "std", "in the search", "scores")
    head = "".join(_cell(name, "th") for name in names)
    rows = "".join(f"<tr>{_ranked(trial)}</tr>" for trial in confirmation.ranking)
    line = f"<p>{html.escape(confirmation.headline)}</p>"
    return f"{line}<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _ranked(trial: ConfirmedTrial) -> str:
    interval = " to ".join(map(short_text, trial.interval or ()))
    values = (trial.mean, interval, trial.std, trial.search_score)
    cells = [_cell("" if value is None else short_text(value)) for value in values]
    runs = [(run, trial.scores.get(seed, run.state)) for seed, run in trial.runs.items()]
    links = " ".join(link(run.notebook, short_text(score)) for run, score in runs)
    return "".join([f"<th>{html.escape(trial.run_id)}</th>", *cells, f"<td>{links}</td>"])


def _row(record: TrialRecord, objectives: Sequence[str], params: Sequence[str]) -> str:
    state = f"{record.state}: {record.message}" if record.message else str(record.state)
    scores = [f"{record.scores[name]:.6g}" if name in record.scores else "" for name in objectives]
    values = [short_text(record.params[name]) if name in record.params else "" for name in params]
    took = f"{record.duration_s:.1f}" if record.duration_s else ""
    return f"<th>{link(record.notebook, record.run_id)}</th>" + "".join(
        map(_cell, (state, *scores, took, *values))
    )


def _cell(text: str, tag: str = "td") -> str:
    """Return a cell of one line. A longer text is cut, and its tooltip shows all of it."""
    line = " ".join(text.split())
    shown = html.escape(line if len(line) <= _WIDEST else f"{line[: _WIDEST - 1]}…")
    return f'<{tag} title="{html.escape(text)}" style="white-space:nowrap">{shown}</{tag}>'
