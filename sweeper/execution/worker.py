"""Run one try at one trial, from a spec to an outcome; a failure is an outcome too."""

from __future__ import annotations

import datetime
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from .. import kernels
from ..kernels import (
    Ending,
    Evidence,
    ExecutionRequest,
    Experiment,
    KernelOrigin,
    KernelPool,
    KernelResult,
    Reference,
    Way,
    gather,
)
from ..notebook_api.messages import TRIAL_VARIABLE, encode_float
from ..notebooks import ExecutedNotebook, ResearchNotebook, read_metadata
from ..notebooks.scores import variables_to_read
from ..settings import Settings
from ..study_folder.patience import Patience, is_about_disk, patience_with_disk
from ..trials import (
    Params,
    Reason,
    RunningTrial,
    TrialOutcome,
    TrialSpec,
    TrialState,
    Value,
    attempt_path,
    display_path,
)
from .executor import TrialSource
from .gpu_allocator import GpuAllocator, StoppedWaiting
from .runtime import guarded, make_again
from .verdict import failed, judge
from .workload import Workload

_log = logging.getLogger(__name__)

#: How much longer than before the reference trial may take when it is run again.
_PROOF_FACTOR, _PROOF_SLACK_S = 3.0, 60.0
#: A trial that fails sooner in a forked kernel is tried in a started one, once in a sweep: what a
#: fork cannot do, such as to use CUDA that was initialised before, fails early.
_EARLY_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """Runs the trials of a sweep on this machine. Safe to use from several threads.

    Attributes:
        patience: waits for the disk with the executed notebooks, when it is full.
        runtime_folder: the private folder of the kernels' sockets.
    """

    notebook: ResearchNotebook
    settings: Settings
    gpus: GpuAllocator
    pool: KernelPool
    runtime_folder: Path
    patience: Patience = field(default_factory=lambda: patience_with_disk("the outputs"))

    @property
    def findings(self) -> list[str]:
        """What users should know of how the trials ran, one sentence each."""
        return self.pool.policy.findings

    def run_trial(self, spec: TrialSpec, channel: RunningTrial) -> TrialOutcome:
        """Run one trial to its end, whatever that is. Raises nothing."""
        started_s = _own_time_s(channel)
        try:
            make_again(self.runtime_folder)  # whatever cleans /tmp may have removed it
            self._experiment(channel)
            started_s = _own_time_s(channel)
            outcome = self._run(spec, channel)
        except OSError as error:
            message = f"{spec.notebook}: {error.strerror or error}"
            # Not the trial's fault, and the next one would fare no better.
            state = TrialState.STOPPED if is_about_disk(error) else TrialState.FAILED
            outcome = TrialOutcome(state=state, reason=Reason.FILE, message=message)
        except Exception as error:  # noqa: BLE001  a defect of ours must cost one trial, not the sweep
            _log.exception("trial %s", spec.run_id)
            outcome = failed(Reason.INTERNAL, f"{type(error).__name__}: {error}")
        return replace(outcome, duration_s=_own_time_s(channel) - started_s)

    def _run(self, spec: TrialSpec, channel: RunningTrial) -> TrialOutcome:
        if (there := _whose(spec.notebook)) not in (None, spec.study_id):
            message = f"{spec.notebook} appeared meanwhile and was not written by this study"
            return failed(Reason.FILE, message)
        if there is not None and spec.attempt > 1:
            earlier = attempt_path(spec.notebook, spec.attempt - 1)
            self.patience.insist(lambda: os.replace(spec.notebook, earlier))
        started_s = _own_time_s(channel)
        file = self._file(spec)
        try:
            file, outcome = self._try(file, spec, channel)
        except OSError:
            raise  # most likely the file itself cannot be written
        except Exception as error:  # noqa: BLE001  as in run_trial, and the file says so too
            _log.exception("trial %s", spec.run_id)
            outcome = failed(Reason.INTERNAL, f"{type(error).__name__}: {error}")
        outcome = replace(outcome, duration_s=_own_time_s(channel) - started_s)
        file.finish(outcome)
        self.patience.insist(file.write)
        return outcome

    def _try(
        self, file: ExecutedNotebook, spec: TrialSpec, channel: RunningTrial
    ) -> tuple[ExecutedNotebook, TrialOutcome]:
        """Execute the notebook; and again, where it may have been the kernel that failed."""
        started_s = _own_time_s(channel)
        limit_s = self.settings.limits.trial
        result = self._execute(file, spec, channel, limit_s=limit_s, write=file.write)
        took_s = _own_time_s(channel) - started_s
        outcome = judge(file, result, channel, self.settings)
        if outcome.state is TrialState.FAILED and self._doubts(result, took_s):
            message, is_fork_doubted = outcome.message, self._doubts_fork(result, took_s)
            file, result, outcome = self._run_fresh(spec, channel)
            if is_fork_doubted and outcome.state is not TrialState.STOPPED:
                self.pool.policy.compare_failure(
                    spec.run_id, message, also_started=outcome.state is TrialState.FAILED
                )
        # One that went on from a checkpoint has other outputs than one that begins.
        is_whole = outcome.state is TrialState.COMPLETED and spec.continues is None
        if is_whole and result.way is Way.STARTED:
            took_s = _own_time_s(channel) - started_s
            evidence = _evidence(file, result, outcome)
            self.pool.policy.offer_reference(
                Reference(spec=spec, evidence=evidence, duration_s=took_s, boot_s=result.boot_s)
            )
        return file, outcome

    def _execute(
        self,
        file: ExecutedNotebook,
        spec: TrialSpec,
        channel: RunningTrial,
        *,
        limit_s: float | None,
        write: Callable[[], None],
        origin: KernelOrigin | None = None,
    ) -> KernelResult:
        """Run the notebook's cells, with the trial's lease on a device.

        Args:
            origin: how the kernel has to come to be; None for the best way that is trusted.
            limit_s: how long that may take from the lease on, in seconds.
        """
        # The device is free again when the kernel has really gone, after the slot has moved on.
        held = ExitStack()
        try:
            lease = held.enter_context(self.gpus.allocate(spec, channel))
        except StoppedWaiting:
            return KernelResult(ending=Ending.STOPPED)
        file.metadata["started_at"] = _now()

        def write_running() -> None:
            file.metadata["pid"] = channel.pid  # for who looks on from elsewhere
            self.patience.attempt(write)  # it is written again when the trial has ended

        channel.subscribe(file.record)
        with _closed_on_error(held), channel.limited(limit_s):
            request = ExecutionRequest(
                node=file.node,
                running=channel,
                write=write_running,
                on_kernel_gone=held.close,
                env={**self._env(spec), **lease.env},
                own_params=self._own_params(spec),
                origin=origin,
                prepares_next=origin is None and channel.trials_left > 0,
                score_sources=self.settings.scores,
                variables=variables_to_read(self.settings.scores, self.settings.objective),
                reads_states=origin is not None or self.pool.policy.wants_reference,
                cell_output_bytes=self.settings.limits.cell_output,
                grace_s=self.settings.limits.grace,
            )
            result = kernels.execute(request, pool=self.pool)
        file.metadata.pop("pid", None)
        file.keep_earlier_series()
        file.metadata["variables"] = {k: encode_float(v) for k, v in result.variables.items()}
        file.metadata["kernel"] = "cold" if result.way is Way.STARTED else "warm"
        file.metadata.update(self.pool.policy.coverage(result.way))
        if result.shared_cells:
            file.metadata["shared_cells"] = result.shared_cells
        if result.exit_code is not None:
            file.metadata["exit_code"] = result.exit_code
        return result

    def _doubts(self, result: KernelResult, took_s: float) -> bool:
        """Whether a trial may have failed because of its kernel, and by chance."""
        is_lost = result.is_orphan or result.ending is Ending.NOT_STARTED
        return is_lost or self._doubts_fork(result, took_s)

    def _doubts_fork(self, result: KernelResult, took_s: float) -> bool:
        """Whether a trial may have failed because its kernel was forked."""
        is_forked = result.way is not Way.STARTED and not result.is_orphan
        return is_forked and self.pool.policy.doubts_failures and took_s < _EARLY_S

    def _run_fresh(
        self, spec: TrialSpec, channel: RunningTrial
    ) -> tuple[ExecutedNotebook, KernelResult, TrialOutcome]:
        """Run a trial again, in a kernel that is started."""
        file = self._file(spec)
        quiet = RunningTrial()  # its points were published once
        with channel.passed_on(quiet):
            result = self._execute(
                file,
                spec,
                quiet,
                limit_s=self.settings.limits.trial,
                write=file.write,
                origin=KernelOrigin(way=Way.STARTED),
            )
            return file, result, judge(file, result, quiet, self.settings)

    def _own_params(self, spec: TrialSpec) -> Params:
        """What is injected in this trial, and is not the same in all of them."""
        given: dict[str, Value] = {"seed": spec.seed, "run_id": spec.run_id}
        wanted = {name: value for name, value in given.items() if self.notebook.assigns(name)}
        told = {**wanted, **spec.params}
        return {name: value for name, value in told.items() if name not in spec.fixed}

    def _file(self, spec: TrialSpec) -> ExecutedNotebook:
        node = kernels.inject(
            self.notebook.fresh_copy(self.pool.name),
            {**self._own_params(spec), **spec.fixed},
            kernel_name=self.pool.name,
            language=kernels.language_of(self.pool.name),
        )
        return ExecutedNotebook(node, spec, started_at=_now())

    def _experiment(self, channel: RunningTrial) -> None:
        """Run the reference trial again where that shows what forked kernels are worth.

        Args:
            channel: of the trial that this slot was to run, and runs next.
        """
        while experiment := self.pool.claim_experiment(channel.trials_left + 1):
            evidence: Evidence | str | None = None
            started_s = time.monotonic()
            try:
                evidence = self._repeat(experiment, channel)
            except Exception as error:  # noqa: BLE001  what only saves time must not fail a trial
                _log.exception("proof of forked kernels")
                evidence = f"{type(error).__name__}: {error}"
            finally:
                self.pool.settle(experiment, evidence)
            run_id, took_s = experiment.reference.spec.run_id, time.monotonic() - started_s
            _log.info("proof: trial %s in a %s kernel, %.2f s", run_id, experiment.way, took_s)
            if evidence is None:
                return

    def _repeat(self, experiment: Experiment, channel: RunningTrial) -> Evidence | str | None:
        """What the reference trial comes to this time; None where it was stopped."""
        reference, quiet = experiment.reference, RunningTrial()
        with tempfile.TemporaryDirectory() as folder, channel.passed_on(quiet):
            # Its checkpoints are not for this one to go on from.
            spec = replace(reference.spec, checkpoint_dir=Path(folder) / "checkpoints")
            file = self._file(spec)
            result = self._execute(
                file,
                spec,
                quiet,
                limit_s=_PROOF_FACTOR * reference.duration_s + _PROOF_SLACK_S,
                write=_unseen,
                origin=experiment.origin,
            )
            outcome = judge(file, result, quiet, self.settings)
        if outcome.state is TrialState.COMPLETED:
            return _evidence(file, result, outcome)
        is_lost = result.is_orphan or result.ending is Ending.NOT_STARTED
        says_nothing = is_lost or outcome.state is TrialState.STOPPED
        return None if says_nothing else outcome.message

    def _env(self, spec: TrialSpec) -> Mapping[str, str]:
        told = {
            "number": spec.number,
            "run_id": spec.run_id,
            "params": dict(spec.params),
            "seed": spec.seed,
            "attempt": spec.attempt,
            "folder": str(spec.checkpoint_dir),
        }
        return {TRIAL_VARIABLE: json.dumps(told)}


@contextmanager
def opened_worker(
    workload: Workload, *, gpus: GpuAllocator, source: TrialSource
) -> Iterator[Worker]:
    """A worker with its kernel pool; none of its processes outlives the block, however it ends.

    Args:
        source: whose trials it runs: says how long to wait for a disk, and how long is left.
    """
    with guarded(workload.paths.folder) as (token, folder):
        pool = KernelPool(
            workload.kernel_name,
            env={**os.environ, **gpus.env},
            cwd=workload.notebook.path.parent,
            runtime_folder=folder,
            token=token,
            warm=workload.settings.execution.kernels == "warm",
        )
        pool.share(workload.cells_to_share())
        patience = patience_with_disk(f"the outputs in {display_path(workload.paths.root)}")
        patience.begin(source.patience_s)
        yield Worker(
            notebook=workload.notebook,
            settings=workload.settings,
            gpus=gpus,
            pool=pool,
            patience=patience,
            runtime_folder=folder,
        )
        left_s = source.left_s()
        pool.close(patience_s=None if left_s is None else left_s / 3)


def _evidence(file: ExecutedNotebook, result: KernelResult, outcome: TrialOutcome) -> Evidence:
    return gather(
        file.node,
        scores=outcome.scores,
        series=outcome.series,
        at_start=result.states_at_start,
        at_end=result.states_at_end,
        seeded=result.seeded,
    )


def _unseen() -> None:
    """Writes nothing."""


def _whose(path: Path) -> str | None:
    """The id of the study that wrote a file; empty when it is not a study's; None when free."""
    if not path.exists():
        return None
    return str((read_metadata(path) or {}).get("study_id", ""))


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def _own_time_s(channel: RunningTrial) -> float:
    """A clock that stands still while the trial waits for a device."""
    return time.monotonic() - channel.waited_s


@contextmanager
def _closed_on_error(held: ExitStack) -> Iterator[None]:
    """Give back at once what would otherwise wait for the end of a kernel that never was."""
    try:
        yield
    except BaseException:
        held.close()
        raise
