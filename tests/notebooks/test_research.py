"""The research notebook: its parameters cell, its kernel, and the copy that a trial executes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweeper.errors import NotebookError
from sweeper.notebooks.research import ResearchNotebook
from sweeper.testing import write_notebook

ITS_OWN = ": keep what should vary in a cell of its own, which computes nothing from it, and tag it"


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["class_names = ['a', 'b']"], "put what should vary into one, as in `lr = 1e-3`, and tag"),
        (["x = 1"], f"code cell 1 assigns x{ITS_OWN} 'parameters' (JupyterLab: property"),
        (["import os", "x = 1\ny = 2\nz = f(x)", "lr = 0.1"], f"code cell 2 assigns x, y{ITS_OWN}"),
        (
            ["%%time\na = 1e-3\nb: int = -2\nc = d = 1\ne = True\nf = 'x'\ng = 1\n%pwd"],
            f"code cell 1 assigns a, b, c, d and 1 more{ITS_OWN}",
        ),
        (["%%bash\nlr=1", "lr <- 1", "f(lr=1)"], "put what should vary into one, as in"),
    ],
)
def test_the_message_without_a_parameters_cell_proposes_the_cell_to_tag(
    tmp_path: Path, cells: list[str], message: str
) -> None:
    path = write_notebook(tmp_path / "n.ipynb", *cells, parameters="")
    with pytest.raises(NotebookError) as raised:
        ResearchNotebook(path)
    assert f"{path}: no parameters cell; {message}" in str(raised.value)


@pytest.mark.parametrize("language", ["python", "Python 3", "python3", "ipython3"])
def test_all_spellings_of_python_are_python(tmp_path: Path, language: str) -> None:
    path = write_notebook(tmp_path / "n.ipynb", parameters="lr = 1\nseed = 0")
    content = json.loads(path.read_text())
    content["metadata"]["kernelspec"]["language"] = language
    path.write_text(json.dumps(content))
    research = ResearchNotebook(path)
    assert research.assigns("seed")
    with pytest.raises(NotebookError, match="'rate' is not assigned"):
        research.check_parameters({"rate": "p.yml: space"})


def test_two_parameters_cells_are_refused(tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "n.ipynb", "y = 2")
    content = json.loads(path.read_text())
    content["cells"][1]["metadata"]["tags"] = ["parameters"]
    path.write_text(json.dumps(content))
    with pytest.raises(NotebookError, match="2 cells are tagged 'parameters'; keep the tag on one"):
        ResearchNotebook(path)


def test_a_notebook_that_names_no_kernel_gets_the_chosen_one(tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "n.ipynb")
    content = json.loads(path.read_text())
    del content["metadata"]["kernelspec"]["name"]
    path.write_text(json.dumps(content))
    spec = ResearchNotebook(path).fresh_copy("mine").metadata.kernelspec
    assert spec == {"name": "mine", "display_name": "mine", "language": "python"}
    content["metadata"]["language_info"] = {"name": "julia"}
    path.write_text(json.dumps(content))
    research = ResearchNotebook(path)
    assert research.fresh_copy("julia-1.9").metadata.kernelspec.language == "julia"
    with pytest.raises(NotebookError, match="names no kernel, and its language is julia; choose a"):
        research.kernel_name  # noqa: B018


def test_the_message_for_an_unassigned_name_has_the_nearest_assigned_one(tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "n.ipynb", parameters="learning_rate = 1\nwidth = 2")
    research = ResearchNotebook(path)
    research.check_parameters(dict.fromkeys(["width", "learning_rate"], "p.yml: space"))
    with pytest.raises(NotebookError) as raised:
        research.check_parameters(dict.fromkeys(["width", "learnin_rate", "zzz"], "p.yml: space"))
    first, second = str(raised.value).splitlines()
    assert first.startswith("p.yml: space: 'learnin_rate' is not assigned in the parameters cell")
    assert str(path) in first
    assert first.endswith("did you mean 'learning_rate'?")
    assert "'zzz'" in second
    assert second.endswith("known: learning_rate, width")


def test_a_parameters_cell_with_a_syntax_error_is_refused_with_the_line(tmp_path: Path) -> None:
    faults = ("x = 1\ny = = 2", "%%time\ny = = 2", "%matplotlib inline\ny = = 2")
    for source, line in (*((fault, ", line 2") for fault in faults), ("x = '\0'", "")):
        research = ResearchNotebook(write_notebook(tmp_path / "n.ipynb", parameters=source))
        with pytest.raises(NotebookError, match=f"the parameters cell{line}: .*only assign names"):
            research.check_parameters(dict.fromkeys(["x"], "p.yml"))


def test_the_parameters_cell_of_another_language_is_not_checked(tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "n.ipynb", parameters="lr <- 1", kernel="ir")
    path.write_text(path.read_text().replace('"language": "python"', '"language": "R"'))
    research = ResearchNotebook(path)
    assert research.parameters() is None
    research.check_parameters(dict.fromkeys(["anything"], "p.yml"))


def test_a_fresh_copy_contains_nothing_of_an_earlier_execution(tmp_path: Path) -> None:
    path = write_notebook(tmp_path / "n.ipynb", "print(x)")
    content = json.loads(path.read_text())
    content["metadata"] |= {"sweeper": {"state": "completed"}, "papermill": {"a": 1}}
    content["metadata"] |= {"widgets": {}, "mine": "kept"}
    cell = content["cells"][1]
    cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "1.0\n"}]
    cell["execution_count"] = 4
    cell["metadata"] |= {"papermill": {"status": "completed"}, "execution": {}, "mine": "kept"}
    path.write_text(json.dumps(content))
    research = ResearchNotebook(path)
    fresh = research.fresh_copy()

    assert fresh.metadata.keys() == {"kernelspec", "mine"}
    assert fresh.cells[1].metadata == {"mine": "kept", "tags": []}
    assert (fresh.cells[1].outputs, fresh.cells[1].execution_count) == ([], None)
    assert [cell.source for cell in fresh.cells] == ["x = 1.0", "print(x)"]
    fresh.cells[0].source = "x = 2"
    assert research.fresh_copy().cells[0].source == "x = 1.0"
    assert json.loads(path.read_text()) == content
