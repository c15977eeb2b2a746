"""A study of six trials that ran without kernels, for the tests of commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from studies import sweep_of

from sweeper.testing import write_notebook
from sweeper.trials import RunningTrial, TrialOutcome, TrialSpec, TrialState

SPACE = {
    "x": {"low": 0.0, "high": 1.0},
    "kind": ["a", "<b>", 3],
    "depth": {"low": 1, "high": 3, "when": {"kind": "a"}},
    "seed": [1, 2],
}
#: Params of the start trials. The second one has the params of the first one.
START: list[dict[str, Any]] = [
    *[{"x": 0.5, "kind": "a", "depth": 1, "seed": 1}] * 2,
    {"x": 0.25, "kind": "a", "depth": 1, "seed": 1},
    {"x": 0.75, "kind": "<b>", "seed": 2},
    {"x": 1 / 3, "kind": 3, "seed": 2},
    {"x": 1.0, "kind": "<b>", "seed": 1},
]


def run_trial(spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
    """Write an executed notebook with points and an output. The trial with number 3 fails."""
    x = float(str(spec.params["x"]))
    node = nbformat.read(write_notebook(spec.notebook, "<script>alert(1)</script>"), as_version=4)
    new_output: Any = nbformat.v4.new_output
    node.cells[-1].outputs = [new_output("stream", name="stdout", text=f"one\n{x}\n")]
    node.metadata["sweeper"] = {
        "fixed": {"epochs": 10 if spec.number < 5 else 30},
        "series": {"val": {"steps": [0, 1, 1], "values": [0.0, x / 2, x]}},
        "printed": {"loss": {"steps": [1], "values": [0.25]}},
    }
    nbformat.write(node, spec.notebook)
    if spec.number == 3:
        return TrialOutcome(state=TrialState.FAILED, message="In [2]: ValueError: no")
    return TrialOutcome(state=TrialState.COMPLETED, scores={"val": x, "loss": 1 - x})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sweep the study `seen`. Return its folder."""
    folder = tmp_path_factory.mktemp("a study")
    parameters = "x, kind, depth, seed = 0, 'a', 1, 1"
    scores = {"loss": {"pattern": r"loss=(\S+)"}}
    study = {"trials": len(START)}
    notebook = write_notebook(folder / "nb.ipynb", "val = x", parameters=parameters)
    sections: dict[str, Any] = {"space": SPACE, "start": START, "scores": scores}
    result = sweep_of(notebook, "seen", run_trial, study=study, **sections).run()
    assert result.page == folder / "out" / "seen" / "index.html"
    return folder / "out" / "seen"
