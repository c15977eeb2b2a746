"""Run one attempt at a trial, from its spec to its outcome; a failure is an outcome too."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from .. import kernels
from ..guard import MARK_VARIABLE
from ..kernels import Ending, KernelOrigin, KernelPool, KernelResult, Reference
from ..notebook_api.messages import Point
from ..notebooks.executed import ExecutedNotebook
from ..notebooks.metadata import read_metadata
from ..study_folder.patience import Patience, is_about_disk, patience_with_disk
from ..study_folder.saved import saved_in
from ..study_folder.snapshots import keep_environment
from ..trials import (
    Reason,
    RunningTrial,
    TrialOutcome,
    TrialSpec,
    TrialState,
    attempt_path,
    display_path,
)
from .environment import environment_of
from .executor import TimeLeft
from .notebook_runner import NotebookRunner
from .places import NoGpuLeftError, Places
from .proving import prove_forking, run_of
from .runtime import guarded
from .verdict import failed
from .workload import Workload

_log = logging.getLogger(__name__)

#: A trial that fails sooner in a forked kernel is run in a started one as well: what a fork cannot
#: do, such as to use CUDA that was initialised before, fails early.
_EARLY_S = 120.0


@contextmanager
def opened_worker(
    workload: Workload,
    *,
    places: Places,
    time_left: TimeLeft,
) -> Iterator[Worker]:
    """A worker with its kernel pool; none of its processes outlives the block, however it ends.

    Open one per machine and study: it first ends all processes that bear the mark of the study's
    folder, those of another worker included.

    Args:
        places: of the machine that it runs on.
        time_left: of the sweep whose trials it runs.
    """
    with (
        guarded(workload.paths.folder) as (token, folder),
        places.opened(folder=folder, token=token),
    ):
        # What an import decides by the GPUs that it sees has to fit the trials, each of which has
        # one later.
        visible = ",".join(gpu.uuid for gpu in places.gpus)
        pool = KernelPool(
            workload.kernel_name,
            env={**os.environ, **places.env},
            cwd=workload.cwd,
            runtime_folder=folder,
            token=token,
            kernels=workload.settings.kernels,
            import_env={"CUDA_VISIBLE_DEVICES": visible} if visible else {},
            frozen=workload.frozen,
            shared_cells=workload.shared_cells,
        )
        patience = patience_with_disk(f"the outputs in {display_path(workload.paths.root)}")
        patience.begin(time_left.patience_s)
        runner = NotebookRunner(
            workload=workload,
            places=places,
            pool=pool,
            patience=patience,
            environment=_kept_environment(workload, places, token=token),
        )
        yield Worker(runner=runner, runtime_folder=folder)
        left_s = time_left.left_s()
        pool.close(patience_s=None if left_s is None else left_s / 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """Runs the trials of a sweep on this machine. Safe to use from several threads.

    Attributes:
        runtime_folder: the private folder of the kernels' sockets.
    """

    runner: NotebookRunner
    runtime_folder: Path

    @property
    def findings(self) -> list[str]:
        """What users should know of how the trials ran, one sentence each."""
        return self.runner.pool.findings

    def run_trial(self, spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        """Run one trial to its end, whatever that is. Raises nothing."""
        started_s = _own_time_s(running)
        try:
            # Whatever cleans /tmp may have removed it.
            self.runtime_folder.mkdir(mode=0o700, exist_ok=True)
            prove_forking(self.runner, running)
            started_s = _own_time_s(running)
            outcome = self._run(spec, running)
        except OSError as error:
            message = f"{spec.notebook}: {error.strerror or error}"
            # Where the disk is at fault, the next trial would fare no better.
            state = TrialState.STOPPED if is_about_disk(error) else TrialState.FAILED
            outcome = TrialOutcome(state=state, reason=Reason.FILE, message=message)
        except Exception as error:  # noqa: BLE001  a defect of ours must cost one trial, not the sweep
            outcome = _internal_failure(spec, error)
        return replace(outcome, duration_s=_own_time_s(running) - started_s)

    def _run(self, spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        """Run the trial and write its executed notebook."""
        patience = self.runner.patience
        if message := keep_earlier_attempt(spec, patience):
            return failed(Reason.FILE, message)
        started_s = _own_time_s(running)
        file = self.runner.new_file(spec)
        try:
            file, outcome = self._run_in_trusted_kernel(file, spec, running)
        except OSError:
            raise  # most likely the file itself cannot be written
        except NoGpuLeftError as error:
            message = str(error)
            outcome = TrialOutcome(state=TrialState.STOPPED, reason=Reason.NO_GPU, message=message)
        except Exception as error:  # noqa: BLE001  as in run_trial; here the file has it as well
            outcome = _internal_failure(spec, error)
        outcome = replace(outcome, duration_s=_own_time_s(running) - started_s)
        if saved := saved_in(spec.artifact_dir):
            file.metadata["artifacts"] = saved
        file.finish(outcome)
        patience.insist(file.write)
        return outcome

    def _run_in_trusted_kernel(
        self, file: ExecutedNotebook, spec: TrialSpec, running: RunningTrial
    ) -> tuple[ExecutedNotebook, TrialOutcome]:
        """Execute the notebook; a second time where the kernel may be to blame for a failure."""
        policy = self.runner.pool.policy
        started_s = _own_time_s(running)
        limit_s = self.runner.workload.settings.limits.trial
        result, outcome = self.runner.run(file, spec, running, limit_s=limit_s, write=file.write)
        took_s = _own_time_s(running) - started_s
        is_forked = result.origin.is_forked and not result.is_orphan
        has_no_kernel = result.is_orphan or result.ending is Ending.NOT_STARTED
        if outcome.state is TrialState.FAILED and running.stop_reason is None:
            message = outcome.message
            # A started kernel would have no more memory.
            is_short = outcome.reason in (Reason.OUT_OF_MEMORY, Reason.OUT_OF_HOST_MEMORY)
            is_doubted = is_forked and took_s < _EARLY_S and policy.doubts_failure(message)
            if (has_no_kernel or is_doubted) and not is_short:
                file, result, outcome = self._run_in_started_kernel(spec, running)
                if is_doubted and outcome.state not in (TrialState.STOPPED, TrialState.FAILED):
                    policy.refuse_for_failure(spec.run_id, message)
        # A trial that went on from a checkpoint has other outputs than one that begins, and one
        # that began before a param was fixed has another value than the shared cells.
        is_usual = spec.continues is None and not self.runner.fixed_since(spec)
        if outcome.state is not TrialState.COMPLETED or not is_usual:
            return file, outcome
        if result.origin.is_forked:
            if not result.shared_cells:
                self.runner.pool.record_times(file.node, self.runner.workload.own_names)
        elif policy.wants_reference:
            run = run_of(file, result, outcome)
            took_s = _own_time_s(running) - started_s
            policy.offer_reference(Reference(spec=spec, run=run, duration_s=took_s))
        return file, outcome

    def _run_in_started_kernel(
        self, spec: TrialSpec, running: RunningTrial
    ) -> tuple[ExecutedNotebook, KernelResult, TrialOutcome]:
        """Run a trial again, in a kernel that is started."""
        file = self.runner.new_file(spec)
        published = running.step

        def go_on(point: Point) -> None:
            # Up to there the points were published the first time.
            if published is None or point.step is None or point.step > published:
                running.publish(point)

        repeated = RunningTrial(go_on)
        with running.passed_on(repeated):
            result, outcome = self.runner.run(
                file,
                spec,
                repeated,
                limit_s=self.runner.workload.settings.limits.trial,
                write=file.write,
                origin=KernelOrigin(
                    reason="the trial was run before, and failed or lost its kernel"
                ),
            )
        return file, result, outcome


def _kept_environment(workload: Workload, places: Places, *, token: str) -> str:
    """The name under which is kept where the trials run; empty where it cannot be."""
    # What is started for the look bears the mark of the sweep.
    env = {**os.environ, **places.env, MARK_VARIABLE: f"{token}.environment;"}
    try:
        found = environment_of(
            interpreter=kernels.interpreter_of(workload.kernel_name),
            env=kernels.environment_of(workload.kernel_name, env),
            folder=workload.cwd,
            threads=workload.settings.resources.threads,
            gpus=places.gpus,
        )
        if workload.host:
            found["host"] = workload.host
        return keep_environment(workload.paths, found)
    except Exception as error:  # noqa: BLE001  trials do not depend on it
        _log.info("the environment of the trials is not known: %s", error)
        return ""


def keep_earlier_attempt(spec: TrialSpec, patience: Patience) -> str:
    """Rename the executed notebook of the attempt before, so that this one has its place.

    Args:
        patience: with the disk.

    Returns:
        why the place is not this trial's; empty where it is.

    Raises:
        OSError: it cannot be renamed.
    """
    owner = _study_of(spec.notebook)
    if owner not in (None, spec.study_id):
        return f"{spec.notebook} appeared meanwhile and was not written by this study"
    if owner is not None and spec.attempt > 1:
        earlier = attempt_path(spec.notebook, spec.attempt - 1)
        patience.insist(lambda: os.replace(spec.notebook, earlier))
    return ""


def _internal_failure(spec: TrialSpec, error: Exception) -> TrialOutcome:
    _log.exception("trial %s", spec.run_id)
    return failed(Reason.INTERNAL, f"{type(error).__name__}: {error}")


def _study_of(path: Path) -> str | None:
    """The id of the study that wrote a file; empty where no study did; None where no file is."""
    if not path.exists():
        return None
    return str((read_metadata(path) or {}).get("study_id", ""))


def _own_time_s(running: RunningTrial) -> float:
    """A clock that stands still while the trial waits for a device."""
    return time.monotonic() - running.waited_s
