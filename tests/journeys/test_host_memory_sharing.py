"""Test a sweep with real kernels that runs out of its container's memory."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import Command

from sweeper.testing import write_notebook

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.usefixtures("started_kernels")]


@pytest.fixture
def small_group() -> Iterator[Path]:
    """Make a control group whose processes have 1.2 GB together. Skip if this is impossible."""
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
            except OSError:  # the last process of the group is about to end
                time.sleep(0.1)


def test_trials_share_a_containers_memory_and_one_that_does_not_fit_alone_fails_as_infeasible(
    tmp_path: Path, small_group: Path
) -> None:
    """The operating system kills kernels. A trial of 3 GB does not fit into memory."""
    cell = """
import pathlib, sweeper, time
pathlib.Path("/proc/self/oom_score_adj").write_text("900")  # killed before the sweep's process
hold = [bytearray(b"x") * 10**7 for _ in range(mb // 10)]
time.sleep(1)
sweeper.report(0, val=x)
"""
    write_notebook(tmp_path / "nb.ipynb", cell, parameters="x = 0.5\nmb = 100")
    (tmp_path / "p.yml").write_text(
        "objective: {val: maximize}\n"
        "study: {name: crowd, trials: 5, sampler: random}\n"
        "space: {x: {low: 0.0, high: 1.0}, mb: [500, 3000]}\n"
        "start: [{mb: 500}, {mb: 500}, {mb: 500}, {mb: 3000}, {mb: 500}]\n"
    )
    files = ["-i", "nb.ipynb", "-p", "p.yml", "-o", "out/{run_id}.ipynb"]
    sweeping = Command(*files, "-j", "4", "--json", cwd=tmp_path)
    (small_group / "cgroup.procs").write_text(str(sweeping.pid))  # long before any kernel starts
    stdout, stderr = sweeping.communicate()
    assert sweeping.wait() == 0, stderr
    trials = json.loads(stdout.splitlines()[-1])["trials"]
    states = [trial["state"] for trial in trials]
    assert states == [*["completed"] * 3, "failed", "completed"]
    assert [trial["infeasible"] for trial in trials] == [number == 3 for number in range(5)]
    assert trials[3]["reason"] == "out_of_host_memory"
    assert any(trial["attempt"] > 1 for trial in trials)
    assert "the system killed the kernel; it is run again with no other trial" in stderr
