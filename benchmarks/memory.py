"""Memory that a kernel has to itself, four at once: started, forked, forked after the shared cells.

    uv run --with wordfreq benchmarks/memory.py

Each trial reads its own figures when its cells have run, and waits for the others; unique memory is
what would be free if it ended (USS), its share counts shared pages by their users (PSS).
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import tempfile
from pathlib import Path

from overhead import NOTEBOOKS, ONE_THREAD

from sweeper import Settings, Sweep
from sweeper.testing import write_notebook

#: Writes to a file: scores that are never the same twice would keep kernels from being forked.
LOOK = (
    "import json, os, pathlib, time\ntime.sleep(1 + 0 * x)\n"
    "with open('/proc/self/smaps_rollup') as file:\n"
    "    kib = {line.split()[0]: int(line.split()[1]) for line in file if 'kB' in line}\n"
    "unique = kib['Private_Clean:'] + kib['Private_Dirty:']\n"
    "number = json.loads(os.environ['SWEEPER_TRIAL'])['number']\n"
    "figures = [n / 1024 for n in (unique, kib['Pss:'], kib['Rss:'])]\n"
    "pathlib.Path(f'{number}.json').write_text(json.dumps(figures))\nval = x"
)
KINDS = {"started": {"kernels": "cold"}, "forked": {"prefix": "off"}, "after the shared cells": {}}
NAMES = ("two lines", "imports", "data")
JOBS, TRIALS = 4, 24


def main() -> None:
    """Measure and print one table."""
    logging.disable(logging.WARNING)
    os.environ.update(ONE_THREAD)
    print("| notebook | kernels | unique MiB | share MiB | resident MiB | forked |")
    print("|---|---|---|---|---|---|")
    for name in NAMES:
        for kind, execution in KINDS.items():
            with tempfile.TemporaryDirectory() as folder:
                leading, rest = NOTEBOOKS[name]
                notebook = write_notebook(
                    Path(folder) / "nb.ipynb", *leading, *rest, LOOK, parameters="x = 0.5"
                )
                settings = Settings.from_mapping(
                    {
                        "objective": {"val": "minimize"},
                        "space": {"x": {"low": 0.0, "high": 1.0}},
                        "execution": execution,
                        "study": {"name": "memory", "trials": TRIALS, "sampler": "random"},
                    }
                )
                output = f"{folder}/out/{{run_id}}.ipynb"
                result = Sweep.from_settings(
                    settings, notebook=notebook, output=output, jobs=JOBS
                ).run()
                # The last ones have their kernels from the best way that the sweep has found.
                last = [record.number for record in result.records[-2 * JOBS :]]
                figures = [json.loads(Path(folder, f"{n}.json").read_text()) for n in last]
            medians = " | ".join(
                f"{statistics.median(some):.0f}" for some in zip(*figures, strict=True)
            )
            forked = f"{sum(kernel.is_forked for kernel in result.kernels)} of {TRIALS}"
            print(f"| {name} | {kind} | {medians} | {forked} |", flush=True)


if __name__ == "__main__":
    main()
