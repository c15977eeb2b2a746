"""The first cell of an executed notebook's file. It shows the trial's state, scores and params.

Only the file and its HTML have this cell. `read_notebook` removes the cell, so replays, comparisons
and fingerprints never see it.
"""

from __future__ import annotations

from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from ..settings.units import duration
from ..trials import short_text
from .metadata import STATE_TAG, TrialMetadata

#: Shown while the trial runs, because JupyterLab does not notice that the file has changed.
_RELOAD = "reload the file for its news"


def with_state(node: NotebookNode, trial: TrialMetadata) -> NotebookNode:
    """Return a notebook with an added first cell that shows the trial's state, scores and params.

    If a param differs from the notebook's original value, this value is shown struck through.

    Args:
        node: Executed notebook, which is not changed.
        trial: Metadata of the notebook's trial.
    """
    facts = [f"**Trial {trial.run_id}: {trial.state}**"]
    facts += [f"`{name} = {score:.6g}`" for name, score in trial.scores.items()]
    facts.append(duration(trial.duration_s) if trial.state.has_ended else _RELOAD)
    params: list[str] = []
    for name, value in {**trial.params, **trial.fixed}.items():
        text = f"`{name} = {short_text(value)}`"
        original = trial.originals.get(name, value)
        if original != value:
            text += f" ~~`{short_text(original)}`~~"
        params.append(text)
    # Markdown shows a line that begins with four spaces as code. So no character of the message
    # counts as Markdown.
    why = [f"    {line}" for line in trial.message.splitlines()[:1]]
    source = "\n\n".join([" · ".join(facts), *why, " · ".join(params)])
    cell = new_markdown_cell(source, id=STATE_TAG, metadata={"tags": [STATE_TAG]})
    return NotebookNode({**node, "cells": [cell, *node.cells]})
