"""Run a trial on this machine, from its spec to its outcome. A failure is an outcome too."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from ..errors import StudyError
from ..machine.places import Places
from ..notebook_api.messages import Point
from ..study_folder.patience import is_of_the_machine
from ..trials import Points, Reason, RunningTrial, TrialOutcome, TrialSpec, TrialState
from .attempt import Attempt
from .earlier_attempt import is_unproven, make_way, path_problem
from .early_start import origin_of, start_early, withhold
from .executor import TimeLeft
from .proving import learn_of_kernels, prove_forking
from .second_run import (
    AFTER_NO_KERNEL,
    STARTED_ANEW,
    NoKernelError,
    SecondRun,
    decide_second_run,
    kind_of_failure,
)
from .site import Site, opened_site
from .verdict import internal_failure
from .workload import Workload


@contextmanager
def opened_worker(
    workload: Workload, *, places: Places, time_left: TimeLeft, slots: int = 1
) -> Iterator[Worker]:
    """Open a worker with its kernels; see `opened_site`."""
    with opened_site(workload, places=places, time_left=time_left, slots=slots) as site:
        yield Worker(site)


@dataclass(frozen=True, slots=True)
class Worker:
    """Runs the trials of a sweep on this machine. Several threads may use it, each for one trial.

    Attributes:
        site: Kernels, memory, GPUs and disk that the trials use.
    """

    site: Site

    @property
    def environment(self) -> str:
        """Name of the file that describes the trials' environment. Empty if there is none."""
        return self.site.environment

    @property
    def findings(self) -> Sequence[str]:
        """Remarks for users about how the trials ran, one sentence each."""
        return [*self.site.pool.findings, *self.site.sources.findings]

    def run_trial(self, spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        """Run one trial until it ends, and return its outcome. Raise no exception.

        Args:
            spec: Spec of the trial.
            running: The running trial, which receives the reported scores and can be stopped.
        """
        clock = running.control
        started_s = clock.own_s
        try:
            if not start_early(self.site, spec, running):
                prove_forking(self.site, running)
            started_s = clock.own_s
            return self._run(spec, running)
        except OSError as error:
            message = path_problem(error, spec)
            # If the machine is the cause, every other trial would fail too. So stop the sweep.
            state = TrialState.STOPPED if is_of_the_machine(error) else TrialState.FAILED
            outcome = TrialOutcome(state=state, reason=Reason.FILE, message=message)
        except StudyError as error:  # Another sweep has taken over the study.
            state, reason = TrialState.STOPPED, Reason.INTERRUPTED
            outcome = TrialOutcome(state=state, reason=reason, message=str(error))
        except Exception as error:  # noqa: BLE001  A bug must end only this trial, not the sweep.
            outcome = internal_failure(spec, error)
        return replace(outcome, duration_s=clock.own_s - started_s)

    def _run(self, spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        """Run the trial. Run it a second time if its kernel may have caused a failure."""
        in_the_way = make_way(spec, self.site.patience)
        if in_the_way is not None:
            return in_the_way
        control = running.control
        started_s = control.own_s
        attempt = self._first_run(spec, running)
        second = decide_second_run(
            attempt.result,
            attempt.outcome,
            took_s=control.own_s - started_s,
            is_stopped=control.stop_reason is not None,
        )
        if second is not None and not attempt.is_disproven:
            attempt = self._second_run(second, attempt)
        took_s = control.own_s - started_s
        withhold(self.site, attempt)
        learn_of_kernels(self.site, attempt, took_s)
        return attempt.settle(took_s)

    def _first_run(self, spec: TrialSpec, running: RunningTrial) -> Attempt:
        """Execute the notebook, repeatedly if no kernel starts, and return the last attempt."""
        origin = origin_of(self.site, spec, running)
        if is_unproven(spec):
            spec = replace(spec, continues=None)  # `make_way` has removed the checkpoints.
        attempts: list[Attempt] = []

        def execute() -> None:
            how = AFTER_NO_KERNEL if attempts else origin
            attempts.append(Attempt(spec, running, self.site, origin=how))
            outcome = attempts[-1].execute()
            if outcome.reason is Reason.KERNEL_START and running.control.stop_reason is None:
                raise NoKernelError(outcome.message)

        with suppress(NoKernelError):  # The attempt's outcome already contains this error.
            self.site.kernel_patience.insist(execute)
        return attempts[-1]

    def _second_run(self, why: SecondRun, first: Attempt) -> Attempt:
        """Run a failed trial again in a fresh kernel.

        The second run may be a comparison. If the trial does not fail there, forking was the cause,
        and no more kernels are forked. Failures of one kind are compared only once. A comparison
        does not resume the checkpoint of the run that failed. The exception is a trial that resumes
        an earlier attempt, because the work of that attempt would be lost.

        Args:
            why: Why the trial runs again.
            first: The attempt that failed.

        Returns:
            The second run. `first` if it would be a comparison, and a failure of the same kind was
            compared before.
        """
        policy = self.site.pool.policy
        is_comparison = why is SecondRun.COMPARISON
        kind = kind_of_failure(first.result, first.outcome)
        if is_comparison and not policy.doubts_failure(kind):
            return first
        running, published = first.running, first.running.points.step
        if is_comparison and first.spec.continues is None:
            shutil.rmtree(first.spec.checkpoint_dir, ignore_errors=True)
        running.points.keep(lambda _: None)  # Record only the second run's points from now on.

        def resume(point: Point) -> None:
            # The first run has published all points up to its last step, so publish only later
            # ones.
            if published is None or point.step is None or point.step > published:
                running.points.publish(point)

        repeated = RunningTrial(Points(resume))
        # A stop of the trial also ends the second run.
        with running.control.passed_on(repeated.control):
            earlier = first.file.metadata
            second = Attempt(first.spec, repeated, self.site, origin=STARTED_ANEW, earlier=earlier)
            outcome = second.execute()
        has_ended_well = outcome.state not in (TrialState.STOPPED, TrialState.FAILED)
        if is_comparison and has_ended_well:
            policy.refuse_for_failure(first.spec.run_id, first.outcome.message)
        return second
