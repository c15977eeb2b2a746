"""An executor without kernels, in which a function replaces the notebook."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from ..execution.executor import TrialSource
from ..trials import Reason, RunningTrial, TrialOutcome, TrialSpec, TrialState


class InlineExecutor:
    """Runs trials as calls of a function, so that a sweep is tested in milliseconds.

    Args:
        run_trial: Function that runs one trial. It may publish points to the running trial, and
            should end soon after the trial is stopped. If it raises an exception, the trial fails.
        jobs: Number of trials that run at once, each on its own thread. With 1, trials run on the
            thread that calls `run`.
    """

    description = ""
    can_freeze = False

    def __init__(
        self, run_trial: Callable[[TrialSpec, RunningTrial], TrialOutcome], *, jobs: int = 1
    ) -> None:
        self._run_trial = run_trial
        self._jobs = jobs

    @property
    def jobs(self) -> int:
        """Number of trials that run at once."""
        return self._jobs

    def run(self, source: TrialSource) -> Sequence[str]:
        """Run the trials that `source` hands out, until there are no more.

        Returns:
            An empty list: this executor has no remarks about the trials for users.
        """
        if self._jobs == 1:
            self._serve(source)
            return []
        with ThreadPoolExecutor(self._jobs, thread_name_prefix="slot") as slots:
            for done in [slots.submit(self._serve, source) for _ in range(self._jobs)]:
                done.result()
        return []

    def _serve(self, source: TrialSource) -> None:
        while (trial := source.next_trial()) is not None:
            spec, running = trial
            try:
                outcome = self._run_trial(spec, running)
            except Exception as error:  # noqa: BLE001  As in a cell, any error fails the trial.
                message = f"{type(error).__name__}: {error}"
                outcome = TrialOutcome(
                    state=TrialState.FAILED, reason=Reason.CELL_ERROR, message=message
                )
            source.finish_trial(spec, outcome)
