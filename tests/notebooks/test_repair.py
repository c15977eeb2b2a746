"""Faults in a notebook's JSON that are repaired, so that the notebook runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

from sweeper.notebooks.research import ResearchNotebook
from sweeper.testing import write_notebook


def add_fault(content: Any, fault: str) -> None:
    """Put a fault into a notebook of two cells, of which the first is the parameters cell."""
    metadata, (tagged, second) = content["metadata"], content["cells"]
    match fault:
        case "a tag stands twice":
            tagged["metadata"]["tags"] = ["parameters", "a", "parameters"]
        case "ids stand twice":
            second["id"] = tagged["id"]
        case "ids are no ids":
            tagged["id"], second["id"] = "not an id", 7
        case "ids in an older format":
            content["nbformat_minor"] = 2
        case "no minor format":
            del content["nbformat_minor"]
        case "no outputs":
            del second["outputs"], second["execution_count"]
        case "outputs of no kind":
            second["outputs"] = [{"text": "x"}, None, {"output_type": "stream"}]
        case "left over from an older format":
            second |= {"collapsed": False, "prompt_number": 3, "language": "python"}
        case "attachments of a code cell":
            second["attachments"] = {}
        case "cells without metadata":
            del second["metadata"]
        case "metadata of the wrong type":
            second["metadata"] |= {"collapsed": "yes", "scrolled": 3, "name": 7, "jupyter": 1}
            metadata |= {"authors": "somebody", "title": 3, "orig_nbformat": "x"}
        case "a number that JSON has not":
            metadata["weight"] = float("nan")
        case "a kernel without a name":
            del metadata["kernelspec"]["name"]
        case "a kernel that is only a name":
            metadata["kernelspec"] = {"name": "mine"}
        case "nothing":
            pass
        case _:
            raise AssertionError(fault)


@pytest.mark.parametrize(
    "fault",
    [
        *(
            "a tag stands twice",
            "ids stand twice",
            "ids are no ids",
            "ids in an older format",
            "no minor format",
        ),
        *("no outputs",),
        *("outputs of no kind", "left over from an older format"),
        *("attachments of a code cell", "cells without metadata", "metadata of the wrong type"),
        *("a number that JSON has not", "a kernel without a name"),
        *("a kernel that is only a name", "nothing"),
    ],
)
def test_a_fault_that_does_not_change_which_code_runs_is_repaired(
    tmp_path: Path, fault: str
) -> None:
    path = write_notebook(tmp_path / "n.ipynb", "print(x)")
    content = json.loads(path.read_text())
    add_fault(content, fault)
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
