"""What the proof of forked kernels costs a sweep, and how much is forked in the end.

    uv run --with wordfreq benchmarks/proofs.py [--before FOLDER] [--trials 28] [--jobs 1]

Runs whole sweeps of the command in turns: as it is, cold, and with the code of another checkout
(`--before`), such as an earlier version. A proof runs a trial again that has completed in a started
kernel; it is counted in seconds and trials, and lies within the wall time of the sweep.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from overhead import NOTEBOOKS

from sweeper.testing import write_notebook

ROOT = Path(__file__).resolve().parent.parent
DIGITS = "digits"
_PROOF = re.compile(r"proof: trial \d+ in a \w+ kernel, ([\d.]+) s")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One sweep: from the first trial's start to the last one's end, in seconds."""

    wall_s: float
    kinds: Counter[str]
    proofs_s: list[float]
    scores: list[dict[str, float]]


def sweep(name: str, folder: Path, root: Path, trials: int, jobs: int, *flags: str) -> Measured:
    """Run one sweep with the code of a checkout, in a process of its own."""
    if name == DIGITS:
        notebook, parameters = ROOT / "notebooks/digits.ipynb", ROOT / "parameters/digits.yml"
    else:
        leading, rest = NOTEBOOKS[name]
        notebook = write_notebook(folder / "nb.ipynb", *leading, *rest, parameters="x = 0.5")
        parameters = folder / "p.yml"
        parameters.write_text(
            "objective: {val: maximize}\nspace: {x: {low: 0.0, high: 1.0}}\n"
            "study: {name: proofs, sampler: random}\n"
        )
    output = folder / f"out-{time.monotonic_ns()}"
    run = subprocess.run(
        [
            *(sys.executable, str(root / "notebook_hpo.py"), "-i", str(notebook), "--json", "-v"),
            *("-o", f"{output}/{{run_id}}.ipynb", "-p", str(parameters), "-j", str(jobs)),
            *("--trials", str(trials), *flags),
        ],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    result = json.loads(run.stdout.splitlines()[-1])
    kinds: Counter[str] = Counter()
    started, ended = [], []
    for trial in result["trials"]:
        metadata = json.loads(Path(trial["notebook"]).read_text())["metadata"]["sweeper"]
        kinds["shared" if metadata.get("shared_cells") else metadata["kernel"]] += 1
        began = datetime.datetime.fromisoformat(metadata["started_at"]).timestamp()
        started.append(began)
        ended.append(began + trial["duration_s"])
    return Measured(
        wall_s=max(ended) - min(started),
        kinds=kinds,
        proofs_s=[float(seconds) for seconds in _PROOF.findall(run.stderr)],
        scores=[trial["scores"] for trial in result["trials"]],
    )


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--notebooks", default="imports,data,small CNN,digits")
    parser.add_argument("--trials", type=int, default=28, help="of each sweep; digits has 12")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--before", type=Path, help="another checkout to compare with")
    arguments = parser.parse_args()
    contenders = {"this engine": (ROOT, ()), "--cold": (ROOT, ("--cold",))}
    if arguments.before is not None:
        contenders = {"before": (arguments.before, ()), **contenders}
    print("| notebook | sweep | wall s | proofs | proof s | started | forked | shared | scores |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in arguments.notebooks.split(","):
        trials = 12 if name == DIGITS else arguments.trials
        seen: list[list[dict[str, float]]] = []
        for contender, (root, flags) in contenders.items():
            with tempfile.TemporaryDirectory(prefix="proofs-") as folder:
                done = sweep(name, Path(folder), root, trials, arguments.jobs, *flags)
            seen.append(done.scores)
            same = "as above" if done.scores == seen[0] else "DIFFER"
            print(
                f"| {name} | {contender} | {done.wall_s:.0f} | {len(done.proofs_s)} | "
                f"{sum(done.proofs_s):.1f} | {done.kinds['cold']} | {done.kinds['warm']} | "
                f"{done.kinds['shared']} | {'' if len(seen) == 1 else same} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
