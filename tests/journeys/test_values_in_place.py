"""Test that a messy notebook without a parameters cell is swept, and its trials are replayed."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from studies import sweep_of

from sweeper.cli import main
from sweeper.notebooks.reading import read_notebook
from sweeper.testing import write_notebook

pytestmark = pytest.mark.kernel

CELLS = (
    "import random\nseed = 42\nrng = random.Random(seed)",
    "lr, depth = 1e-2, 3  # rate\nsteps: int = 4\nsizes = [\n    depth,\n    8,\n]\nrate = lr * 10",
    "kind = 'flat'\nmomentum = 0.5\nval = rate + depth + steps + momentum + rng.random()",
    "print((lr, depth, steps, kind, momentum))",
)


def test_trials_with_values_replaced_in_a_messy_notebook_are_equal_bit_for_bit_in_a_replay(
    tmp_path: Path,
) -> None:
    notebook = write_notebook(tmp_path / "messy.ipynb", *CELLS, parameters="")
    before = notebook.read_bytes()
    result = sweep_of(
        notebook,
        "messy",
        space={
            "lr": {"low": 0.1, "high": 1.0},
            "kind": ["flat", "steep"],
            "momentum": {"low": 0.6, "high": 0.9, "when": {"kind": "steep"}},
        },
        fixed={"steps": 7},
        start=[{"lr": 0.3, "kind": "steep", "momentum": 0.8}, {"lr": 0.4, "kind": "flat"}],
        study={"trials": 2},
        kernels="cold",
    ).run()
    assert notebook.read_bytes() == before
    first, second = (read_notebook(r.notebook) for r in result.records)
    seed = result.records[0].seed
    assert (
        first.cells[0].source
        == f"import random\nseed = {seed}  # was 42\nrng = random.Random(seed)"
    )
    assert (
        "lr, depth = 0.3, 3  # rate  # was 1e-2\nsteps: int = 7  # was 4" in first.cells[1].source
    )
    assert first.cells[-1].outputs[0].text == "(0.3, 3, 7, 'steep', 0.8)\n"
    assert second.cells[-1].outputs[0].text == "(0.4, 3, 7, 'flat', 0.5)\n"
    # Both trials ran the same code, so they are replayed together. The second one must get the
    # notebook's momentum, and not that of the first one.
    assert main(["replay", str(tmp_path / "out" / "messy"), "--all"]) == 0


def test_a_swept_name_that_is_overwritten_ends_the_sweep_with_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = (
        "lr = 0.1\nscale = 1.0\nsteps = [1]\nfloat = 3",
        "exec('lr = 0.5')\nval = lr + scale\nscale *= 2",
    )
    notebook = write_notebook(tmp_path / "messy.ipynb", *cells, parameters="")
    file = tmp_path / "p.yml"
    file.write_text(
        "study: {trials: 5, sampler: random}\nobjective: {val: maximize}\nkernels: cold\n"
        "space: {lr: {low: 0.0, high: 1.0}, scale: {low: 1.0, high: 2.0}}\nfixed: {steps: [7]}\n"
    )
    words = ["-i", str(notebook), "-p", str(file), "-o", f"{tmp_path}/out/{{run_id}}.ipynb"]
    assert main([*words, "--json"]) == 1
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert (result["counts"]["completed"], result["stop_cause"]) == (2, "worthless")
    assert all(part in printed.err for part in ("lr", "0.5", "code cell 2, line 1 (exec)"))
    for trial in result["trials"]:
        metadata = nbformat.read(trial["notebook"], as_version=4).metadata["sweeper"]
        scale = trial["params"]["scale"] * 2
        assert metadata["values_at_end"] == {"lr": 0.5, "scale": scale, "steps": "[7]"}
