"""Faults in a notebook's JSON that are repaired, so that the notebook runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

from sweeper.notebooks.research import ResearchNotebook
from sweeper.testing import write_notebook

#: What a fault changes of the notebook, its metadata, its parameters cell and the cell after it;
#: None for what it removes.
FAULTS: dict[str, dict[str, dict[str, Any]]] = {
    "a tag stands twice": {"tagged": {"metadata": {"tags": ["parameters", "a", "parameters"]}}},
    "ids stand twice": {"second": {"id": "cell-0"}},
    "ids are no ids": {"tagged": {"id": "not an id"}, "second": {"id": 7}},
    "ids in an older format": {"notebook": {"nbformat_minor": 2}},
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
def test_a_fault_that_does_not_change_which_code_runs_is_repaired(
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
    assert research.assignments.replaceable() == ["x"]
    fresh = research.fresh_copy()
    nbformat.validate(fresh)
    assert [cell.source for cell in fresh.cells] == ["x = 1.0", "print(x)"]
    assert "parameters" in fresh.cells[0].metadata.tags
    assert len({cell.id for cell in fresh.cells}) == 2
    assert "NaN" not in nbformat.writes(fresh)
    assert path.read_text() == json.dumps(content)
