"""Sweeps in real kernels that run out of the machine's memory, beside each other and alone."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Command
from studies import group_with_counts, small_settings

from sweeper import Sweep
from sweeper.execution.local import LocalExecutor
from sweeper.execution.places import Places
from sweeper.testing import write_notebook
from sweeper.trials import Reason, SweepResult, TrialState

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("started_kernels")]

#: While two trials are here at once, the one that came later is killed as by the system.
CROWD = """
import os, pathlib, signal, sweeper, time
folder, counts = pathlib.Path({folder!r}), pathlib.Path({root!r}, "sys/fs/cgroup/memory.events")
number = sweeper.trial().number

def kill():
    before = int(counts.read_text().split()[1])
    counts.write_text(f"oom_kill {{before + 1}}")
    os.kill(os.getpid(), signal.SIGKILL)

if number in {too_large}:
    kill()
if sweeper.trial().attempt > 1:
    assert not list(folder.glob("*.here")), "it is not alone"
here = folder / f"{{number}}.here"
here.touch()
end_s = time.monotonic() + 60
while number < 2 and sweeper.trial().attempt == 1 and time.monotonic() < end_s:
    if number == 1 and (folder / "0.here").exists():
        here.unlink()
        kill()
    if counts.read_text() != "oom_kill 0":
        break
    time.sleep(0.01)
time.sleep(0.1)
here.unlink()
sweeper.report(0, val=x)
"""


def run(folder: Path, *, too_large: tuple[int, ...] = (), jobs: int = 3) -> SweepResult:
    root = group_with_counts(folder / "root")
    cell = CROWD.format(folder=str(folder), root=str(root), too_large=too_large)
    notebook = write_notebook(folder / "nb.ipynb", cell, parameters="x = 0.5")
    return Sweep.from_settings(
        small_settings("crowd", study={"trials": 5}),
        notebook=notebook,
        output=f"{folder}/out/{{run_id}}.ipynb",
        executor=lambda workload: LocalExecutor(workload, places=Places(root=root), jobs=jobs),
    ).run()


def test_a_trial_that_the_system_kills_beside_others_is_run_again_alone(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.counts["completed"] == 5
    assert [record.attempt for record in result.records] == [1, 2, 1, 1, 1]


def test_a_trial_that_the_system_kills_alone_does_not_fit(tmp_path: Path) -> None:
    result = run(tmp_path, too_large=(2, 3))
    assert result.counts == {"completed": 3, "failed": 2, "pruned": 0, "stopped": 0}
    for record in result.records[2:4]:
        assert (record.state, record.reason) == (TrialState.FAILED, Reason.OUT_OF_HOST_MEMORY)
        assert record.is_infeasible
        assert record.attempt <= 2
    by_run = {trial["run_id"]: trial["infeasible"] for trial in result.to_json()["trials"]}
    assert [run_id for run_id, infeasible in by_run.items() if infeasible] == ["0002", "0003"]


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group whose processes have 1.2 GB together, where one can be made."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    own = {controllers: path.strip("/") for _, controllers, path in lines}
    mount, limit = Path("/sys/fs/cgroup"), "memory.max"
    if "memory" in own:
        mount, limit = mount / "memory", "memory.limit_in_bytes"
    group = mount / own.get("memory", own.get("", "")) / f"sweeper-test-{time.time_ns()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        try:
            (group / limit).write_text(str(1_200_000_000))
        except OSError as error:
            pytest.skip(f"a control group has no limit here: {error}")
        yield group
    finally:
        for _ in range(100):
            try:
                group.rmdir()
                break
            except OSError:  # its last process is about to end
                time.sleep(0.1)


@pytest.mark.slow
def test_trials_share_what_a_container_has_and_those_that_do_not_fit_are_named(
    tmp_path: Path, small_group: Path
) -> None:
    """The system itself kills kernels here; each alone has room for 500 MB and not for 3 GB."""
    cell = """
import pathlib, sweeper, time
pathlib.Path("/proc/self/oom_score_adj").write_text("900")  # before the sweep's own processes
hold = [bytearray(b"x") * 10**7 for _ in range(mb // 10)]
time.sleep(1)
sweeper.report(0, val=x)
"""
    write_notebook(tmp_path / "nb.ipynb", cell, parameters="x = 0.5\nmb = 100")
    (tmp_path / "p.yml").write_text(
        "objective: {val: maximize}\n"
        "study: {name: crowd, trials: 6, sampler: random}\n"
        "space: {x: {low: 0.0, high: 1.0}, mb: [500, 3000]}\n"
        "start: [{mb: 500}, {mb: 500}, {mb: 500}, {mb: 3000}, {mb: 500}, {mb: 500}]\n"
    )
    files = ["-i", "nb.ipynb", "-p", "p.yml", "-o", "out/{run_id}.ipynb"]
    sweeping = Command(*files, "-j", "4", "--json", cwd=tmp_path)
    (small_group / "cgroup.procs").write_text(str(sweeping.pid))  # long before any kernel starts
    stdout, stderr = sweeping.communicate()
    assert sweeping.wait() == 0, stderr
    trials = json.loads(stdout.splitlines()[-1])["trials"]
    assert [trial["state"] for trial in trials] == [
        *["completed"] * 3,
        "failed",
        *["completed"] * 2,
    ]
    assert [trial["infeasible"] for trial in trials] == [number == 3 for number in range(6)]
    assert trials[3]["reason"] == "out_of_host_memory"
    assert any(trial["attempt"] > 1 for trial in trials)
    assert "the system killed the kernel; it is run again with no other trial" in stderr
