"""Measure how much CPU time the sweep's process needs for each trial, with many trials at once.

    TMPDIR=/dev/shm uv run benchmarks/fleet.py [--slots 1000] [--trials 5000]

The script uses the study, sampler, pruner and SQLite file of a sweep, but no kernels and no MLflow.
As many trials run at once as there are slots. A random running trial ends next, after ten reports.
The table has medians in milliseconds of CPU time, which do not depend on how busy the machine is.
"ask" is one proposal, "judge" one report to the pruner, "tell" the end of one trial, and "best" a
search for the best trial, as for the live table. "trial" is the sum of one ask, ten reports and one
tell.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from sweeper import Settings
from sweeper.search.pruners import make_pruner
from sweeper.search.samplers import SamplerFactory
from sweeper.study.study import Study
from sweeper.trials import Reason, TrialOutcome, TrialRecord, TrialState

T = TypeVar("T")

SPACE = {
    "lr": {"low": 1e-5, "high": 1.0, "log": True},
    "weight_decay": {"low": 1e-6, "high": 1e-2, "log": True},
    "dropout": {"low": 0.0, "high": 0.6},
    "width": {"type": "int", "low": 64, "high": 1024, "step": 64},
    "batch_size": [64, 128, 256, 512],
    "optimizer": ["sgd", "adam"],
    "momentum": {"low": 0.8, "high": 0.99, "when": {"optimizer": "sgd"}},
}
REPORTS = 10


class Fleet:
    """Simulates the trials of one study, and measures the CPU time of each kind of call.

    Attributes:
        study: The study.
        took_ms: CPU times of the calls since the last row of the table, by kind, in milliseconds.

    Args:
        folder: Folder for the study's SQLite file.
        options: Options of the command line.
    """

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        chosen = {"name": "fleet", "trials": options.trials, "pruner": options.pruner}
        study = {**chosen, "sampler": options.sampler, "seed": options.seed}
        self._settings = Settings.from_mapping(
            {"objective": {"loss": "minimize"}, "space": SPACE, "study": study}
        )
        self._folder = folder
        self.study = Study.open(f"sqlite:///{folder}/study.db", self._settings)
        self._samplers, self._pruner = SamplerFactory(self._settings), make_pruner(self._settings)
        self._chance = random.Random(options.seed)
        self.took_ms: defaultdict[str, list[float]] = defaultdict(list)

    def timed(self, kind: str, call: Callable[[], T]) -> T:
        """Make a call, record its CPU time under a kind, and return its result."""
        began_s = time.process_time()
        result = call()
        self.took_ms[kind].append(1e3 * (time.process_time() - began_s))
        return result

    def begin(self) -> TrialRecord | None:
        """Begin the next trial, and return its record. None if the study has all its trials."""
        named = partial("{0}/{1:04d}.ipynb".format, self._folder)
        ask = partial(self.study.ask, self._samplers, lambda n: Path(named(n)))
        return self.timed("ask", ask)

    def end(self, record: TrialRecord) -> None:
        """Report scores of a trial until it is pruned or has ten reports, and record its end."""
        final, outcome = self._chance.random(), None
        for step in range(REPORTS):
            value = final + self._chance.random() / (step + 1)
            if self.timed("judge", partial(self._judge, record.number, step, value)) is not None:
                outcome = TrialOutcome(state=TrialState.PRUNED, reason=Reason.PRUNED)
                break
        if outcome is None:
            outcome = TrialOutcome(state=TrialState.COMPLETED, scores={"loss": final})
        self.timed("tell", partial(self.study.tell, record.number, outcome))

    def _judge(self, number: int, step: int, value: float) -> str | None:
        self.study.note_report(number, step, value)
        return self.study.why_to_prune(number, self._pruner)


def main() -> None:
    """Run the trials and print one row for each tenth of them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--slots", type=int, default=1000, help="(default: 1000)")
    parser.add_argument("--trials", type=int, default=5000, help="(default: 5000)")
    parser.add_argument("--sampler", default="auto", help="(default: auto)")
    parser.add_argument("--pruner", default="median", help="(default: median)")
    parser.add_argument("--seed", type=int, default=0, help="(default: 0)")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    kinds = ("ask", "judge", "tell", "best")
    print(f"| trials | {' | '.join(kinds)} | trial |\n{'|---' * (len(kinds) + 2)}|")
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(Path(folder), options)
        running = [record for _ in range(options.slots) if (record := fleet.begin())]
        ended, size = 0, max(1, options.trials // 10)
        while running:
            fleet.end(running.pop(chance.randrange(len(running))))
            ended += 1
            if (following := fleet.begin()) is not None:
                running.append(following)
            if ended % size == 0:
                fleet.timed("best", fleet.study.best)
                ms = {kind: statistics.median(fleet.took_ms[kind]) for kind in kinds}
                trial_ms = ms["ask"] + REPORTS * ms["judge"] + ms["tell"]
                row = " | ".join(f"{ms[kind]:.1f}" for kind in kinds)
                print(f"| {ended - size} to {ended} | {row} | {trial_ms:.0f} |", flush=True)
                fleet.took_ms.clear()
        fleet.study.close()


if __name__ == "__main__":
    main()
