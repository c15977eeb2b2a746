"""Test trials that run in forked kernels from the start of a sweep.

Their outcomes are recorded only after one trial has had equal results in a fresh and in a forked
kernel.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import Command, project
from studies import processes_in, sweep_of, until

from sweeper.notebooks.metadata import BLANK, read_metadata
from sweeper.testing import write_notebook
from sweeper.trials import Event, TrialRecord, TrialState

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux only"),
    pytest.mark.usefixtures("started_kernels_here"),
]

IMPORTS = "import numpy\nimport os, time\nfrom pathlib import Path"
#: A cell with which the trial in a fresh kernel ends only after others ran in forked kernels.
FIRST_WAITS = """
is_forked = 'zygote/__main__' in Path(f'/proc/{os.getppid()}/cmdline').read_text()
if not is_forked:
    end_s = time.monotonic() + 120
    while len(list(Path('.').glob('ran-*'))) < ENOUGH and time.monotonic() < end_s:
        time.sleep(0.1)
"""
HAS_RUN = "Path(f'ran-{x}').touch()"


def sweep(folder: Path, score: str) -> tuple[Any, list[str]]:
    """Run eight trials, two at once. Return the result, and run ids in the order of the ends."""
    waits = FIRST_WAITS.replace("ENOUGH", "2")
    notebook = write_notebook(
        folder / "nb.ipynb", IMPORTS, waits, score, HAS_RUN, parameters="x = 1\nseed = 0"
    )
    ended: list[str] = []

    def observe(event: Event, record: TrialRecord | None) -> None:
        if event is Event.TRIAL_ENDED and record is not None and record.is_final:
            ended.append(record.run_id)

    result = sweep_of(
        notebook,
        "early",
        jobs=2,
        options={"observer": observe},
        space={"x": {"low": 1, "high": 1000}},
        start=[{"x": 1}],
        study={"trials": 8, "sampler": "random"},
    ).run()
    return result, ended


def test_outcomes_of_forked_kernels_are_recorded_only_after_a_fork_equals_a_fresh_kernel(
    tmp_path: Path,
) -> None:
    result, ended = sweep(tmp_path, "val = x")
    found = {r.run_id: read_metadata(r.notebook) or BLANK for r in result.records}
    assert found[ended[0]].kernel == "cold", "earlier ends in forked kernels are recorded later"
    warm = [trial for trial in found.values() if trial.kernel == "warm"]
    assert len(warm) >= 2
    assert {(trial.proof, trial.proven_by) for trial in warm} == {("equal", ended[0])}
    durations = {record.run_id: round(record.duration_s, 3) for record in result.records}
    assert durations == {run_id: trial.duration_s for run_id, trial in found.items()}
    assert {record.attempt for record in result.records} == {1}
    assert {record.scores["val"] - record.params["x"] for record in result.records} == {0}
    assert result.findings == []


def test_trials_of_forked_kernels_run_again_in_started_ones_if_a_forked_run_differs(
    tmp_path: Path,
) -> None:
    result, _ = sweep(tmp_path, "val = x + is_forked")
    assert {record.scores["val"] - record.params["x"] for record in result.records} == {0}
    assert {record.state for record in result.records} == {TrialState.COMPLETED}
    assert {(read_metadata(r.notebook) or BLANK).kernel for r in result.records} == {"cold"}
    assert {record.attempt for record in result.records} == {1, 2}
    (finding,) = result.findings
    assert "run again in a forked kernel, differed in val" in finding


def test_trials_in_forked_kernels_without_a_recorded_outcome_run_again_after_a_kill_of_the_sweep(
    tmp_path: Path,
) -> None:
    settings = "study: {trials: 8, sampler: random}\nstart: [{x: 1}]"
    waits = FIRST_WAITS.replace("ENOUGH", "99")
    files = project(IMPORTS, waits, "val = x", HAS_RUN, settings=settings, folder=tmp_path)
    with open(os.devnull, "w") as nowhere:
        sweeping = Command(
            *files, "-j", "2", cwd=tmp_path, stdout=nowhere, stderr=subprocess.STDOUT
        )
        try:
            until(lambda: len(list(tmp_path.glob("ran-*"))) >= 2)
        finally:
            sweeping.kill()
            sweeping.wait()
        until(lambda: not processes_in(tmp_path), "a process is left")
        before = [read_metadata(path) or BLANK for path in (tmp_path / "out").glob("*.ipynb")]
        assert {found.state for found in before} == {TrialState.RUNNING}
        for number in range(99):
            (tmp_path / f"ran-{number}-go").touch()
        resumed = Command(*files, "-j", "2", cwd=tmp_path, stdout=nowhere, stderr=subprocess.STDOUT)
        assert resumed.wait() == 0
    for number in range(8):
        (path,) = (tmp_path / "out").glob(f"*{number:04d}.ipynb")
        found = read_metadata(path) or BLANK
        assert found.state is TrialState.COMPLETED
        assert found.scores["val"] == found.params["x"]
        assert found.attempt == (2 if number < len(before) else 1)
        assert found.proof in ("", "equal")
