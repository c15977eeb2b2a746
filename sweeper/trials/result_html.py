"""Render parts of a study's result for Jupyter, such as its trials as a table."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from .insights import Sentence
from .records import TrialRecord, short_text

#: Largest number of rows in the table (chosen, not measured).
MOST_ROWS = 20
#: Largest number of characters in a table cell (chosen, not measured), so that scores and times
#: stay visible next to long messages.
_WIDEST = 40


def counts_line(counts: Mapping[str, int]) -> str:
    """Format the number of trials by state in one line: `11 completed, 1 failed`."""
    return ", ".join(f"{n} {state}" for state, n in counts.items() if n) or "no trials"


def sentences_list(sentences: Sequence[Sentence]) -> str:
    """Return the sentences about a study's results as an HTML list, each with its topic."""
    items = ""
    for topic, text in sentences:
        items += f"<dt><strong>{html.escape(topic)}</strong></dt><dd>{_with_code(text)}</dd>"
    style = "display:grid;grid-template-columns:max-content auto;gap:0 1em;text-align:left"
    return f'<dl style="{style}">{items}</dl>'


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
    table = _table(names, [_row(record, objectives, params) for record in rows[:MOST_ROWS]])
    left = len(rows) - MOST_ROWS
    return f"{table}<p>and {left} more</p>" if left > 0 else table


def linked_table(
    line: str, names: Sequence[str], rows: Iterable[tuple[str, Sequence[str], Iterable[str]]]
) -> str:
    """Return a line and a table below it as HTML.

    Args:
        line: The line above the table.
        names: Heads of the columns.
        rows: For each row its head, the texts of its cells, and the links in its last cell, as
            HTML.
    """
    bodies = [
        f"<th>{html.escape(first)}</th>{''.join(map(_cell, texts))}<td>{' '.join(links)}</td>"
        for first, texts, links in rows
    ]
    return f"<p>{html.escape(line)}</p>{_table(names, bodies)}"


def _table(names: Sequence[str], rows: Iterable[str]) -> str:
    """Return an HTML table.

    Args:
        names: Heads of the columns.
        rows: Cells of each row as HTML.
    """
    head = "".join(_cell(name, "th") for name in names)
    body = "".join(f"<tr>{cells}</tr>" for cells in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _row(record: TrialRecord, objectives: Sequence[str], params: Sequence[str]) -> str:
    state = f"{record.state}: {record.message}" if record.message else str(record.state)
    scores = [f"{record.scores[name]:.6g}" if name in record.scores else "" for name in objectives]
    values = [short_text(record.params[name]) if name in record.params else "" for name in params]
    took = f"{record.duration_s:.1f}" if record.duration_s else ""
    cells = map(_cell, (state, *scores, took, *values))
    return f"<th>{link(record.notebook, record.run_id)}</th>{''.join(cells)}"


def _cell(text: str, tag: str = "td") -> str:
    """Return a cell of one line. A longer text is cut, and its tooltip shows all of it."""
    line = " ".join(text.split())
    shown = html.escape(line if len(line) <= _WIDEST else f"{line[: _WIDEST - 1]}…")
    return f'<{tag} title="{html.escape(text)}" style="white-space:nowrap">{shown}</{tag}>'
