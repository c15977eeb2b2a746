"""Build notebooks and trial specs for tests. A test passes only the values that matter to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat

from ..notebooks.research import PARAMETERS_TAG
from ..notebooks.shared_cells import SHARED_TAG
from ..trials import TrialSpec, run_id_of


def write_notebook(
    path: Path,
    *cells: str,
    parameters: str = "x = 1.0",
    kernel: str = "python3",
    shared: int = 0,
) -> Path:
    """Write a notebook from the source of its cells.

    Args:
        path: Path of the notebook. Missing folders are made.
        *cells: Sources of the code cells after the parameters cell.
        parameters: Source of the parameters cell. Empty for a notebook without one.
        kernel: Name of the notebook's kernel.
        shared: Number of cells, from the first of `cells`, that get the tag `shared`. A sweep runs
            cells with this tag once for all trials.

    Returns:
        `path`.
    """
    v4 = nbformat.v4
    node = v4.new_notebook()
    node.metadata["kernelspec"] = {"name": kernel, "language": "python", "display_name": kernel}
    if parameters:
        tagged = v4.new_code_cell(parameters)
        tagged.metadata["tags"] = [PARAMETERS_TAG]
        node.cells.append(tagged)
    for number, source in enumerate(cells):
        metadata = {"tags": [SHARED_TAG]} if number < shared else {}
        node.cells.append(v4.new_code_cell(source, metadata=metadata))
    for index, cell in enumerate(node.cells):
        cell["id"] = f"cell-{index}"  # A random id would differ in each call.
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(nbformat.writes(node), encoding="utf-8")
    return path


def trial_spec(number: int = 7, **changes: Any) -> TrialSpec:
    """Return the spec of a trial.

    Args:
        number: Trial number in the study.
        **changes: Fields of `TrialSpec` whose values replace the defaults below.
    """
    run_id = run_id_of(number)
    usual: dict[str, Any] = {
        "study": "digits",
        "study_id": "d1g175",
        "number": number,
        "params": {"lr": 0.1},
        "fixed": {},
        "seed": 123,
        "attempt": 1,
        "notebook": Path(f"out/digits.{run_id}.ipynb"),
        "checkpoint_dir": Path(f"out/digits/checkpoints/{run_id}"),
        "artifact_dir": Path(f"out/digits/artifacts/{run_id}"),
    }
    return TrialSpec(**{**usual, **changes})
