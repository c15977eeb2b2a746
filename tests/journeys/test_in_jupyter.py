"""Test a sweep that runs in a notebook's cell, and the notebook that compares its trials."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from sweeper.testing import write_notebook

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.usefixtures("started_kernels")]

ROOT = Path(__file__).parents[2]
TRAINING = """
import time

import sweeper

for epoch in range(2):
    sweeper.report(epoch, val_acc=lr * (epoch + 1))
    time.sleep(1)
"""
SWEEP = """
from sweeper import Settings, Sweep

settings = Settings.from_mapping({
    "objective": {"val_acc": "maximize"},
    "study": {"name": "digits", "trials": 2, "sampler": "random"},
    "space": {
        "lr": {"low": 0.001, "high": 0.5, "log": True},
        "batch_size": [32, 64],
        "width": {"low": 8, "high": 40},
        "dropout": {"low": 0.0, "high": 0.5},
        "optimizer": ["sgd", "adam"],
    },
})
result = Sweep.from_settings(
    settings, notebook="training.ipynb", output="../out/digits.{run_id}.ipynb", jobs=2
).run()
"""


class Client(NotebookClient):
    """Runs a notebook, and records everything that its first cell displayed."""

    def __init__(self, node: Any, folder: Path) -> None:
        super().__init__(node, timeout=300, resources={"metadata": {"path": str(folder)}})
        self.drawn: list[tuple[str, str]] = []

    def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
        kind = msg["header"]["msg_type"]
        if cell_index == 0 and kind in ("display_data", "update_display_data"):
            self.drawn.append((kind, msg["content"]["data"]["text/plain"]))
        return super().process_message(msg, cell, cell_index)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder `notebooks`, next to which outputs are written."""
    folder = tmp_path_factory.mktemp("project") / "notebooks"
    names = "lr, batch_size, width, dropout, optimizer = 0.1, 32, 8, 0.1, 'sgd'"
    write_notebook(folder / "training.ipynb", TRAINING, parameters=names)
    write_notebook(folder / "untagged.ipynb", "lr = 0.1", "val_acc = 1 - lr", parameters="")
    shutil.copy(ROOT / "notebooks" / "compare.ipynb", folder)
    return folder


@pytest.fixture(scope="module")
def swept(folder: Path) -> Client:
    """Run a notebook that sweeps two trials."""
    sources = (SWEEP, "result", "%load_ext sweeper", "%sweep untagged.ipynb --trials 1", "%sweep x")
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    client = Client(nbformat.v4.new_notebook(cells=cells), folder)
    client.execute()
    return client


def test_a_cell_that_sweeps_has_one_updated_output_and_displays_the_result(
    swept: Client,
) -> None:
    kinds = [kind for kind, _ in swept.drawn]
    assert kinds == ["display_data"] + ["update_display_data"] * (len(kinds) - 1)
    assert any("running" in text for _, text in swept.drawn)
    (kept,) = (o for o in swept.nb.cells[0].outputs if o.output_type != "stream")
    assert kept.data["text/plain"].startswith("digits · 2 of 2 trials · 2 completed\nbest: ")
    assert "<pre" in kept.data["text/html"]
    [output] = swept.nb.cells[1].outputs
    assert output.data["text/plain"].startswith("<study digits: 2 completed; best: 000")
    assert 'href="../out/digits/index.html"' in output.data["text/html"]


def test_the_magic_sweeps_like_the_command_line_and_reports_errors_in_one_line(
    swept: Client, folder: Path
) -> None:
    *_, live, result = swept.nb.cells[3].outputs
    assert "<progress" in live.data["text/html"]
    assert result.data["text/plain"].startswith("<study untagged: 1 completed; best: 0000")
    assert "lr: {low:" in (folder / "untagged.yml").read_text()
    [refusal] = swept.nb.cells[4].outputs
    assert "unknown command 'x'" in refusal["text"]


def test_the_notebook_compare_ipynb_runs_on_a_study_and_shows_its_trials(
    swept: Client, folder: Path
) -> None:
    node = nbformat.read(folder / "compare.ipynb", as_version=4)
    Client(node, folder).execute()
    outputs = {cell.id: cell.get("outputs", []) for cell in node.cells}
    assert "<table" in outputs["load"][-1].data["text/html"]
    assert "image/png" in outputs["series-plot"][-1].data
    best = swept.nb.cells[1].outputs[0].data["text/plain"].split("best: ")[1][:4]
    assert best in outputs["series"][-1].data["text/html"]
    assert outputs["open"][-1].data["text/html"].startswith("<iframe sandbox")
    assert not any(o.output_type == "error" for found in outputs.values() for o in found)
