"""A sweep with `order: fixed` whose trials have random durations. A script that a test can kill."""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from studies import sweep_of

from sweeper.testing import write_notebook
from sweeper.trials import RunningTrial, TrialOutcome, TrialSpec, TrialState

TRIALS = 16
_SETTINGS: dict[str, Any] = {
    "study": {
        "seed": 3,
        "trials": TRIALS,
        "order": "fixed",
        "sampler": {"name": "tpe", "n_startup_trials": 5},
    },
    "space": {"x": {"low": 0.0, "high": 1.0}, "y": {"low": 0.0, "high": 1.0}},
}


def sweep(folder: Path, *, jobs: int) -> list[list[Any]]:
    """Begin or resume a sweep. Print a line for each trial that ends. Return the results."""
    notebook = folder / "nb.ipynb"
    if not notebook.exists():
        write_notebook(notebook, "val = x + y", parameters="x = y = 0.5")
    result = sweep_of(notebook, "order", _run_trial, jobs=jobs, **_SETTINGS).run()
    return [[r.run_id, r.params, r.scores, r.seed] for r in result.records]


def _run_trial(spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
    time.sleep(random.lognormvariate(-3.5, 1.0))
    x, y = float(str(spec.params["x"])), float(str(spec.params["y"]))
    sys.stdout.write("ended\n")  # One write, because other slots write, too.
    sys.stdout.flush()
    score = -((x - 0.3) ** 2) - (y - 0.7) ** 2
    return TrialOutcome(state=TrialState.COMPLETED, scores={"val": score})


if __name__ == "__main__":
    sys.stdout.write(json.dumps(sweep(Path(sys.argv[1]), jobs=int(sys.argv[2]))) + "\n")
