"""Run the notebook once for a trial, with the trial's params and its share of the machine."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace

from .. import kernels
from ..kernels import Ending, ExecutionRequest, KernelOrigin, KernelPool, KernelResult
from ..notebook_api.checkpoints import checkpoint_files
from ..notebook_api.messages import TRIAL_VARIABLE, encode_float
from ..notebooks.executed import ExecutedNotebook
from ..notebooks.scores import variables_to_read
from ..study_folder.patience import Patience
from ..trials import (
    KernelUse,
    Params,
    RunningTrial,
    TrialOutcome,
    TrialSpec,
    Value,
)
from .places import Place, Places, StoppedWaiting
from .verdict import judge
from .workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class NotebookRunner:
    """Executes the notebook for one trial after another. Safe to use from several threads.

    Attributes:
        patience: waits for the disk with the executed notebooks, when it is full.
        environment: the name under which is kept where its trials run; empty where it is not known.
    """

    workload: Workload
    places: Places
    pool: KernelPool
    patience: Patience
    environment: str = ""

    def new_file(self, spec: TrialSpec) -> ExecutedNotebook:
        """The executed notebook of a trial that has not run; it is not written yet."""
        workload = self.workload
        node = kernels.inject(
            workload.notebook.fresh_copy(self.pool.name),
            {**self._own_params(spec), **spec.fixed},
            kernel_name=self.pool.name,
            language=kernels.language_of(self.pool.name),
        )
        file = ExecutedNotebook(node, spec, started_at=_now())
        known = {
            "snapshot": workload.snapshot and workload.snapshot.name,
            "environment": self.environment,
            "data": workload.data and dict(workload.data.facts),
            "host": workload.host,
        }
        file.metadata.update({name: value for name, value in known.items() if value})
        return file

    def run(
        self,
        file: ExecutedNotebook,
        spec: TrialSpec,
        running: RunningTrial,
        *,
        limit_s: float | None,
        write: Callable[[], None],
        origin: KernelOrigin | None = None,
    ) -> tuple[KernelResult, TrialOutcome]:
        """Run all cells, in the trial's place on the machine, and judge what came of it.

        Args:
            file: gets the outputs and what is known of the run.
            limit_s: how long the cells may take, in seconds; the wait for a place not counted.
            write: called whenever the file should be brought up to date.
            origin: how the kernel has to come to be; None for as the policy decides.

        Raises:
            OSError: the file cannot be written.
        """
        if not checkpoint_files(spec.checkpoint_dir):  # else it goes on where those were saved
            shutil.rmtree(spec.artifact_dir, ignore_errors=True)
        result, place = self._execute(
            file, spec, running, limit_s=limit_s, write=write, origin=origin
        )
        was_short = place is not None and self.places.ran_short(place)
        outcome = judge(file, result, running, self.workload.settings, was_short=was_short)
        outcome = replace(
            outcome,
            kernel=self._kernel_use(result),
            environment=self.environment,
            not_replicable=result.not_replicable,
        )
        if place is None:
            return result, outcome
        outcome = self.places.settle(place, outcome, result.gpu_bytes)
        if outcome.gpu is not None:
            file.metadata["gpu"] = asdict(outcome.gpu)
        return result, outcome

    def _execute(
        self,
        file: ExecutedNotebook,
        spec: TrialSpec,
        running: RunningTrial,
        *,
        limit_s: float | None,
        write: Callable[[], None],
        origin: KernelOrigin | None,
    ) -> tuple[KernelResult, Place | None]:
        def tell(waits_for: str) -> None:  # `status` reads it in the notebook
            file.metadata["waits_for"] = waits_for
            self.patience.attempt(write)

        held = ExitStack()  # given back when the kernel has ended: the slot goes on before
        try:
            place = held.enter_context(self.places.lease(spec, running, tell))
        except StoppedWaiting:
            return KernelResult(ending=Ending.STOPPED), None
        finally:
            file.metadata.pop("waits_for", None)
        file.metadata["started_at"] = _now()

        def write_running() -> None:
            file.metadata["pid"] = running.pid  # `status` reads it, also in another process
            self.patience.attempt(write)  # it is written again when the trial has ended

        running.subscribe(file.record)
        settings = self.workload.settings
        if origin is None and (own := self.fixed_since(spec)):
            reason = f"it began before {', '.join(own)} was fixed"  # shared cells have that value
            origin = KernelOrigin(reason=reason)
        request = ExecutionRequest(
            node=file.node,
            running=running,
            write=write_running,
            on_kernel_gone=held.close,
            env={**_environment(spec), **place.env},
            own_params=self._own_params(spec),
            origin=origin,
            prepares_next=origin is None and running.trials_left > 0,
            score_sources=settings.scores,
            variables=variables_to_read(settings.scores, settings.objective),
            gpu_fraction=place.memory_fraction,
            cell_output_bytes=settings.limits.cell_output,
            grace_s=settings.limits.grace,
        )
        try:
            with running.limited(limit_s):
                result = kernels.execute(request, pool=self.pool)
        except BaseException:  # there is no kernel whose end would give the place back
            held.close()
            raise
        self._describe(file, result)
        return result, place

    def _describe(self, file: ExecutedNotebook, result: KernelResult) -> None:
        """Put into the file's metadata how it was executed."""
        file.metadata.pop("pid", None)
        file.keep_earlier_series(self.workload.settings.scores)
        file.metadata["variables"] = {k: encode_float(v) for k, v in result.variables.items()}
        file.metadata["kernel"] = "warm" if result.origin.is_forked else "cold"
        file.metadata.update(self.pool.policy.coverage(result.origin))
        if result.shared_cells:
            file.metadata["shared_cells"] = result.shared_cells
        if result.exit_code is not None:
            file.metadata["exit_code"] = result.exit_code

    def _kernel_use(self, result: KernelResult) -> KernelUse | None:
        origin = result.origin
        if not origin.is_forked and not origin.reason:
            return None  # stopped while it waited for a device
        return KernelUse(
            is_forked=origin.is_forked,
            shared_cells=result.shared_cells,
            reason=origin.reason,
            proven_by=self.pool.policy.coverage(origin).get("proven_by", ""),
        )

    def fixed_since(self, spec: TrialSpec) -> list[str]:
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


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
