"""What a sweep keeps of its code, and what it reports of code that was changed meanwhile."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from studies import small_settings

from sweeper.notebooks.fingerprint import local_code
from sweeper.notebooks.research import ResearchNotebook
from sweeper.settings import Settings
from sweeper.study_folder.snapshots import CodeSnapshot
from sweeper.sweep.frozen_code import changed_meanwhile, snapshot_of
from sweeper.testing import write_notebook

CELLS = ("import model\n%run other.ipynb", "val = x")


@pytest.fixture
def notebook(tmp_path: Path) -> ResearchNotebook:
    (tmp_path / "model.py").write_text("V = 1\n")
    write_notebook(tmp_path / "other.ipynb", "y = 1")
    return ResearchNotebook(write_notebook(tmp_path / "nb.ipynb", *CELLS))


def snapshot(notebook: ResearchNotebook, settings: Settings | None = None) -> CodeSnapshot:
    code = local_code(notebook.code, notebook.path.parent)
    return snapshot_of(notebook, settings or small_settings("s"), code)


def test_outputs_and_the_order_of_reading_do_not_change_a_snapshots_name(
    notebook: ResearchNotebook,
) -> None:
    name = snapshot(notebook).name
    node = nbformat.read(notebook.path, as_version=4)
    node.cells[1].outputs = [nbformat.v4.new_output("stream", text="seen by hand")]
    node.cells[1].execution_count = 3
    nbformat.write(node, notebook.path)
    assert snapshot(ResearchNotebook(notebook.path)).name == name
    notebook.path.with_name("model.py").write_text("V = 2\n")
    assert snapshot(notebook).name != name


def test_the_parameters_file_is_part_of_it_with_the_flags(
    notebook: ResearchNotebook, tmp_path: Path
) -> None:
    file = tmp_path / "digits.yml"
    file.write_text("objective: {val: maximize}  # ours\nspace: {x: [1.0, 2.0]}\n")
    settings = Settings.load(file).with_overrides(trials=3, fixed={"y": 2})
    kept = snapshot(notebook, settings)
    assert kept.parameters_name == "digits.yml"
    file.write_text(kept.parameters)
    assert Settings.load(file).as_mapping == settings.as_mapping
    assert set(kept.files) == {"model.py", "other.ipynb"}


def test_what_was_changed_or_removed_meanwhile_is_reported(notebook: ResearchNotebook) -> None:
    kept, folder = snapshot(notebook), notebook.path.parent
    assert changed_meanwhile(kept, notebook) == []
    write_notebook(notebook.path, "import other", "val = x")
    (folder / "model.py").unlink()
    write_notebook(folder / "other.ipynb", "y = 2")
    assert changed_meanwhile(kept, notebook) == [
        f"{notebook.path}, model.py, other.ipynb changed while the sweep ran: trials ran the "
        "code of its start, and what they read from disk themselves was new"
    ]
