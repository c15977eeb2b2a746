"""Test the first cell of an executed notebook: it states the trial for people; code ignores it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

from sweeper.notebooks.executed import ExecutedNotebook, mark_ended
from sweeper.notebooks.html import render
from sweeper.notebooks.metadata import read_progress
from sweeper.notebooks.reading import read_notebook
from sweeper.notebooks.research import ResearchNotebook
from sweeper.testing import write_notebook
from sweeper.trials import TrialOutcome, TrialSpec, TrialState

MakeSpec = Callable[..., TrialSpec]


@pytest.fixture
def research(tmp_path: Path) -> ResearchNotebook:
    return ResearchNotebook(write_notebook(tmp_path / "nb.ipynb", "print(lr)", parameters="lr = 1"))


@pytest.fixture
def file(research: ResearchNotebook, make_spec: MakeSpec) -> ExecutedNotebook:
    """Write and return the executed notebook of a running trial."""
    spec = make_spec(params={"lr": 0.125, "depth": 3}, fixed={"note": "a*b_c`$x$"})
    file = ExecutedNotebook(research.fresh_copy(), spec)
    file.note(originals={"lr": 1, "depth": 3})
    file.write()
    return file


def stated(path: Path) -> str:
    """Return the text of the first cell, as Jupyter reads it."""
    node: Any = nbformat.read(path, as_version=4)
    nbformat.validate(node)
    assert node.cells[0].cell_type == "markdown"
    return str(node.cells[0].source)


def test_the_first_cell_of_an_executed_notebook_states_its_running_or_ended_trial(
    file: ExecutedNotebook,
) -> None:
    assert "**Trial 0007: running**" in stated(file.path)
    scores = {"val_acc": 0.98765432}
    message = "pruned at step 2\nof 9"
    outcome = TrialOutcome(state=TrialState.PRUNED, scores=scores, message=message, duration_s=65.0)
    file.finish(outcome)
    file.write()
    text = stated(file.path)
    assert "**Trial 0007: pruned** · `val_acc = 0.987654` · 1m05s" in text
    assert "    pruned at step 2\n" in text
    assert "of 9" not in text


def test_an_original_value_that_the_trial_replaces_is_shown_struck_through(
    file: ExecutedNotebook,
) -> None:
    assert "`lr = 0.125` ~~`1`~~ · `depth = 3` · `note = " in stated(file.path)


def test_a_corrected_state_is_shown_in_the_first_cell_of_an_executed_notebook(
    file: ExecutedNotebook,
) -> None:
    mark_ended(file.path, TrialState.STOPPED, "the sweep was killed")
    assert "stopped" in stated(file.path)
    mark_ended(file.path, TrialState.FAILED, "")
    assert "failed" in stated(file.path)
    assert len(nbformat.read(file.path, as_version=4).cells) == 3


def test_read_notebook_leaves_out_the_first_cell_that_states_the_trial(
    file: ExecutedNotebook, research: ResearchNotebook, tmp_path: Path
) -> None:
    written = json.loads(file.path.read_text())
    assert len(written["cells"]) == 3
    assert read_notebook(file.path).cells == file.node.cells
    assert len(read_progress(file.path)[1]) == 2
    again = ResearchNotebook(file.path, is_executed=True)
    assert again.code == research.code
    assert [cell.id for cell in again.node.cells] == [cell.id for cell in research.node.cells]
    written["cells"][0]["id"] = "another"
    edited = tmp_path / "opened and saved.ipynb"
    edited.write_text(json.dumps(written))
    assert len(read_notebook(edited).cells) == 2


def test_the_html_of_a_notebook_begins_with_its_trials_state_and_says_that_a_value_was_replaced(
    file: ExecutedNotebook,
) -> None:
    first, *others = render(file.path)
    assert "<strong>Trial 0007: running</strong>" in first
    assert "<del><code>1</code></del>" in first
    assert "<code>note = a*b_c" in first
    assert len(others) == 2
