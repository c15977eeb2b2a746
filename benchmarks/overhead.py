"""Measure what a trial costs in addition to its cells: with papermill, scripts and this project.

    uv run --with wordfreq benchmarks/overhead.py [--notebooks imports,data] [--jobs 1,2]

Each round runs one batch of trials with every contender, so that a change of the machine's load
affects all of them. A batch of notebook-hpo (this project) is a whole sweep: Optuna on SQLite, the
executed notebooks, scores, MLflow with both artifacts. The first trials of a sweep run in fresh
kernels, until kernels can be forked (the warm-up). "ms a trial" is the time from one trial's start
to the next trial's start after the warm-up, times the number of trials at once. "with warm-up" is
the time of the whole sweep per trial. "on the path" is the time between the last cell of a trial
and the first cell of the next trial in the same slot. "CPU ms" is the CPU time of all processes per
trial.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import papermill
from joblib import Parallel, delayed
from joblib.externals.loky import get_reusable_executor

from sweeper import Settings, Sweep
from sweeper.testing import write_notebook

#: For each notebook the cells that do not depend on the param x, and the cells that do. Its
#: parameters cell is `x = 0.5`.
NOTEBOOKS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "two lines": ((), ("y = x * 2", "val = y")),
    # The same, with half a second in which the CPU is idle, as it is while a GPU computes.
    "two lines and a wait": (("import time",), ("y = x * 2\ntime.sleep(0.5)", "val = y")),
    "imports": (
        ("import matplotlib.pyplot, numpy, pandas, sklearn.linear_model, torch, torchvision",),
        ("val = x",),
    ),
    # Seven million word frequencies of 15 languages: 58 MB packed, 130 MB decoded.
    "data": (
        (
            "import numpy as np\nfrom wordfreq import get_frequency_dict",
            "languages = 'ar cs de en es fi fr he it nl pl pt ru sv uk'.split()\n"
            "lists = {language: get_frequency_dict(language, 'large') for language in languages}\n"
            "print(f'{sum(map(len, lists.values())):,} words')",
        ),
        (
            "ranked = np.sort(np.fromiter(lists['en'].values(), float))[::-1][:20_000]\n"
            "ranks = np.log(np.arange(1, 20_001) + 10 * x)\n"
            "val = float(np.corrcoef(np.log(ranked), ranks)[0, 1])",
        ),
    ),
    "small CNN": (
        (
            "import numpy as np, torch\nfrom sklearn.datasets import load_digits\n"
            "from torch import nn",
            "digits = load_digits()\n"
            "images = torch.tensor(digits.images[:, None] / 16, dtype=torch.float32)\n"
            "labels = torch.tensor(digits.target)",
        ),
        (
            "torch.manual_seed(0)\n"
            "model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), "
            "nn.ReLU(), nn.Flatten(), nn.Linear(512, 10))\n"
            "descent = torch.optim.SGD(model.parameters(), lr=0.01 + 0.2 * x, momentum=0.9)",
            "for epoch in range(4):\n"
            "    for chosen in torch.randperm(1500).split(50):\n"
            "        loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])\n"
            "        descent.zero_grad(); loss.backward(); descent.step()\n"
            "val = float((model(images[1500:]).argmax(1) == labels[1500:]).float().mean())",
        ),
    ),
}
#: Kernels and scripts compute with one thread each, so that trials at once do not share cores.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The times of one batch of trials, in seconds per trial.

    Attributes:
        trial_s: Wall time after the warm-up, times the number of trials at once.
        whole_s: The same for the whole batch, including the warm-up.
        cpu_s: CPU time of all processes.
        path_s: Time between the cells of one trial and those of the next. None if not measured.
    """

    trial_s: float
    whole_s: float
    cpu_s: float
    path_s: float | None = None


Run = Callable[[str, Path, int, int], Batch]


def timed(call: Callable[[], None], trials: int, jobs: int) -> Batch:
    """Run a batch without a warm-up, and return its times.

    Args:
        call: Runs the batch.
        trials: Number of trials in the batch.
        jobs: Number of trials at once.
    """
    cpu_s, started_s = cpu_of_all_s(), time.monotonic()
    call()
    took_s = (time.monotonic() - started_s) * jobs / trials
    return Batch(trial_s=took_s, whole_s=took_s, cpu_s=(cpu_of_all_s() - cpu_s) / trials)


def cpu_of_all_s() -> float:
    """Return the CPU seconds of this process and of its child processes that have ended."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def plain_papermill(name: str, folder: Path, trials: int, jobs: int) -> Batch:
    """Run a batch as a user would: `papermill.execute_notebook` in processes of joblib."""

    def run(number: int) -> None:
        papermill.execute_notebook(
            str(folder / "nb.ipynb"),
            str(folder / f"{number}.ipynb"),
            {"x": number / trials},
            progress_bar=False,
        )

    # Start the worker processes before the measurement.
    Parallel(n_jobs=jobs)(delayed(lambda: None)() for _ in range(jobs))
    try:
        return timed(lambda: Parallel(n_jobs=jobs)(map(delayed(run), range(trials))), trials, jobs)
    finally:
        get_reusable_executor().shutdown(wait=True)  # Workers would keep the folder open.


def commands(command: Callable[[int], list[str]], trials: int, jobs: int) -> Batch:
    """Run a batch with one process for each trial.

    Args:
        command: Returns the command for a trial's number.
        trials: Number of trials.
        jobs: Number of processes at once.
    """

    def run(number: int) -> None:
        subprocess.run(command(number), check=True, capture_output=True)

    in_threads = Parallel(n_jobs=jobs, backend="threading")
    return timed(lambda: in_threads(map(delayed(run), range(trials))), trials, jobs)


def papermill_processes(name: str, folder: Path, trials: int, jobs: int) -> Batch:
    """Run a batch with one call of the command `papermill` for each trial."""
    there = [sys.executable, "-m", "papermill", "--no-progress-bar", str(folder / "nb.ipynb")]
    return commands(
        lambda n: [*there, str(folder / f"{n}.ipynb"), "-p", "x", str(n / trials)], trials, jobs
    )


def scripts(name: str, folder: Path, trials: int, jobs: int) -> Batch:
    """Run a batch with the notebook's cells as a script, in one process for each trial."""
    script = folder / "nb.py"
    leading, rest = NOTEBOOKS[name]
    script.write_text("\n".join(["import sys", "x = float(sys.argv[1])", *leading, *rest]))
    return commands(lambda n: [sys.executable, str(script), str(n / trials)], trials, jobs)


def function(name: str, folder: Path, trials: int, jobs: int) -> Batch:
    """Run the cells that depend on x in one process, after the other cells have run there once.

    The time of the other cells is not measured.
    """
    leading, rest = NOTEBOOKS[name]
    program = (
        f"import time\nnames = {{}}\nfor cell in {leading!r}: exec(cell, names)\n"
        f"started = time.perf_counter()\nfor number in range({trials}):\n"
        f"    names['x'] = number / {trials}\n    for cell in {rest!r}: exec(cell, names)\n"
        "print(time.perf_counter() - started)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    took_s = float(done.stdout.splitlines()[-1]) / trials
    return Batch(trial_s=took_s, whole_s=took_s, cpu_s=took_s)


def this_engine(name: str, folder: Path, trials: int, jobs: int, *, kernels: str = "auto") -> Batch:
    """Run a whole sweep of notebook-hpo, with everything logged, and return its times."""
    # There are enough trials that each slot has several, and that most run after the warm-up.
    trials = max(trials, 3 * jobs if kernels == "cold" else 24 + 4 * jobs)
    data = {
        "objective": {"val": "maximize"},
        "space": {"x": {"low": 0.0, "high": 1.0}},
        "kernels": kernels,
        "study": {"name": f"s{time.monotonic_ns()}", "trials": trials, "sampler": "random"},
    }
    sweep = Sweep.from_settings(
        Settings.from_mapping(data),
        notebook=folder / "nb.ipynb",
        output=f"{folder}/{{study}}.{{run_id}}.ipynb",
        jobs=jobs,
    )
    cpu_s = cpu_of_all_s()
    result = sweep.run()
    cpu_s = cpu_of_all_s() - cpu_s
    assert result.counts["completed"] == trials, result.records
    notebooks = [json.loads(record.notebook.read_text()) for record in result.records]
    starts = [record.started_at_s for record in result.records]
    ready = _as_fast_as_it_gets([notebook["metadata"]["sweeper"] for notebook in notebooks])
    cells_s = statistics.median(_cells_s(notebooks[number]) for number in ready[jobs:])
    ended = max(r.started_at_s + r.duration_s for r in result.records)
    path_s = None
    if jobs == 1:
        gaps = itertools.pairwise(ready[1:])
        path_s = statistics.median(starts[b] - starts[a] - _cells_s(notebooks[a]) for a, b in gaps)
    print(f"  {name}, {jobs} at once, {kernels}: cells {cells_s:.3f} s", file=sys.stderr)
    return Batch(
        trial_s=_steady_s([starts[number] for number in ready], jobs),
        whole_s=(ended - min(starts)) * jobs / trials,
        cpu_s=cpu_s / trials,
        path_s=path_s,
    )


def _steady_s(starts_s: Sequence[float], jobs: int) -> float:
    """Return the seconds from one trial's start to the next in a slot, as a median.

    The first trial of each slot does not count.
    """
    steady = sorted(starts_s)[jobs:]
    return statistics.median(
        (later - earlier) / (len(steady) // 2) * jobs
        for earlier, later in zip(steady, steady[len(steady) // 2 :], strict=False)
    )


def _as_fast_as_it_gets(notebooks: list[dict[str, object]]) -> list[int]:
    """Return the numbers of the trials whose kernels were made in the fastest way of this sweep.

    The ways are, from the fastest: forked after shared cells, forked, started.

    Args:
        notebooks: Metadata of the executed notebooks, in the order of their trials.
    """
    for is_best in (lambda t: "shared_cells" in t, lambda t: t["kernel"] == "warm"):
        if found := [number for number, trial in enumerate(notebooks) if is_best(trial)]:
            return found
    return list(range(len(notebooks)))


def _cells_s(notebook: Mapping[str, object]) -> float:
    """Return for how many seconds the cells of an executed notebook ran in its own trial.

    Shared cells that ran before for all trials do not count.
    """
    cells = notebook["cells"]
    assert isinstance(cells, list)
    return sum(cell["metadata"].get("papermill", {}).get("duration") or 0.0 for cell in cells)


#: The contender with which all others are compared.
BASE = "papermill in joblib"
_ATTEMPTS = 5
CONTENDERS: Mapping[str, Run] = {
    BASE: plain_papermill,
    "papermill, a process each": papermill_processes,
    "script, a process each": scripts,
    "function, one process": function,
    "notebook-hpo, --cold": lambda *a: this_engine(*a, kernels="cold"),
    "notebook-hpo": this_engine,
}


def main() -> None:
    """Run the batches of all contenders, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--notebooks", default=",".join(NOTEBOOKS), help="default: all")
    parser.add_argument("--trials", type=int, default=8, help="trials a batch (default: 8)")
    parser.add_argument("--jobs", default="1,2", help="trials at once (default: 1,2)")
    parser.add_argument("--rounds", type=int, default=2, help="batches each (default: 2)")
    parser.add_argument(
        "--contender",
        action="append",
        choices=CONTENDERS,
        help="contender in addition to papermill in joblib; may be repeated (default: all)",
    )
    options = parser.parse_args()
    chosen = {BASE, *(options.contender or CONTENDERS)}
    contenders = {name: run for name, run in CONTENDERS.items() if name in chosen}
    logging.disable(logging.WARNING)
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    os.environ.update(ONE_THREAD)
    print(
        "| notebook | at once | contender | ms a trial | with warm-up | on the path | CPU ms |",
        end="",
    )
    print(" papermill / it | trials a minute |\n|---|---|---|---|---|---|---|---|---|", flush=True)
    for name in options.notebooks.split(","):
        for jobs in map(int, options.jobs.split(",")):
            batches: dict[str, list[Batch]] = {contender: [] for contender in contenders}
            with tempfile.TemporaryDirectory() as root:
                for turn, (contender, run) in itertools.product(
                    range(options.rounds), contenders.items()
                ):
                    # Only the base of the comparison is tried again after a failure: with many
                    # trials at once, some of papermill's kernels do not start.
                    for attempt in range(_ATTEMPTS if contender == BASE else 1):
                        folder = Path(root) / f"{turn} {contender} {attempt}"
                        leading, rest = NOTEBOOKS[name]
                        source = folder / "nb.ipynb"
                        write_notebook(
                            source, *leading, *rest, parameters="x = 0.5", shared=len(leading)
                        )
                        try:
                            batches[contender].append(run(name, folder, options.trials, jobs))
                            break
                        except (subprocess.CalledProcessError, RuntimeError) as error:
                            # Without a successful batch, the contender has no row.
                            print(f"  {contender} failed: {error}", file=sys.stderr)
            _print_rows(name, jobs, batches)


def _print_rows(name: str, jobs: int, batches: Mapping[str, list[Batch]]) -> None:
    def median(contender: str, of: Callable[[Batch], float | None]) -> float:
        return statistics.median(of(batch) or 0.0 for batch in batches[contender])

    for contender in (contender for contender, ran in batches.items() if ran):
        trial_s = median(contender, lambda batch: batch.trial_s)
        papermill_s = median(BASE, lambda batch: batch.trial_s)
        path_s = median(contender, lambda batch: batch.path_s)
        print(
            f"| {name} | {jobs} | {contender} | {1e3 * trial_s:.3g} "
            f"| {1e3 * median(contender, lambda batch: batch.whole_s):.3g} "
            f"| {f'{1e3 * path_s:.0f} ms' if path_s else ''} "
            f"| {1e3 * median(contender, lambda batch: batch.cpu_s):.3g} "
            f"| {papermill_s / trial_s:.1f} | {60 * jobs / trial_s:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
