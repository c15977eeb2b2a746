"""Kernels are forked before the proof only where that saves time and can lose no work."""

from __future__ import annotations

from pathlib import Path

import pytest
from studies import workload_of

from sweeper.execution.early_start import pays
from sweeper.testing import write_notebook
from sweeper.trials import RunningTrial

SAVES = "sweeper.save_checkpoint(epoch=epoch)"


@pytest.mark.parametrize(
    ("cell", "kernels", "slots", "trials_left", "usual_s", "is_early"),
    [
        ("train()", "auto", 2, 20, None, True),
        ("train()", "auto", 1, 20, None, False),
        ("train()", "auto", 8, 16, None, False),
        ("train()", "auto", 2, 20, 60.0, True),
        ("train()", "auto", 2, 20, 3600.0, False),
        ("train()", "fork", 2, 20, 3600.0, True),
        (SAVES, "auto", 2, 20, None, False),
        ("ModelCheckpoint(sweeper.trial().checkpoint_dir)", "auto", 2, 20, None, False),
        (SAVES, "fork", 2, 20, None, True),
    ],
)
def test_no_kernel_is_forked_early_if_trials_are_long_or_save_checkpoints(
    cell: str,
    kernels: str,
    slots: int,
    trials_left: int,
    usual_s: float | None,
    is_early: bool,
    tmp_path: Path,
) -> None:
    workload = workload_of(write_notebook(tmp_path / "nb.ipynb", cell), kernels=kernels)
    running = RunningTrial(trials_left=trials_left, usual_s=usual_s)
    assert pays(workload, running, slots) is is_early
