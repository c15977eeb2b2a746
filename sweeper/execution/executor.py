"""Where trials run: on this machine, in threads that each drive one kernel at a time.

The only owner of joblib. A slot asks for its next trial as soon as it is free, never in batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from joblib import Parallel, delayed

from ..trials import RunningTrial, TrialOutcome, TrialSpec

RunTrial = Callable[[TrialSpec, RunningTrial], TrialOutcome]


class Trials(Protocol):
    """Who gives out trials and takes their outcomes; called from several threads."""

    def next(self) -> tuple[TrialSpec, RunningTrial] | None:
        """A trial to run now; None when there are no more."""

    def done(self, spec: TrialSpec, outcome: TrialOutcome) -> None:
        """A trial has ended."""


class Executor(Protocol):
    """A place with slots for trials."""

    def run(self, trials: Trials) -> None:
        """Keep all slots busy until there are no more trials and the last one has ended."""


class LocalExecutor:
    """Runs up to `jobs` trials at once on this machine."""

    def __init__(self, run_trial: RunTrial, *, jobs: int) -> None:
        self._run_trial = run_trial
        self._jobs = jobs

    def run(self, trials: Trials) -> None:
        """Keep all slots busy until there are no more trials and the last one has ended."""
        # One thread more than slots: with a single one joblib would use the main thread, which
        # has to stay free for signals.
        pool = Parallel(n_jobs=self._jobs + 1, backend="threading", batch_size=1)
        pool(delayed(self._serve)(trials) for _ in range(self._jobs))

    def _serve(self, trials: Trials) -> None:
        while (given := trials.next()) is not None:
            spec, channel = given
            trials.done(spec, self._run_trial(spec, channel))
