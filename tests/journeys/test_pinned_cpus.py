"""A sweep whose trials have processor cores of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweeper import Settings, Sweep
from sweeper.execution.machine.core_sets import why_not
from sweeper.testing import write_notebook

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(bool(why_not(2)), reason=why_not(2)),
]

CELLS = (
    "import os, subprocess, sys, time",
    "began = time.time()\n"
    "mine = sorted(os.sched_getaffinity(0))\n"
    "look = 'import os; print(sorted(os.sched_getaffinity(0)))'\n"
    "child = subprocess.check_output([sys.executable, '-c', look], text=True).strip()\n"
    "time.sleep(0.3)\n"
    "print(f'{began} {time.time()} {mine[0]} {len(mine)} {child == str(mine)}')\nval = x",
)


def test_trials_at_once_run_on_cores_of_their_own_and_their_children_too(tmp_path: Path) -> None:
    notebook = write_notebook(tmp_path / "nb.ipynb", *CELLS, parameters="x = 1.0")
    settings = Settings.from_mapping(
        {
            "objective": {"val": "maximize"},
            "space": {"x": {"low": 0.0, "high": 1.0}},
            "study": {"trials": 8, "sampler": "random"},
            "resources": {"pin_cpus": "auto"},
        }
    )
    output = f"{tmp_path}/out/{{run_id}}.ipynb"
    sweep = Sweep.from_settings(settings, notebook=notebook, output=output, jobs=2)
    assert "each on 1 core of its own" in sweep.plan.executor.description
    result = sweep.run()
    assert result.counts["completed"] == 8
    seen = []
    for record in result.records:
        cells = json.loads(record.notebook.read_text())["cells"]
        (line,) = [o["text"] for c in cells for o in c.get("outputs", []) if "text" in o]
        began, ended, core, count, is_same = "".join(line).split()
        assert (count, is_same) == ("1", "True")
        seen.append((float(began), float(ended), core))
    pairs = [(a, b) for a in seen for b in seen if a is not b and a[0] < b[1] and b[0] < a[1]]
    assert pairs, "no trials ran at once"
    assert all(a[2] != b[2] for a, b in pairs)
