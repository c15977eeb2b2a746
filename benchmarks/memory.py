"""Memory that a kernel has to itself, four at once: started, forked, forked after the shared cells.

    uv run --with wordfreq benchmarks/memory.py

Each trial reads its own figures when its cells have run, and waits for the others; unique memory is
what would be free if it ended (USS), its share counts shared pages by their users (PSS).
"""

from __future__ import annotations

import logging
import os
import statistics
import tempfile
from pathlib import Path

from overhead import NOTEBOOKS, ONE_THREAD

from sweeper import Settings, Sweep
from sweeper.testing import write_notebook

LOOK = (
    "import time\ntime.sleep(1 + 0 * x)\n"
    "with open('/proc/self/smaps_rollup') as file:\n"
    "    kib = {line.split()[0]: int(line.split()[1]) for line in file if 'kB' in line}\n"
    "val, unique = x, (kib['Private_Clean:'] + kib['Private_Dirty:']) / 1024\n"
    "share, resident = kib['Pss:'] / 1024, kib['Rss:'] / 1024"
)
KINDS = {"started": {"kernels": "cold"}, "forked": {"prefix": "off"}, "after the shared cells": {}}
SCORES = ("unique", "share", "resident")
NAMES = ("two lines", "imports", "data")
JOBS, TRIALS = 4, 24


def main() -> None:
    """Measure and print one table."""
    logging.disable(logging.WARNING)
    os.environ.update(ONE_THREAD)
    print("| notebook | kernels | unique MiB | share MiB | resident MiB |\n|---|---|---|---|---|")
    for name in NAMES:
        for kind, execution in KINDS.items():
            with tempfile.TemporaryDirectory() as folder:
                leading, rest = NOTEBOOKS[name]
                notebook = write_notebook(
                    Path(folder) / "nb.ipynb", *leading, *rest, LOOK, parameters="x = 0.5"
                )
                result = Sweep.from_settings(
                    Settings.from_mapping(
                        {
                            "objective": {
                                "val": "minimize"
                            },  # not the figures: they are never the same twice
                            "scores": {n: {"variable": n} for n in SCORES},
                            "space": {"x": {"low": 0.0, "high": 1.0}},
                            "execution": execution,
                            "study": {"name": "memory", "trials": TRIALS, "sampler": "random"},
                        }
                    ),
                    notebook=notebook,
                    output=f"{folder}/{{run_id}}.ipynb",
                    jobs=JOBS,
                ).run()
            last = [record.scores for record in result.records[-2 * JOBS :]]
            unique, share, resident = (
                statistics.median(scores[score] for scores in last) for score in SCORES
            )
            print(f"| {name} | {kind} | {unique:.0f} | {share:.0f} | {resident:.0f} |", flush=True)


if __name__ == "__main__":
    main()
