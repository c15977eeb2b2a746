"""The first cell of an executed notebook's file, which states the trial for people.

Only the file and its HTML have this cell. `read_notebook` leaves it out, so replays, comparisons
and fingerprints never see it.
"""

from __future__ import annotations

from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from ..settings.units import duration
from ..trials import short_text
from .metadata import STATE_TAG, TrialMetadata

#: What a file says that is still written. JupyterLab does not notice by itself.
_RELOAD = "reload the file for its news"


def with_state(node: NotebookNode, trial: TrialMetadata) -> NotebookNode:
    """Return a notebook with a first cell that states the trial's state, scores and params.

    A param that differs from the notebook's original value has this value next to it, struck.

    Args:
        node: Executed notebook, which is not changed.
        trial: Metadata of its trial.
    """
    facts = [f"**Trial {trial.run_id}: {trial.state}**"]
    facts += [f"`{name} = {score:.6g}`" for name, score in trial.scores.items()]
    facts.append(duration(trial.duration_s) if trial.state.has_ended else _RELOAD)
    originals = trial.originals
    params = [
        f"`{name} = {short_text(value)}`"
        + "".join(
            f" ~~`{short_text(own)}`~~" for own in [originals.get(name, value)] if own != value
        )
        for name, value in {**trial.params, **trial.fixed}.items()
    ]
    # A line that begins with four spaces is code, in which no character has a meaning.
    why = [f"    {line}" for line in trial.message.splitlines()[:1]]
    source = "\n\n".join([" · ".join(facts), *why, " · ".join(params)])
    cell = new_markdown_cell(source, id=STATE_TAG, metadata={"tags": [STATE_TAG]})
    return NotebookNode({**node, "cells": [cell, *node.cells]})
