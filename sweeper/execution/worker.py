"""Run one attempt at a trial, from its spec to its outcome; a failure is an outcome too."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

from .. import kernels
from ..guard import MARK_VARIABLE
from ..kernels import (
    Ending,
    ExecutionRequest,
    KernelOrigin,
    KernelPool,
    KernelResult,
    KernelSetup,
    Reference,
    Run,
)
from ..machine.capacity import raise_descriptor_limit
from ..machine.places import NoGpuLeftError, Places, StoppedWaiting
from ..notebook_api.checkpoints import checkpoint_files
from ..notebook_api.messages import (
    OBSERVED_VARIABLE,
    TRIAL_VARIABLE,
    Point,
    PointSource,
    encode_float,
)
from ..notebooks.compare import Execution
from ..notebooks.executed import ExecutedNotebook
from ..notebooks.metadata import as_json, read_metadata
from ..notebooks.scores import variables_to_read
from ..study_folder.patience import Patience, is_of_the_machine
from ..study_folder.saved import saved_in
from ..study_folder.snapshots import keep_environment
from ..trials import (
    Chore,
    ChoreKind,
    KernelUse,
    Params,
    Phase,
    Reason,
    RunningTrial,
    ScoreRank,
    TrialOutcome,
    TrialSpec,
    TrialState,
    Value,
    attempt_path,
    display_path,
)
from .environment import environment_of
from .executor import TimeLeft
from .runtime import guarded
from .verdict import failed, judge
from .workload import Workload

_log = logging.getLogger(__name__)

#: A trial that fails sooner in a forked kernel is run in a started one as well: what a fork cannot
#: do, such as to use CUDA that was initialised before, fails early.
_EARLY_S = 120.0
#: How long to try again where no kernel of the sweep has answered yet: most likely the kernel's
#: environment is broken, which does not pass.
_FIRST_KERNEL_S = 5.0
#: A slot that waits for a forked kernel looks this often.
_POLL_S = 0.02
#: A repetition may take three times as long as the reference trial, and a minute.
_LIMIT_FACTOR, _LIMIT_SLACK_S = 3.0, 60.0
#: A proof runs the reference trial so often, where nothing differs.
_RUNS_OF_A_PROOF = 2


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
    raise_descriptor_limit()
    with (
        guarded(workload.paths.folder) as (token, folder),
        places.opened(folder=folder, token=token),
    ):
        # What an import decides by the GPUs that it sees has to fit the trials, each of which has
        # one later.
        visible = ",".join(gpu.uuid for gpu in places.gpus)
        setup = KernelSetup(
            name=workload.kernel_name,
            env={**os.environ, **places.env},
            cwd=workload.cwd,
            runtime_folder=folder,
            token=token,
            frozen=workload.frozen,
        )
        pool = KernelPool(
            setup,
            kernels=workload.settings.kernels,
            import_env={"CUDA_VISIBLE_DEVICES": visible} if visible else {},
            shared_cells=workload.shared_cells,
        )
        outputs = f"the outputs in {display_path(workload.paths.root)}"
        patience = Patience(outputs, may_pass=is_of_the_machine)
        patience.limit_s = time_left.patience_s
        kernel_patience = Patience("the kernels", may_pass=is_no_kernel)
        kernel_patience.limit_s = lambda: (
            time_left.patience_s() if kernel_patience.has_succeeded else _FIRST_KERNEL_S
        )
        yield Worker(
            workload=workload,
            places=places,
            pool=pool,
            patience=patience,
            kernel_patience=kernel_patience,
            folder=folder,
            environment=_kept_environment(workload, places, token=token),
        )
        left_s = time_left.left_s()
        pool.close(patience_s=None if left_s is None else left_s / 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """Runs the trials of a sweep on this machine. Safe to use from several threads.

    Attributes:
        patience: waits for the disk with the executed notebooks, when it cannot be written.
        kernel_patience: waits for the machine, when it starts no kernels.
        folder: a private one, which is removed at the end.
        environment: the name under which is kept where its trials run; empty where it is not known.
        libraries: those that have reported by themselves.
        ranks: by score, the first source in order that a completed trial had.
        unjudged: the objective whose series by a library prunes no trial, and the library.
    """

    workload: Workload
    places: Places
    pool: KernelPool
    patience: Patience
    kernel_patience: Patience
    folder: Path
    environment: str = ""
    libraries: set[str] = field(default_factory=set)
    ranks: dict[str, ScoreRank] = field(default_factory=dict)
    unjudged: dict[str, str] = field(default_factory=dict)

    @property
    def findings(self) -> list[str]:
        """What users should know of how the trials ran, one sentence each."""
        names = ", ".join(sorted(self.libraries))
        hint = "`reports: explicit` takes only what calls of sweeper.report give"
        taken = [f"reports were taken from {names}; {hint}"] if names else []
        unjudged = [
            f"no trial was judged while it ran by what {library} logs as {name}: another source "
            f"gives {name} at the end; sweeper.report(step, {name}=…) gives it while a trial runs"
            for name, library in self.unjudged.items()
        ]
        return [*self.pool.findings, *taken, *unjudged]

    def run_trial(self, spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        """Run one trial to its end, whatever that is. Raises nothing."""
        started_s = running.own_s
        try:
            self._prove_forking(running)
            started_s = running.own_s
            outcome = self._run(spec, running)
        except OSError as error:
            message = f"{spec.notebook}: {error.strerror or error}"
            # Where the machine is at fault, the next trial would fare no better.
            state = TrialState.STOPPED if is_of_the_machine(error) else TrialState.FAILED
            outcome = TrialOutcome(state=state, reason=Reason.FILE, message=message)
        except Exception as error:  # noqa: BLE001  a defect of ours must cost one trial, not the sweep
            outcome = _internal_failure(spec, error)
        return replace(outcome, duration_s=running.own_s - started_s)

    def _prove_forking(self, running: RunningTrial) -> None:
        """Prove that kernels may be forked, where that is due, or wait for whoever proves it."""
        with running.waiting():
            while running.stop_reason is None and self.pool.waits:
                running.waits_for = "the imports and the proof of forked kernels"
                time.sleep(_POLL_S)
        running.waits_for = ""
        try:
            self.pool.policy.prove(
                self.pool.fork_server.available,
                partial(self._repeat, running),
                trials_left=running.trials_left + 1 + self.places.waiting,
            )
        finally:
            running.chore = None

    def _run(self, spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        """Run the trial and write its executed notebook."""
        keep_earlier = partial(keep_earlier_attempt, spec, self.patience)
        if message := self.patience.insist(keep_earlier):
            return failed(Reason.FILE, message)
        started_s = running.own_s
        file = self._new_file(spec)
        try:
            file, outcome = self._run_in_trusted_kernel(file, spec, running)
        except OSError:
            raise  # most likely the file itself cannot be written
        except NoGpuLeftError as error:
            message = str(error)
            outcome = TrialOutcome(state=TrialState.STOPPED, reason=Reason.NO_GPU, message=message)
        except Exception as error:  # noqa: BLE001  as in run_trial; here the file has it as well
            outcome = _internal_failure(spec, error)
        outcome = replace(outcome, duration_s=running.own_s - started_s)
        if saved := saved_in(spec.artifact_dir):
            file.metadata["artifacts"] = saved
        file.finish(outcome)
        self.patience.insist(file.write)
        return outcome

    def _run_in_trusted_kernel(
        self, file: ExecutedNotebook, spec: TrialSpec, running: RunningTrial
    ) -> tuple[ExecutedNotebook, TrialOutcome]:
        """Execute the notebook; a second time where the kernel may be to blame for a failure."""
        policy = self.pool.policy
        started_s = running.own_s
        file, result, outcome = self._execute_in_a_kernel(file, spec, running)
        took_s = running.own_s - started_s
        is_forked = result.origin.is_forked and not result.is_orphan
        if outcome.state is TrialState.FAILED:
            message = outcome.message
            # A started kernel would have no more memory.
            is_short = outcome.reason in (Reason.OUT_OF_MEMORY, Reason.OUT_OF_HOST_MEMORY)
            is_early = running.stop_reason is None and took_s < _EARLY_S
            is_doubted = is_forked and is_early and policy.doubts_failure(message)
            if running.phase is Phase.LOST and not is_short:  # others have its slot
                outcome = replace(
                    outcome,
                    state=TrialState.STOPPED,
                    reason=Reason.KERNEL_DIED,
                    message=f"{message}, while the trial was frozen",
                )
            # A stop that has come meanwhile stops the second run, and so the trial.
            elif (result.lost_its_kernel or is_doubted) and not is_short:
                file, result, outcome = self._run_in_started_kernel(spec, running)
                if is_doubted and outcome.state not in (TrialState.STOPPED, TrialState.FAILED):
                    policy.refuse_for_failure(spec.run_id, message)
        # A trial that went on from a checkpoint has other outputs than one that begins, and one
        # that began before a param was fixed has another value than the shared cells.
        is_usual = spec.continues is None and not self._fixed_since(spec)
        if outcome.state is not TrialState.COMPLETED or not is_usual:
            return file, outcome
        if result.origin.is_forked:
            if not result.shared_cells:
                self.pool.record_times(file.node, self.workload.own_names)
        else:
            run = _run_of(file, result, outcome)
            took_s = running.own_s - started_s
            policy.offer_reference(Reference(spec=spec, run=run, duration_s=took_s))
        return file, outcome

    def _execute_in_a_kernel(
        self, file: ExecutedNotebook, spec: TrialSpec, running: RunningTrial
    ) -> tuple[ExecutedNotebook, KernelResult, TrialOutcome]:
        """Execute the notebook; where no kernel starts, wait for the machine and try again."""
        origin: KernelOrigin | None = None

        def attempt() -> tuple[ExecutedNotebook, KernelResult, TrialOutcome]:
            nonlocal file, origin
            if origin is not None:
                file = self._new_file(spec)
            result, outcome = self._execute(file, spec, running, origin)
            if outcome.reason is Reason.KERNEL_START and running.stop_reason is None:
                origin = KernelOrigin(reason="the kernel before it did not start")
                raise _NoKernelError(result, outcome)
            return file, result, outcome

        try:
            return self.kernel_patience.insist(attempt)
        except _NoKernelError as error:
            return file, error.result, error.outcome

    def _run_in_started_kernel(
        self, spec: TrialSpec, running: RunningTrial
    ) -> tuple[ExecutedNotebook, KernelResult, TrialOutcome]:
        """Run a trial again, in a kernel that is started."""
        file = self._new_file(spec)
        published = running.step
        running.steps_before = {}  # what comes of the second run has its steps already

        def go_on(point: Point) -> None:
            # Up to there the points were published the first time.
            if published is None or point.step is None or point.step > published:
                running.publish(point)

        repeated = RunningTrial(go_on)
        with running.passed_on(repeated):
            reason = "the trial was run before, and failed or lost its kernel"
            result, outcome = self._execute(file, spec, repeated, KernelOrigin(reason=reason))
        return file, result, outcome

    def _repeat(
        self, running: RunningTrial, reference: Reference, origin: KernelOrigin
    ) -> Run | str | None:
        """One more run of the reference trial; why it failed; None where that shows nothing."""
        if running.chore is None:
            running.chore = Chore(
                kind=ChoreKind.PROVING,
                since_s=time.monotonic(),
                expected_s=_RUNS_OF_A_PROOF * reference.duration_s,
            )
        repeated = RunningTrial()
        limit_s = _LIMIT_FACTOR * reference.duration_s + _LIMIT_SLACK_S
        temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # it may be written yet
        with temporary as folder, running.passed_on(repeated):
            spec = replace(
                reference.spec,
                notebook=Path(folder) / "repeated.ipynb",
                checkpoint_dir=Path(folder) / "checkpoints",  # it must not go on from the others
                artifact_dir=Path(folder) / "artifacts",
            )
            file = self._new_file(spec)
            result, outcome = self._execute(file, spec, repeated, origin, limit_s=limit_s)
        if outcome.state is TrialState.COMPLETED:
            return _run_of(file, result, outcome)
        is_short = outcome.reason in (Reason.OUT_OF_MEMORY, Reason.OUT_OF_HOST_MEMORY)
        is_short |= os.strerror(errno.ENOSPC) in outcome.message  # in the folder of its own
        shows_nothing = result.lost_its_kernel or is_short or outcome.state is TrialState.STOPPED
        return None if shows_nothing else outcome.message

    # --- one execution ---------------------------------------------------------------------------

    def _new_file(self, spec: TrialSpec) -> ExecutedNotebook:
        """The executed notebook of a trial that has not run; it is not written yet."""
        workload = self.workload
        node = kernels.inject(
            workload.notebook.fresh_copy(workload.kernel_name),
            {**self._own_params(spec), **spec.fixed},
            kernel_name=workload.kernel_name,
            language=kernels.language_of(workload.kernel_name),
        )
        file = ExecutedNotebook(node, spec)
        known = {
            "snapshot": workload.snapshot and workload.snapshot.name,
            "environment": self.environment,
            "data": workload.data and dict(workload.data.facts),
            "host": workload.host,
        }
        file.metadata.update({name: value for name, value in known.items() if value})
        return file

    def _execute(
        self,
        file: ExecutedNotebook,
        spec: TrialSpec,
        running: RunningTrial,
        origin: KernelOrigin | None = None,
        *,
        limit_s: float | None = None,
    ) -> tuple[KernelResult, TrialOutcome]:
        """Run all cells, in the trial's place on the machine, and judge what came of it.

        Args:
            file: gets the outputs and what is known of the run.
            origin: how the kernel has to come to be; None for as the policy decides.
            limit_s: how long the cells may take; None for as long as `limits.trial` says. The wait
                for a place does not count.

        Raises:
            OSError: the file cannot be written.
        """
        settings = self.workload.settings

        def tell(waits_for: str) -> None:  # `status` reads it in the notebook
            file.metadata["waits_for"] = waits_for
            self.patience.attempt(file.write)

        def write() -> None:
            file.metadata["pid"] = running.pid  # `status` reads it, also in another process
            file.note_freezing(running.waited_s - waited_s, is_frozen=running.is_frozen)
            self.patience.attempt(file.write)  # it is written again when the trial has ended

        if not checkpoint_files(spec.checkpoint_dir):  # else it goes on where those were saved
            shutil.rmtree(spec.artifact_dir, ignore_errors=True)
        held = ExitStack()  # given back when the kernel has ended: the slot goes on before

        def give_back(is_gone: bool) -> None:
            if not is_gone:
                self.places.leave_behind(place)
            held.close()

        try:
            place = held.enter_context(self.places.lease(spec, running, tell))
        except StoppedWaiting:
            result = KernelResult(ending=Ending.STOPPED)
            return result, judge(file, result, running, settings)
        finally:
            file.metadata.pop("waits_for", None)
        file.begin()
        waited_s = running.waited_s
        running.has_room = partial(self.places.has_room_beside, place)
        ranks = {**dict.fromkeys(settings.scores, ScoreRank.NAMED), **self.ranks}
        running.ranks.update(ranks)
        file.note_ranks(ranks)
        running.steps_before = file.steps_before(PointSource.PRINTED)
        running.record = file.record
        if origin is None and (own := self._fixed_since(spec)):
            reason = f"it began before {', '.join(own)} was fixed"  # shared cells have that value
            origin = KernelOrigin(reason=reason)
        observed = self._observed(spec, file, is_own=limit_s is None)
        request = ExecutionRequest(
            node=file.node,
            running=running,
            write=write,
            on_kernel_gone=give_back,
            on_kernel_ready=self.kernel_patience.note_success,
            env={**_environment(spec), **observed, **place.env},
            own_params=self._own_params(spec),
            origin=origin,
            prepares_next=origin is None and running.trials_left > 0,
            score_sources=settings.scores,
            variables=variables_to_read(settings.scores, settings.objective),
            values=self._variables(spec),
            gpu_fraction=place.memory_fraction,
            cell_output_bytes=settings.limits.cell_output,
            grace_s=settings.limits.grace,
        )
        try:
            with running.limited(limit_s or settings.limits.trial):
                result = kernels.execute(request, pool=self.pool)
        except BaseException:  # there is no kernel whose end would give the place back
            held.close()
            raise
        self._describe(file, result)
        self.libraries.update(result.libraries)
        was_short = self.places.ran_short(place)
        outcome = replace(
            judge(file, result, running, settings, was_short=was_short),
            kernel=KernelUse(
                is_forked=result.origin.is_forked,
                shared_cells=result.shared_cells,
                reason=result.origin.reason,
            ),
            environment=self.environment,
            not_replicable=result.not_replicable,
            values_at_end=result.values,
        )
        outcome = self.places.settle(place, outcome, result.gpu_bytes)
        if outcome.state is TrialState.COMPLETED:
            self._learn_sources(file)
        if outcome.gpu is not None:
            file.metadata["gpu"] = asdict(outcome.gpu)
        return result, outcome

    def _learn_sources(self, file: ExecutedNotebook) -> None:
        """Learn which source gives each score, so that no later trial is judged by a lesser one."""
        settings, logged = self.workload.settings, file.metadata["logged"]
        for name, text in file.metadata["given_by"].items():
            rank = ScoreRank[text]
            if rank < self.ranks.get(name, ScoreRank.LOGGED):
                self.ranks[name] = rank
        name = next(iter(settings.objective))
        has_points = name in {**file.metadata["series"], **file.metadata["printed"]}
        is_unjudged = name in self.ranks and name in logged and not has_points
        if is_unjudged and settings.study.pruner.name != "none":
            self.unjudged[name] = logged[name]["library"]

    def _describe(self, file: ExecutedNotebook, result: KernelResult) -> None:
        """Put into the file's metadata how it was executed."""
        file.metadata.pop("pid", None)
        file.keep_earlier_series()
        file.metadata["variables"] = {k: encode_float(v) for k, v in result.variables.items()}
        if result.values:
            file.metadata["values_at_end"] = as_json(result.values)
        file.metadata["kernel"] = "warm" if result.origin.is_forked else "cold"
        file.metadata.update(self.pool.policy.coverage(result.origin))
        if result.shared_cells:
            file.metadata["shared_cells"] = result.shared_cells
        if result.exit_code is not None:
            file.metadata["exit_code"] = result.exit_code

    def _observed(
        self, spec: TrialSpec, file: ExecutedNotebook, *, is_own: bool
    ) -> Mapping[str, str]:
        """What the kernel takes from libraries.

        Args:
            is_own: whether MLflow has a run of the trial. Without one, or without a way to its
                store, calls go into a temporary folder.
        """
        is_own = is_own and self.workload.tracking is not None
        temporary = self.folder / f"mlflow-{uuid.uuid4().hex}"
        mlflow = {
            "uri": self.workload.tracking if is_own else temporary.as_uri(),
            "version": version("mlflow"),
            "study": spec.study,
            "study_id": spec.study_id,
            "run_id": spec.run_id if is_own else None,
        }
        known = {
            "reports": self.workload.settings.reports == "auto",
            "begun": file.steps_before(PointSource.OBSERVED),
            "mlflow": mlflow,
        }
        return {OBSERVED_VARIABLE: json.dumps(known)}

    def _variables(self, spec: TrialSpec) -> list[str]:
        """The swept and fixed names that are variables of the notebook."""
        notebook = self.workload.notebook
        return [name for name in {**spec.params, **spec.fixed} if notebook.assigns(name)]

    def _fixed_since(self, spec: TrialSpec) -> list[str]:
        """The params of a trial of an earlier call that this call fixes, to whatever value."""
        return sorted(spec.params.keys() & self.workload.settings.fixed.keys())

    def _own_params(self, spec: TrialSpec) -> Params:
        """The injected params that differ between the trials of a sweep."""
        notebook = self.workload.notebook
        known: dict[str, Value] = {"seed": spec.seed, "run_id": spec.run_id}
        wanted = {name: value for name, value in known.items() if notebook.takes(name)}
        files = {name: str(file.path) for name, file in spec.inputs.items()}
        params = {**wanted, **spec.params, **files}
        return {name: value for name, value in params.items() if name not in spec.fixed}


def _run_of(file: ExecutedNotebook, result: KernelResult, outcome: TrialOutcome) -> Run:
    """What two runs of a trial are compared by."""
    execution = Execution(cells=file.node.cells, scores=outcome.scores, series=outcome.series)
    return Run(execution=execution, uses_gpu=result.gpu_bytes is not None)


def _environment(spec: TrialSpec) -> Mapping[str, str]:
    """What `sweeper.trial()` reads in the kernel."""
    trial = {
        "number": spec.number,
        "run_id": spec.run_id,
        "params": dict(spec.params),
        "seed": spec.seed,
        "attempt": spec.attempt,
        "folder": str(spec.checkpoint_dir),
        "artifact_folder": str(spec.artifact_dir),
    }
    return {TRIAL_VARIABLE: json.dumps(trial)}


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


class _NoKernelError(Exception):
    """No kernel has started, so that the notebook has not begun."""

    def __init__(self, result: KernelResult, outcome: TrialOutcome) -> None:
        super().__init__(outcome.message)
        self.result, self.outcome = result, outcome


def is_no_kernel(error: Exception) -> bool:
    """Whether a worker has found that no kernel starts, which may pass."""
    return isinstance(error, _NoKernelError)


def _internal_failure(spec: TrialSpec, error: Exception) -> TrialOutcome:
    _log.exception("trial %s", spec.run_id)
    message = f"{type(error).__name__}: {error}"
    if is_of_the_machine(error):  # such as our own want of memory: the trial is not over
        return TrialOutcome(state=TrialState.STOPPED, reason=Reason.INTERNAL, message=message)
    return failed(Reason.INTERNAL, message)


def _study_of(path: Path) -> str | None:
    """The id of the study that wrote a file; empty where no study did; None where no file is."""
    if not path.exists():
        return None
    return str((read_metadata(path) or {}).get("study_id", ""))
