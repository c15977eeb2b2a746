"""How soon a report on a worker of a Dask cluster is at home, beside one on this machine.

    uv run benchmarks/cluster.py

One trial reports 100 times, every 30 ms, with the time of each report; sweep and worker are on this
machine, so that they have one clock.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from dask_clusters import started

from sweeper.execution.cluster.executor import ClusterExecutor
from sweeper.execution.executor import Executor
from sweeper.execution.gpus import GpuAllocator
from sweeper.execution.local import LocalExecutor
from sweeper.execution.workload import Workload
from sweeper.notebooks import ResearchNotebook
from sweeper.settings import Settings
from sweeper.settings.machines import Cluster
from sweeper.testing import trial_spec, write_notebook
from sweeper.testing.executor_contract import ListedTrials
from sweeper.trials import RunningTrial, StudyPaths, TrialSpec

REPORTS = """
import sweeper, time
for step in range(100):
    sweeper.report(step, sent_at_s=time.time())
    time.sleep(0.03)
"""
#: The first reports come while the notebook's file is written for the first time.
WARM_UP = 5


def measure(name: str, make: Callable[[Workload], Executor]) -> None:
    """Run the trial once and print what it took."""
    folder = Path(tempfile.mkdtemp())
    workload = Workload(
        notebook=ResearchNotebook(write_notebook(folder / "nb.ipynb", REPORTS)),
        settings=Settings.from_mapping(
            {
                "objective": {"sent_at_s": "maximize"},
                "space": {"x": [1, 2]},
                "execution": {"kernels": "cold"},
            }
        ),
        kernel_name="python3",
        cwd=folder,
        paths=StudyPaths.parse(str(folder / "{run_id}.ipynb"), study="reports"),
    )
    took_s: list[float] = []

    def on_point(_: TrialSpec, running: RunningTrial) -> None:
        if running.step is not None and running.step > WARM_UP:
            took_s.append(time.time() - running.metrics["sent_at_s"])

    spec = trial_spec(0, notebook=folder / "0000.ipynb", checkpoint_dir=folder / "checkpoints")
    executor = make(workload)
    cpu_s = time.process_time()
    executor.run(ListedTrials([spec], on_point=on_point))
    cpu_s = time.process_time() - cpu_s
    took_s.sort()
    median_ms, late_ms = 1e3 * statistics.median(took_s), 1e3 * took_s[int(0.95 * len(took_s))]
    print(f"{name}: median {median_ms:.1f} ms, 95 % within {late_ms:.0f} ms, {cpu_s:.2f} s of CPU")


def main() -> None:
    """Measure both, twice."""
    with started(workers=1, threads=1) as address:
        for _ in range(2):
            measure(
                "cluster",
                lambda workload: ClusterExecutor.open(
                    workload, Cluster.model_validate(address), None, own_folders=True
                ),
            )
            measure(
                "here",
                lambda workload: LocalExecutor(workload, gpus=GpuAllocator((), threads=1), jobs=1),
            )


if __name__ == "__main__":
    main()
