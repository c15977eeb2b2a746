"""Test reading a notebook file: encodings, repaired faults, and messages for other faults."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest

from sweeper.errors import NotebookError
from sweeper.notebooks.reading import cell_tags, read_notebook
from sweeper.notebooks.research import ResearchNotebook
from sweeper.testing import write_notebook


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"# %%\nx = 1", "not a notebook but another text ("),
        (b"", "not a notebook but another text ("),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"[]", "not a notebook: it has no cells"),
        (b"null", "not a notebook: it has no cells"),
        (b"{}", "not a valid notebook"),
        (b'{"nbformat": 9, "nbformat_minor": 0, "metadata": {}, "cells": []}', "not a notebook"),
        (
            b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{"id": "a"}]}',
            "not a valid notebook",
        ),
    ],
)
def test_the_message_for_an_invalid_file_names_the_file_and_the_fault(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "broken.ipynb"
    path.write_bytes(content)
    with pytest.raises(NotebookError) as raised:
        ResearchNotebook(path)
    assert str(raised.value).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["x = 1\n" * 10_001], "code cell 1 has 10,002 lines"),
        (["x = 1"] * 2_001, "2,001 code cells"),
        ([f"data = {'1' * 600_000!r}"] * 2, "1 MB of code"),
    ],
)
def test_a_notebook_with_more_code_than_can_be_checked_in_seconds_is_refused(
    tmp_path: Path, cells: list[str], words: str
) -> None:
    node = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    (tmp_path / "n.ipynb").write_text(json.dumps(node))
    with pytest.raises(NotebookError, match=words):
        ResearchNotebook(tmp_path / "n.ipynb")


@pytest.mark.slow  # the test computes for a second
def test_many_unknown_names_are_refused_within_seconds(tmp_path: Path) -> None:
    lines = [f"y{number} = x + {number}" for number in range(1_000)]
    path = write_notebook(tmp_path / "n.ipynb", "\n".join(lines), parameters="x = 0.5")
    began_s = time.process_time()
    with pytest.raises(NotebookError, match=r"did you mean 'x'|known: x"):
        ResearchNotebook(path).check_names({f"wrong{number}": "space" for number in range(1_000)})
    assert time.process_time() - began_s < 20


def test_the_message_for_a_missing_notebook_names_the_path_as_the_user_wrote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotebookError, match=r"^nowhere\.ipynb: there is no such notebook$"):
        ResearchNotebook("nowhere.ipynb")
    with pytest.raises(NotebookError, match="cannot be read"):
        ResearchNotebook(tmp_path)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_a_notebook_in_utf_16_or_with_a_byte_order_mark_is_read(
    tmp_path: Path, encoding: str
) -> None:
    path = write_notebook(tmp_path / "n.ipynb", parameters="größe = 1")
    path.write_bytes(path.read_text("utf-8").encode(encoding))
    assert ResearchNotebook(path).takes("größe")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": None}, "not a valid notebook: "),
        ({"source": ["x", 1]}, "not a valid notebook: "),
        ({"cell_type": "kode"}, "not a valid notebook: "),
        ({"source": "x = '\ud800'"}, "not a notebook: 'utf-8' codec can't encode"),
    ],
)
def test_a_notebook_is_refused_if_a_repair_of_its_fault_could_change_which_code_runs(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = write_notebook(tmp_path / "n.ipynb", "print(x)")
    content = json.loads(path.read_text())
    content["cells"][1] = {**content["cells"][1], **change}
    path.write_text(json.dumps(content))
    with pytest.raises(NotebookError) as raised:
        ResearchNotebook(path)
    assert str(raised.value).startswith(f"{path}: {message}")
    assert len(str(raised.value).splitlines()) == 1


#: Faults of a notebook's JSON by name: new values for keys of the notebook, of its metadata, of the
#: tagged cell and of the second one. None removes a key.
FAULTS: dict[str, dict[str, dict[str, Any]]] = {
    "a tag stands twice": {"tagged": {"metadata": {"tags": ["parameters", "a", "parameters"]}}},
    "ids stand twice": {"second": {"id": "cell-0"}},
    "ids are no ids": {"tagged": {"id": "not an id"}, "second": {"id": 7}},
    "ids in an older format": {"notebook": {"nbformat_minor": 2}},
    "an older format, without a kernel": {
        "notebook": {"nbformat_minor": 2, "metadata": {}},
        "tagged": {"id": None},
    },
    "no minor format": {"notebook": {"nbformat_minor": None}},
    "no outputs": {"second": {"outputs": None, "execution_count": None}},
    "outputs of no kind": {
        "second": {"outputs": [{"text": "x"}, None, {"output_type": "stream"}]},
    },
    "left over from an older format": {
        "second": {"collapsed": False, "prompt_number": 3, "language": "python"},
    },
    "attachments of a code cell": {"second": {"attachments": {}}},
    "cells without metadata": {"second": {"metadata": None}},
    "metadata of the wrong type": {
        "second": {"metadata": {"collapsed": "yes", "scrolled": 3, "name": 7, "jupyter": 1}},
        "metadata": {"authors": "somebody", "title": 3, "orig_nbformat": "x"},
    },
    "a number that JSON has not": {"metadata": {"weight": float("nan")}},
    "a kernel without a name": {
        "metadata": {"kernelspec": {"language": "python", "display_name": "python3"}},
    },
    "a kernel that is only a name": {"metadata": {"kernelspec": {"name": "mine"}}},
    "nothing": {},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_malformed_notebook_is_repaired_if_the_repair_does_not_change_its_code(
    tmp_path: Path, fault: str
) -> None:
    path = write_notebook(tmp_path / "n.ipynb", "print(x)")
    content = json.loads(path.read_text())
    tagged, second = content["cells"]
    parts = {"notebook": content, "metadata": content["metadata"]}
    parts |= {"tagged": tagged, "second": second}
    for name, changes in FAULTS[fault].items():
        parts[name] |= changes
        for key in [key for key, value in changes.items() if value is None]:
            del parts[name][key]
    path.write_text(json.dumps(content))
    research = ResearchNotebook(path)
    kernel = "mine" if fault == "a kernel that is only a name" else "python3"
    assert (research.kernel_name, research.language) == (kernel, "python")
    assert [*research.assignments.replaceable()] == ["x"]
    fresh = research.fresh_copy()
    nbformat.validate(fresh)
    assert [cell.source for cell in fresh.cells] == ["x = 1.0", "print(x)"]
    assert "parameters" in fresh.cells[0].metadata.tags
    assert len({cell.id for cell in fresh.cells}) == 2
    assert "NaN" not in nbformat.writes(fresh)
    assert path.read_text() == json.dumps(content)


def test_a_script_with_cells_is_read_as_a_notebook_with_its_tags(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    parts = ('# %% tags=["parameters"]\nlr = 0.1', "# %% [markdown]\n# text", "# %%\nacc = lr\n")
    script.write_text("\n\n".join(parts))
    cells = read_notebook(script, for_execution=True).cells
    assert [(cell.cell_type, cell.source) for cell in cells] == [
        ("code", "lr = 0.1"),
        ("markdown", "text"),
        ("code", "acc = lr"),
    ]
    assert cell_tags(cells[0]) == ["parameters"]
    script.write_text("lr = 0.1\n")
    with pytest.raises(
        NotebookError, match="the script has no cells; begin each cell with a line `# %%`"
    ):
        read_notebook(script)
