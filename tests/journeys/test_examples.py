"""The example notebooks, swept as the README says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from commands import call

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.usefixtures("started_kernels")]

ROOT = Path(__file__).parents[2]


def run(folder: Path, name: str, *more: str, parameters: str | None = None) -> dict[str, Any]:
    """The result of sweeping an example from the repository's root, with outputs elsewhere."""
    files = ["-i", f"notebooks/{name}.ipynb", "-p", f"parameters/{parameters or name}.yml"]
    output = f"{folder}/{name}.{{run_id}}.ipynb"
    done = call(*files, "-o", output, "--json", *more, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_digits_learns_and_scores_the_same_alone_and_beside_others(tmp_path: Path) -> None:
    # Batches do not depend on the number of workers either, of which each imports torch anew.
    small = ["--set", "epochs=1", "--set"]
    alone = run(tmp_path / "alone", "digits", "--trials", "1", "-j", "1", *small, "num_workers=1")
    beside = run(tmp_path / "beside", "digits", "--trials", "2", "-j", "2", *small, "num_workers=0")
    assert alone["best"]["scores"]["val_acc"] > 0.85
    first = beside["trials"][0]
    assert first["params"] == alone["best"]["params"]
    assert first["scores"] == alone["best"]["scores"]
    assert set(first["scores"]) == {
        *("train_loss", "train_top1", "train_top5"),
        *("val_loss", "val_top1", "val_top5", "val_acc"),
    }


def test_untouched_is_swept_without_importing_sweeper(tmp_path: Path) -> None:
    source = (ROOT / "notebooks" / "untouched.ipynb").read_text()
    assert "sweeper" not in source
    result = run(tmp_path, "untouched", "--trials", "2", "-j", "2")
    assert result["counts"]["completed"] == 2
    assert {"val_acc", "val_loss"} <= set(result["best"]["scores"])


def test_resnet_runs_anywhere_with_its_smoke_setting(tmp_path: Path) -> None:
    more = ["--trials", "1", "--set", "start_size=0.5"]
    result = run(tmp_path, "resnet", *more, parameters="resnet-smoke")
    scores = result["best"]["scores"]
    assert {"pretrain_loss", "train_loss", "val_top1", "val_top5"} <= set(scores)
    node = nbformat.read(result["best"]["notebook"], as_version=4)
    assert {cell.metadata["papermill"]["status"] for cell in node.cells} == {"completed"}
    printed = "".join(o.text for cell in node.cells for o in cell.get("outputs", ()) if "text" in o)
    assert re.findall(r"epoch \d, (\d+) pixels", printed) == ["16", "16", "32"]
