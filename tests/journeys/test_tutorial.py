"""Test that the tutorial's page is true: its commands run, and its notebook is the shown one."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import nbformat
import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "tutorial"
PAGE = FOLDER / "README.md"


@pytest.fixture(scope="module")
def make() -> dict[str, Any]:
    return runpy.run_path(str(FOLDER / "make.py"))


def test_the_notebook_of_the_tutorial_has_the_cells_that_its_page_shows(
    make: dict[str, Any],
) -> None:
    shown = make["notebook"](PAGE.read_text("utf-8"))
    written = nbformat.read(FOLDER / "simclr.ipynb", as_version=4)
    assert [cell.source for cell in written.cells] == [cell.source for cell in shown.cells]
    assert "import sweeper" not in str(written)


@pytest.mark.kernel
@pytest.mark.slow
def test_every_command_of_the_tutorial_runs_at_a_small_size(
    make: dict[str, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "simclr"
    folder.mkdir()
    page = PAGE.read_text("utf-8")
    made = make["Tutorial"](folder, is_small=True).run(page)  # raises if a command has failed
    # Compare prose and commands with the page. Outputs may differ, but must name a best trial.
    commands = re.compile(r"^\$ .*", re.MULTILINE)
    assert commands.findall(made) == commands.findall(page)
    assert made.count("\nbest: 0") == page.count("\nbest: 0")
    assert "\\begin{tabular}" in made
    assert (tmp_path / "elsewhere" / "out" / "wide.0002.ipynb").exists()
