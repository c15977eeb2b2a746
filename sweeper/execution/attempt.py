"""Make one attempt at a trial: wait for memory and a GPU, run the notebook, store the outcome."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import ExitStack, suppress
from dataclasses import replace

from .. import kernels
from ..errors import StudyError
from ..files import files_below
from ..kernels import (
    ExecutionRequest,
    KernelOrigin,
    KernelResult,
    Proof,
    Run,
    Stopped,
    Verdict,
)
from ..machine.faults import Fault
from ..machine.place import Place
from ..machine.places import NoGpuLeftError, StoppedWaiting
from ..notebook_api.messages import PointSource
from ..notebooks.compare import Execution
from ..notebooks.metadata import TrialMetadata
from ..notebooks.scores import variables_to_read
from ..settings import Settings
from ..study_folder.saved import saved_in
from ..trials import (
    KernelUse,
    Notice,
    Phase,
    Reason,
    RunningTrial,
    TrialOutcome,
    TrialSpec,
    TrialState,
)
from .kernel_inputs import (
    env_of,
    new_file,
    own_params,
    random_seed_of,
    variables_of,
)
from .notebook_files import named_in
from .site import Site
from .verdict import fault_of, full_again, internal_failure, judge, lost_while_frozen


class Attempt:
    """One execution of a trial's notebook. Only this class writes the executed notebook.

    Args:
        spec: Spec of the trial.
        running: The running trial, which receives the reported scores and can be stopped.
        site: Kernels, memory, GPUs and disk that the trial uses.
        origin: How the kernel must be made: started or forked. None if the fork policy decides.
        repetition_limit_s: Time limit of the cells in seconds, if the trial is repeated to prove
            that forked kernels give the same results. None for a trial of the sweep, which has the
            limit `limits.trial`.
        earlier: Metadata of a failed run, if this run repeats it in a fresh kernel. This run
            resumes from the checkpoints of the failed run, if there are any. Otherwise None.

    Attributes:
        file: The executed notebook of the trial.
        result: Result of the kernel. Until the kernel has run, the result of a stopped trial.
        outcome: Outcome of the trial. Until it is decided, the outcome of a trial that an error
            of the sweeper has stopped. Replaced if the kernel was forked, and forking was not
            proven to give the same results.
    """

    def __init__(
        self,
        spec: TrialSpec,
        running: RunningTrial,
        site: Site,
        *,
        origin: KernelOrigin | None = None,
        repetition_limit_s: float | None = None,
        earlier: TrialMetadata | None = None,
    ) -> None:
        self.spec, self.running = spec, running
        self.file = new_file(site, spec, earlier=earlier)
        self.result = KernelResult(ending=Stopped())
        self.outcome = TrialOutcome(state=TrialState.STOPPED, reason=Reason.INTERNAL)
        self._site, self._origin = site, origin
        self._repetition_limit_s = repetition_limit_s
        self._place: Place | None = None
        #: Holds the memory and the GPU of the trial until the kernel is gone. By then, the slot may
        #: already run the next trial.
        self._held = ExitStack()
        self._waited_s = 0.0

    def execute(self) -> TrialOutcome:
        """Run the notebook until it ends, and return the outcome. A failure is an outcome too.

        Raises:
            OSError: The file cannot be written.
            StudyError: Another sweep has taken over the study.
        """
        try:
            self.prepare()
            self.result = self.run()
            self.outcome = self.judge()
        except (OSError, StudyError):
            raise
        except StoppedWaiting:
            self.outcome = judge(self.file, self.result, self.running, self._settings)
        except NoGpuLeftError as error:
            state, reason = TrialState.STOPPED, Reason.NO_GPU
            self.outcome = TrialOutcome(state=state, reason=reason, message=str(error))
        except Exception as error:  # noqa: BLE001  A bug must end only this trial, with a message.
            self.outcome = internal_failure(self.spec, error)
        return self.outcome

    def prepare(self) -> None:
        """Wait for memory and a GPU. Then record in the notebook's metadata that the trial begins.

        Raises:
            StoppedWaiting: The trial was stopped while it waited.
            NoGpuLeftError: No working GPU is left for the trial.
        """
        site, file, running = self._site, self.file, self.running
        # Any file in the folder counts as a checkpoint: libraries write files of their own there. A
        # trial with checkpoints resumes from them, so it keeps its artifacts.
        if not files_below(self.spec.checkpoint_dir):
            shutil.rmtree(self.spec.artifact_dir, ignore_errors=True)
        try:
            lease = site.places.lease(self.spec, running, self._tell)
            self._place = self._held.enter_context(lease)
        finally:
            file.note(waits_for="")
        file.begin()
        if self.is_early:
            file.note(proof=Proof.PENDING)
        self._waited_s = running.control.waited_s
        running.control.note_machine(site.places.machine_of(self._place))
        ranks = site.sources.known()
        file.note_ranks(ranks)
        steps_before = file.points.steps_before(PointSource.PRINTED)
        running.points.keep(file.points.record, ranks=ranks, steps_before=steps_before)

    def run(self) -> KernelResult:
        """Run all cells, and write into the executed notebook how they ran."""
        limit_s = self._repetition_limit_s or self._settings.limits.trial
        try:
            request = self._request()
            with self.running.control.limited(limit_s):
                result = kernels.execute(request, pool=self._site.pool)
        except BaseException:  # No kernel has started, so nothing else frees memory and GPU.
            self._held.close()
            raise
        # A machine that shuts down may have killed a process of the notebook before the sweep was
        # told to stop. Then the trial counts as stopped, not as failed.
        lost_a_process = fault_of(result) is Fault.LOST_PROCESS
        if lost_a_process and kernels.wait_for_stop(self.running.control):
            result = replace(result, ending=kernels.Stopped())
        self._describe(result)
        self._site.sources.note_libraries(result.libraries)
        return result

    def judge(self) -> TrialOutcome:
        """Decide the outcome from the scores, the kernel's ending and the memory that was used."""
        assert self._place is not None
        places, result = self._site.places, self.result
        was_short = places.ran_short(self._place)
        outcome = judge(self.file, result, self.running, self._settings, was_short=was_short)
        outcome = replace(
            full_again(outcome, self.spec),
            kernel=KernelUse(
                is_forked=result.origin.is_forked,
                shared_cells=result.shared_cells,
                reason=result.origin.reason,
            ),
            environment=self._site.environment,
            ended_at_s=round(time.time(), 3),
            notices=self._notices(),
            values_at_end=result.answer.values,
        )
        outcome = places.settle(
            self._place, outcome, fault=fault_of(result), torch_bytes=result.answer.gpu_bytes
        )
        if outcome.state is TrialState.COMPLETED:
            self._site.sources.learn(self.file.metadata)
        if self.running.control.phase is Phase.LOST:
            return lost_while_frozen(outcome)
        return outcome

    def _notices(self) -> dict[Notice, tuple[str, ...]]:
        """Return what the kernel has noticed: names of operations or files, by kind of notice.

        Leave out kinds without names. Leave out overwritten files whose names are not in the
        trials' code: such a name is assumed to differ between trials, so no other trial writes the
        file.
        """
        found = {}
        for kind, names in self.result.answer.notices.items():
            if kind == Notice.OVERWRITTEN_FILES:
                names = named_in(self._site.workload.code, names)
            if names:
                found[Notice(kind)] = tuple(names)
        return found

    def settle(self, duration_s: float) -> TrialOutcome:
        """Write the outcome into the executed notebook, and return it.

        Args:
            duration_s: Running time of the trial in seconds, without waits.

        Raises:
            OSError: The file cannot be written.
        """
        outcome = replace(self.outcome, duration_s=duration_s)
        self._note_proof()
        self.file.note(artifacts=saved_in(self.spec.artifact_dir))
        self.file.finish(outcome)
        self._site.patience.insist(self.file.write)
        return outcome

    @property
    def comparable(self) -> Run:
        """The cells, scores and series of this run, for the comparison with another run."""
        outcome = self.outcome
        execution = Execution(
            cells=self.file.node.cells, scores=outcome.scores, series=outcome.series
        )
        return Run(execution=execution, uses_gpu=self.result.answer.gpu_bytes is not None)

    @property
    def is_early(self) -> bool:
        """Whether the kernel was forked before forking was proven to give the same results."""
        is_repetition = self._repetition_limit_s is not None
        return self._origin is not None and self._origin.is_forked and not is_repetition

    @property
    def verdict(self) -> Verdict:
        """Whether outcomes of kernels that were forked before the proof count.

        The proof is a test that forked kernels give the same results as fresh ones. The verdict is
        the same for all attempts of this worker. It is `PENDING` until the proof has succeeded, or
        it is decided to fork no kernels.
        """
        pool = self._site.pool
        return pool.policy.verdict(pool.fork_server.available)

    @property
    def is_disproven(self) -> bool:
        """Whether the outcome cannot count, because forking was not proven to change no result.

        True if the kernel was forked before the proof, and the fork policy has decided since then
        to fork no more kernels. For example, a forked kernel has changed results of this notebook.
        """
        return self.is_early and self.verdict is Verdict.RUN_AGAIN

    # --- parts of prepare, run, judge and settle --------------------------------------------------

    @property
    def _settings(self) -> Settings:
        return self._site.workload.settings

    def _tell(self, waits_for: str) -> None:
        """Write into the executed notebook what the trial waits for. `status` reads it there."""
        self.file.note(waits_for=waits_for)
        self._site.patience.attempt(self.file.write)

    def _write(self) -> None:
        """Write the executed notebook while the trial runs.

        A temporary error of the disk is only logged, because the notebook is written again later.
        """
        control = self.running.control
        pid = self.running.points.pid
        self.file.note(pid=pid)  # `status` runs in another process, and reads it there.
        self.file.note_freezing(control.waited_s - self._waited_s, is_frozen=control.is_frozen)
        self._note_proof()
        # Kill the kernel, because its outcome cannot count, and the trial may have hours left.
        if self.is_disproven and pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._site.patience.attempt(self.file.write)

    def _note_proof(self) -> None:
        """Record in the metadata what was proven about forked kernels, and by which trial.

        Do this only if the kernel was forked before the proof, and the proof has succeeded.
        """
        if self.is_early and self.verdict is Verdict.COUNTS:
            coverage = self._site.pool.policy.coverage(KernelOrigin(is_forked=True))
            self.file.note(proof=coverage.proof, proven_by=coverage.proven_by)

    def _give_back(self, is_gone: bool) -> None:
        """Free the memory and the GPU of the trial.

        Args:
            is_gone: Whether the kernel has ended. If even SIGKILL did not end it, no other trial
                gets its GPU.
        """
        if not is_gone and self._place is not None:
            self._site.places.leave_behind(self._place)
        self._held.close()

    def _request(self) -> ExecutionRequest:
        assert self._place is not None
        site, spec, settings = self._site, self.spec, self._settings
        env = env_of(
            site,
            spec,
            begun=self.file.points.steps_before(PointSource.OBSERVED),
            is_repetition=self._repetition_limit_s is not None,
        )
        return ExecutionRequest(
            node=self.file.node,
            running=self.running,
            write=self._write,
            on_kernel_gone=self._give_back,
            on_kernel_ready=site.kernel_patience.note_success,
            env={**env, **self._place.env},
            own_params=own_params(site.workload, spec),
            random_seed=random_seed_of(site.workload, spec),
            origin=self._origin,
            prepares_next=self._origin is None and self.running.trials_left > 0,
            score_sources=settings.scores,
            variables=variables_to_read(settings.scores, settings.objective),
            values=variables_of(site.workload, spec),
            gpu_fraction=self._place.memory_fraction,
            cell_output_bytes=settings.limits.cell_output,
            grace_s=settings.limits.grace,
        )

    def _describe(self, result: KernelResult) -> None:
        """Record in the notebook's metadata how its kernel was made and how it ended.

        Record also the values that were read from the kernel after the last cell.
        """
        coverage = self._site.pool.policy.coverage(result.origin)
        self.file.note(
            pid=None,
            variables=result.answer.floats,
            values_at_end=result.answer.values,
            numbers=result.answer.numbers,
            changes=result.answer.changes,
            kernel="warm" if result.origin.is_forked else "cold",
            kernel_reason=coverage.reason,
            proof=coverage.proof or "",
            proven_by=coverage.proven_by,
            shared_cells=result.shared_cells,
            exit_code=result.exit_code,
        )
