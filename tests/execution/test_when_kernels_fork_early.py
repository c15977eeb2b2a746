"""Kernels may be forked early: before the proof that forking changes no result.

They are forked early only if that saves time and no work can be lost.
"""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from studies import workload_of

from sweeper.execution.attempt import Attempt
from sweeper.execution.earlier_attempt import make_way
from sweeper.execution.early_start import pays
from sweeper.kernels import KernelOrigin, Proof, Verdict
from sweeper.study_folder.patience import Patience
from sweeper.testing import trial_spec, write_notebook
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
def test_kernels_are_forked_while_the_first_trial_runs_only_if_it_saves_time_and_loses_no_work(
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


def attempt_in_a_fork(folder: Path, verdict: Verdict) -> Attempt:
    """Return an attempt in a kernel that was forked early. The fork policy gives this verdict."""
    policy = SimpleNamespace(verdict=lambda _: verdict)
    site: Any = SimpleNamespace(
        workload=workload_of(write_notebook(folder / "nb.ipynb", "train()")),
        environment="",
        patience=Patience("the outputs", may_pass=lambda _: False),
        pool=SimpleNamespace(policy=policy, fork_server=SimpleNamespace(available=None)),
    )
    spec = trial_spec(
        0, notebook=folder / "0000.ipynb", checkpoint_dir=folder / "checkpoints" / "0000"
    )
    return Attempt(spec, RunningTrial(), site, origin=KernelOrigin(is_forked=True))


@pytest.mark.parametrize(
    ("verdict", "ends_by"), [(Verdict.RUN_AGAIN, -signal.SIGKILL), (Verdict.PENDING, 0)]
)
def test_a_trial_in_a_forked_kernel_is_killed_if_forking_is_found_to_change_results(
    verdict: Verdict, ends_by: int, tmp_path: Path
) -> None:
    attempt = attempt_in_a_fork(tmp_path, verdict)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as kernel:
        attempt.running.points.pid = kernel.pid
        attempt._write()
    assert kernel.returncode == ends_by
    assert attempt.is_disproven is (verdict is Verdict.RUN_AGAIN)


@pytest.mark.parametrize(("proof", "is_kept"), [(Proof.PENDING, False), (Proof.EQUAL, True)])
def test_a_trial_resumes_checkpoints_of_a_fork_only_if_forking_was_proven_to_change_nothing(
    proof: Proof, is_kept: bool, tmp_path: Path
) -> None:
    earlier = attempt_in_a_fork(tmp_path, Verdict.PENDING).file
    earlier.note(proof=proof)
    earlier.write()
    folder = tmp_path / "checkpoints" / "0000"
    folder.mkdir(parents=True)
    again = trial_spec(
        0,
        notebook=tmp_path / "again.ipynb",
        checkpoint_dir=folder,
        attempt=2,
        continues=earlier.path,
    )
    assert make_way(again, Patience("the outputs", may_pass=lambda _: False)) is None
    assert folder.exists() is is_kept
