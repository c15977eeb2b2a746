"""Test the path of a new user: a notebook of their own, one command, and a page that compares."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from commands import call

from sweeper.notebooks.reading import read_notebook

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("here")]

#: A messy notebook: no tags, parameters in three cells, a magic, a figure, a progress bar, no seed.
CELLS = (
    "%matplotlib inline\nimport numpy as np\nfrom tqdm.auto import tqdm\nlr = 0.05  # step size",
    "rng = np.random.default_rng()\nX = rng.normal(size=(400, 8))\ny = X @ rng.normal(size=8) > 0",
    "EPOCHS = 5\nweight_decay = 10 ** -3\nprint(X.shape)",
    "w = np.zeros(8)\nfor epoch in tqdm(range(EPOCHS)):\n"
    "    error = 1 / (1 + np.exp(-X[:300] @ w)) - y[:300]\n"
    "    w -= lr * (X[:300].T @ error / 300 + weight_decay * w)\n"
    "    print(f'Epoch {epoch + 1}: accuracy {((X[300:] @ w > 0) == y[300:]).mean():.3f}')",
    "import matplotlib.pyplot as plt\nplt.bar(range(8), w)\nplt.show()",
)


def test_one_command_leads_from_a_messy_notebook_to_a_page_that_compares_its_trials() -> None:
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    nbformat.write(notebook, "my notes (1).ipynb")
    before = Path("my notes (1).ipynb").read_bytes()
    done = call("my notes (1).ipynb", "--yes", "--trials", "3", "-j", "2", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["counts"]["completed"] == 3
    best = result["best"]
    assert {*best["params"]} == {"lr", "weight_decay"}
    assert "acc" in next(iter(best["scores"]))
    assert Path("my notes (1).yml").exists()
    assert Path("my notes (1).ipynb").read_bytes() == before
    assert Path(result["page"]).exists()
    second = result["trials"][1]  # the first trial has the original values
    executed = read_notebook(Path(second["notebook"]))
    assert f"weight_decay = {second['params']['weight_decay']!r}  # was 10 ** -3" in (
        executed.cells[2].source
    )
