"""Measure the start of a sweep with the README's first command, in one or more checkouts.

    uv run benchmarks/start.py --rounds 3 [CHECKOUT …]

A checkout is a folder with a version of this repository. In each round, the checkouts take turns,
so that a change of the machine's load affects all of them. Two trials run at once, in two slots.
"slots idle" adds up the seconds in which a slot ran no cells of a trial, from the first trial's
start until the fourth trial was recorded as ended. It contains the wait for imports, and the proof
that forked kernels give the same results as started ones. Except for the time of the command, all
times are read from the study and its executed notebooks.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import nbformat
import optuna

ROOT = Path(__file__).parents[1]
SLOTS = 2
#: The start is over when this number of trials has ended.
TRIALS = 4


@dataclass(frozen=True, kw_only=True)
class Start:
    """The times of one run of the command, in seconds.

    Attributes:
        wall_s: Time of the whole command.
        idle_s: Sum over all slots of the time in which they ran no cells of a trial, until the
            fourth trial's end.
        fourth_s: Time from the first trial's start to the fourth trial's end.
        second_s: Time from the first trial's start to the first cell of the second one.
        ended: Final scores of each trial, by its number, which must not depend on the checkout.
            None for a trial without scores.
    """

    wall_s: float
    idle_s: float
    fourth_s: float
    second_s: float
    ended: dict[int, list[float] | None]


def measured(checkout: Path, folder: Path) -> Start:
    """Run the README's first command in a checkout, and read its timeline."""
    options = ["-i", "notebooks/digits.ipynb", "-p", "parameters/digits.yml", "-j", str(SLOTS)]
    output = f"{folder}/digits.{{run_id}}.ipynb"
    own = checkout / ".venv" / "bin" / "python"
    python = str(own.absolute()) if own.exists() else sys.executable
    began_s = time.monotonic()
    subprocess.run(
        [python, "notebook_hpo.py", *options, "-o", output],
        cwd=checkout,
        check=True,
        capture_output=True,
    )
    wall_s = time.monotonic() - began_s
    study = optuna.load_study(study_name="digits", storage=f"sqlite:///{folder}/digits/study.db")
    trials = study.trials
    starts = [trial.datetime_start.timestamp() for trial in trials if trial.datetime_start]
    ends = [trial.datetime_complete.timestamp() for trial in trials if trial.datetime_complete]
    first_s, fourth_s = min(starts), sorted(ends)[TRIALS - 1]
    runs = [cells_of(path) for path in sorted(folder.glob("digits.*.ipynb"))]
    at_work_s = sum(
        max(0.0, min(end_s, fourth_s) - max(start_s, first_s)) for start_s, end_s in runs
    )
    return Start(
        wall_s=wall_s,
        idle_s=SLOTS * (fourth_s - first_s) - at_work_s,
        fourth_s=fourth_s - first_s,
        second_s=sorted(start_s for start_s, _ in runs)[1] - first_s,
        ended={trial.number: trial.values for trial in trials},
    )


def cells_of(notebook: Path) -> tuple[float, float]:
    """Return when the first cell of an executed notebook began and when its last cell ended."""
    times = [
        datetime.datetime.fromisoformat(cell.metadata.papermill[key]).timestamp()
        for cell in nbformat.read(notebook, as_version=4).cells
        for key in ("start_time", "end_time")
        if cell.metadata.get("papermill", {}).get(key)
    ]
    return min(times), max(times)


def row(name: str, starts: Sequence[Start]) -> str:
    """Return one row of the table: the medians."""
    middle = [
        statistics.median(getattr(start, key) for start in starts)
        for key in ("wall_s", "idle_s", "second_s", "fourth_s")
    ]
    return f"| {name} | {len(starts)} | " + " | ".join(f"{value:.1f}" for value in middle) + " |"


def main() -> None:
    """Print a row for each run, and the medians as a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", nargs="*", type=Path, default=[ROOT])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found: dict[Path, list[Start]] = {checkout: [] for checkout in options.checkouts}
    for number in range(options.rounds):
        for checkout, starts in found.items():
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                starts.append(measured(checkout, Path(folder)))
            print(row(f"{checkout}, round {number + 1}", starts[-1:]), flush=True)
    print("\n| checkout | runs | command, s | slots idle, s | second trial, s | fourth ended, s |")
    print("|---|---|---|---|---|---|")
    for checkout, starts in found.items():
        print(row(str(checkout), starts))
    scores = [start.ended for starts in found.values() for start in starts]
    same = [n for n in scores[0] if all(other.get(n) == scores[0][n] for other in scores)]
    print(f"\nThe first {len(same)} trials have the same scores in all runs." if same else "")


if __name__ == "__main__":
    main()
