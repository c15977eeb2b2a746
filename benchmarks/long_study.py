"""Whether the last trials of a long study cost more than its first: time, CPU and memory.

    TMPDIR=/dev/shm uv run benchmarks/long_study.py

A two-line notebook, thousands of times in one study. The coordinator's memory and CPU are its own;
a trial's time is from one start to the next, times the trials at once.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from sweeper import Settings, Sweep
from sweeper.testing import write_notebook
from sweeper.trials import Event, TrialRecord

#: The kernels of the first trials are started, while the sweep learns what to fork.
WARM_UP = 20


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description="Cost per trial over a long study.")
    parser.add_argument("--trials", type=int, default=5000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--windows", type=int, default=10)
    parser.add_argument("--sampler", default="auto")
    options = parser.parse_args()
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    seen: list[tuple[float, float, float]] = []

    def observe(event: Event, _: TrialRecord | None) -> None:
        if event is Event.TRIAL_STARTED:
            status = Path("/proc/self/status").read_text()
            resident = next(int(x.split()[1]) for x in status.splitlines() if x[:6] == "VmRSS:")
            seen.append((time.monotonic(), time.process_time(), resident / 1024))

    with tempfile.TemporaryDirectory() as folder:
        study = {"name": "long", "trials": options.trials, "sampler": options.sampler}
        data = {"objective": {"val": "maximize"}, "space": {"x": {"low": 0.0, "high": 1.0}}}
        result = Sweep.from_settings(
            Settings.from_mapping({**data, "study": study}),
            notebook=write_notebook(Path(folder) / "nb.ipynb", "y = x * 2", "val = y"),
            output=f"{folder}/{{study}}.{{run_id}}.ipynb",
            jobs=options.jobs,
            observer=observe,
        ).run()
    assert result.counts["completed"] == options.trials, result.counts
    print("| trials | ms a trial | to the first | coordinator, CPU ms | its memory, MiB |")
    print("|---|---|---|---|---|")
    seen = seen[WARM_UP:]
    size = len(seen) // options.windows
    first_s = 0.0
    for window in range(options.windows):
        part = seen[window * size : (window + 1) * size]
        times = [time_s for time_s, _, _ in part]
        # Pairs that lie `jobs` apart, so that each is a whole trial of one slot.
        ahead = zip(times, times[options.jobs :], strict=False)
        trial_s = statistics.median(later - earlier for earlier, later in ahead)
        first_s = first_s or trial_s
        cpu_s = (part[-1][1] - part[0][1]) / (len(part) - 1)
        start = WARM_UP + window * size
        print(
            f"| {start} to {start + size} | {1000 * trial_s:.0f} | {trial_s / first_s:.2f} "
            f"| {1000 * cpu_s:.0f} | {part[-1][2]:.0f} |"
        )


if __name__ == "__main__":
    main()
