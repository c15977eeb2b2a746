"""Test the tag `shared` of cells that run once for all trials: when is it refused, or advised?"""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from sweeper.errors import NotebookError
from sweeper.notebooks.research import ResearchNotebook
from sweeper.notebooks.shared_cells import check_shared_cells, sharing_advice
from sweeper.testing import write_notebook

OWN = {"lr", "seed", "decay"}


def check(folder: Path, *cells: str, shared: int) -> None:
    path = write_notebook(folder / "nb.ipynb", *cells, parameters="lr = 1", shared=shared)
    check_shared_cells(ResearchNotebook(path), OWN)


@pytest.mark.parametrize(
    "cell",
    [
        "rows = load(n)",
        "model.lr = 3\nfit(lr=0.1)",
        "def fit(lr):\n    return [lr for _ in range(3)]",
        "print('lr')",
        "%matplotlib inline",
        "await load()",
        "rate (",
    ],
)
def test_a_cell_that_uses_no_swept_name_can_be_shared_by_all_trials(
    cell: str, tmp_path: Path
) -> None:
    check(tmp_path, "import math", "", cell, "print(lr)", shared=3)


@pytest.mark.parametrize(
    ("cell", "named"),
    [
        ("rows = load(lr)", "lr"),
        ("def fit():\n    return lr", "lr"),
        ("scale = lambda: [lr for _ in range(3)]", "lr"),
        ("seed = 3", "seed"),
        ("%%time\nprint(f'{lr}')", "lr"),
        ("import sweeper\nt = sweeper.trial()", "sweeper.trial()"),
        ("from sweeper import report, trial", "sweeper.trial()"),
        ("Adam(decay=3)", "decay"),
        ("lr (", "lr"),
    ],
)
def test_a_shared_cell_that_uses_a_swept_name_is_refused(
    cell: str, named: str, tmp_path: Path
) -> None:
    with pytest.raises(NotebookError) as refused:
        check(tmp_path, "import math", cell, shared=2)
    assert "nb.ipynb: code cell 3 is tagged 'shared'" in str(refused.value)
    assert f"uses {named}" in str(refused.value)


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ("lr = 1\nk = lr", "lr"),
        ("config = {'decay': 0.1}", "decay"),
        ("class CFG:\n    rate = 0.1", "CFG.rate"),
        ("import sweeper\ntrial = sweeper.trial()", "sweeper.trial()"),
    ],
)
def test_a_shared_cell_after_a_parameters_cell_that_uses_a_swept_name_is_refused(
    parameters: str, named: str, tmp_path: Path
) -> None:
    """The parameters cell runs once, too, so a trial cannot set a name that this cell reads."""
    path = write_notebook(tmp_path / "nb.ipynb", "rows = 1", parameters=parameters, shared=1)
    with pytest.raises(NotebookError) as refused:
        check_shared_cells(ResearchNotebook(path), {*OWN, "CFG.rate"})
    assert "code cell 2 is tagged 'shared', and the parameters cell" in str(refused.value)
    assert f"move the code that uses {named} to" in str(refused.value)


def test_a_name_that_the_parameters_cell_assigns_and_does_not_read_may_be_swept_with_shared_cells(
    tmp_path: Path,
) -> None:
    parameters = "lr = 1\nk = lr"
    path = write_notebook(tmp_path / "nb.ipynb", "rows = 1", parameters=parameters, shared=1)
    check_shared_cells(ResearchNotebook(path), {"k"})


def test_a_shared_cell_after_a_cell_that_is_not_shared_is_refused(tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "nb.ipynb", "a = 1", "b = 2")
    node = nbformat.read(path, as_version=4)
    node.cells[2].metadata["tags"] = ["shared"]
    nbformat.write(node, path)
    with pytest.raises(NotebookError, match="cell 3 is tagged 'shared', and code cell 2 before"):
        check_shared_cells(ResearchNotebook(path), OWN)


@pytest.mark.parametrize(
    ("durations_s", "advice"),
    [
        ([0.5, 2.5, 1.9], "cells 2 to 3 take 3.0 of 5.0 s of each trial without using a parameter"),
        ([0.0, 0.9, 1.0], None),
        ([1.0, 1.0, 9.0], None),
    ],
)
def test_sharing_cells_is_advised_if_it_saves_one_second_and_20_percent_of_each_trial(
    durations_s: list[float], advice: str | None, tmp_path: Path
) -> None:
    path = write_notebook(tmp_path / "nb.ipynb", "import math", "a = 1", "b = lr")
    node = nbformat.read(path, as_version=4)
    injected = nbformat.v4.new_code_cell("lr = 2", metadata={"tags": ["injected-parameters"]})
    node.cells.insert(1, injected)
    for cell, took_s in zip(node.cells, [0.1, 0.0, *durations_s], strict=True):
        cell.metadata["papermill"] = {"duration": took_s}
    found = sharing_advice(node, OWN)
    assert (found is None) if advice is None else str(found).startswith(advice)
