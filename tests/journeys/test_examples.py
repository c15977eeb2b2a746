"""Test that the example notebooks can be swept as the README says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from commands import call

from sweeper.notebooks.reading import read_notebook

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.usefixtures("started_kernels")]

ROOT = Path(__file__).parents[2]


def run(folder: Path, name: str, *more: str, parameters: str | None = None) -> dict[str, Any]:
    """Sweep an example from the repository's root with another output folder. Return the result."""
    files = ["-i", f"notebooks/{name}.ipynb", "-p", f"parameters/{parameters or name}.yml"]
    output = f"{folder}/{name}.{{run_id}}.ipynb"
    done = call(*files, "-o", output, "--json", *more, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_the_example_digits_learns_and_reports_all_its_scores(tmp_path: Path) -> None:
    small = ["--trials", "1", "--set", "epochs=1", "--set", "num_workers=0", "--cold"]
    scores = run(tmp_path, "digits", *small)["best"]["scores"]
    assert scores["val_acc"] > 0.85
    assert set(scores) == {
        *("train_loss", "train_top1", "train_top5"),
        *("val_loss", "val_top1", "val_top5", "val_acc"),
    }


def test_the_example_notebook_is_swept_although_it_does_not_import_sweeper(tmp_path: Path) -> None:
    source = (ROOT / "notebooks" / "untouched.ipynb").read_text()
    assert "sweeper" not in source
    result = run(tmp_path, "untouched", "--trials", "1", "--cold")
    assert {"val_acc", "val_loss"} <= set(result["best"]["scores"])


def test_the_example_resnet_runs_on_a_machine_without_a_gpu_with_resnet_smoke_yml(
    tmp_path: Path,
) -> None:
    more = ["--trials", "1", "--set", "start_size=0.5", "--cold"]
    result = run(tmp_path, "resnet", *more, parameters="resnet-smoke")
    scores = result["best"]["scores"]
    assert {"pretrain_loss", "train_loss", "val_top1", "val_top5"} <= set(scores)
    node = read_notebook(Path(result["best"]["notebook"]))
    assert {cell.metadata["papermill"]["status"] for cell in node.cells} == {"completed"}
    printed = "".join(o.text for cell in node.cells for o in cell.get("outputs", ()) if "text" in o)
    assert re.findall(r"epoch \d, (\d+) pixels", printed) == ["16", "16", "32"]
