"""Test that edits of the notebook or a module during a sweep change nothing in its trials."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from studies import sweep_of

from sweeper.notebooks.metadata import read_metadata
from sweeper.testing import write_notebook
from sweeper.trials import Event, TrialRecord, TrialState

MODEL = """\
from layers.deep import WIDTH

VERSION = "first"


def seen():
    return [VERSION, WIDTH]
"""
CELLS = (
    "import model",
    "%run script.py\n%run helper.ipynb",
    "import importlib\nimport json\nimportlib.reload(model)",
    "import time\ntime.sleep(1)",  # long trials, so that few of them end before kernels are forked
    "print(json.dumps([ran, helped, *model.seen()]))",
    "val = x",
)


def write_project(folder: Path, version: str) -> Path:
    (folder / "layers").mkdir(parents=True, exist_ok=True)
    (folder / "model.py").write_text(MODEL.replace("first", version))
    (folder / "layers" / "__init__.py").write_text("")
    (folder / "layers" / "deep.py").write_text(f"WIDTH = {len(version)}\n")
    (folder / "script.py").write_text(f"ran = '{version}'\n")
    write_notebook(folder / "helper.ipynb", parameters=f"helped = '{version}'")
    return write_notebook(folder / "nb.ipynb", *CELLS, parameters="x = 0.0", shared=3)


def printed_by(record: TrialRecord) -> Any:
    outputs = nbformat.read(record.notebook, as_version=4).cells[-2].outputs
    return json.loads(outputs[0].text)


@pytest.mark.kernel
@pytest.mark.usefixtures("started_kernels")
def test_edits_during_a_sweep_change_no_trial_in_started_or_forked_kernels(
    tmp_path: Path,
) -> None:
    notebook = write_project(tmp_path, "first")
    ended: list[Any] = []

    def observe(event: Event, record: TrialRecord | None) -> None:
        if event is not Event.TRIAL_ENDED or record is None:
            return
        if not ended:
            write_project(tmp_path, "second")
            (tmp_path / "layers" / "deep.py").unlink()
            write_notebook(notebook, "val = 1 / 0", parameters="x = 0.0")
        ended.append(read_metadata(record.notebook))
        if sum(bool(one.shared_cells) for one in ended) >= 2:
            sweep.stop("the test has seen enough")

    options = {"observer": observe}
    sweep = sweep_of(notebook, "frozen", study={"trials": 40}, jobs=2, options=options)
    result = sweep.run()
    records = [record for record in result.records if record.state is TrialState.COMPLETED]
    assert len(records) == len(ended)
    assert {one.kernel for one in ended} == {"cold", "warm"}
    assert [printed_by(record) for record in records] == [["first"] * 3 + [5]] * len(records)
    (finding,) = [one for one in result.findings if "changed while" in one]
    assert finding.startswith(
        f"{notebook}, helper.ipynb, layers/deep.py, model.py, script.py changed while"
    )

    assert {one.snapshot for one in ended} == {ended[0].snapshot}
