"""How soon a new study is at work, and how soon its state is printed.

    uv run benchmarks/start.py [--rounds 7]

In turns: one notebook with papermill's command, until its first cell runs; the same with a new
study of one trial; and `status` of that study. CPU is of the command's own process and what it
waits for.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import nbformat

from sweeper.testing import write_notebook

ROOT = Path(__file__).parents[1]
PARAMETERS = """\
objective: {val: maximize}
space: {x: {low: 0.0, high: 1.0}}
study: {name: start, trials: 1, sampler: random}
"""
#: Wall-clock and CPU seconds.
Took = tuple[float, float]


def run(command: Sequence[str], folder: Path) -> Took:
    """Run a command to its end."""
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    took_s, after = time.monotonic() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def first_cell(command: Sequence[str], folder: Path, executed: Path) -> Took:
    """Wall-clock seconds until the first cell of a command's notebook runs, and its CPU."""
    began_s = time.time()
    _, cpu_s = run(command, folder)
    cells = nbformat.read(folder / executed, as_version=4).cells
    (text,) = (o.text for cell in cells for o in cell.get("outputs", []) if o.name == "stdout")
    return float(text) - began_s, cpu_s


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=7, help="of each (default: 7)")
    options = parser.parse_args()
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    ours = [sys.executable, str(ROOT / "notebook_hpo.py")]
    took: dict[str, list[Took]] = {
        "papermill's command, first cell": [],
        "a new study, first cell": [],
        "`status`, whole": [],
    }
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            cells = ("import time\nprint(time.time())\nval = x",)
            write_notebook(folder / "nb.ipynb", *cells, parameters="x = 0.5")
            (folder / "p.yml").write_text(PARAMETERS)
            papermill = [sys.executable, "-m", "papermill", "nb.ipynb", "papermill.ipynb"]
            sweep = [*ours, "-i", "nb.ipynb", "-p", "p.yml", "-o", "out/{run_id}.ipynb"]
            alone, study, status = took.values()
            alone.append(first_cell(papermill, folder, Path("papermill.ipynb")))
            study.append(first_cell(sweep, folder, Path("out/0000.ipynb")))
            status.append(run([*ours, "status", "out/start"], folder))
    print("| | after | CPU of the command |\n|---|---|---|")
    for what, seconds in took.items():
        wall_s, cpu_s = (statistics.median(column) for column in zip(*seconds, strict=True))
        print(f"| {what} | {wall_s:.2f} s | {cpu_s:.2f} s |")


if __name__ == "__main__":
    main()
