"""The observed run becomes the first trial of its study, so that nothing is run twice.

The study gives its trial out as always, to an executor that has the result already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from ..execution.executor import Executor, TrialSource
from ..execution.verdict import judge
from ..execution.workload import Workload
from ..kernels import Finished, KernelResult
from ..notebook_api.messages import Point, PointSource
from ..notebooks.assignments import plain_values
from ..notebooks.executed import ExecutedNotebook
from ..notebooks.fingerprint import fingerprint_of
from ..notebooks.metadata import TrialMetadata, read_metadata
from ..notebooks.research import ResearchNotebook
from ..notebooks.scores import PrintedScores, variables_to_read
from ..trials import KernelUse, Params, Reason, RunningTrial, TrialOutcome, TrialSpec
from .observed_run import ObservedRun, made_of


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptingExecutor:
    """Runs trials in another executor, but for the one that an observed run was.

    Attributes:
        file: The executed notebook of the run.
    """

    executor: Executor
    workload: Workload
    file: Path

    def __getattr__(self, name: str) -> Any:
        return getattr(self.executor, name)

    def run(self, source: TrialSource) -> Sequence[str]:
        """Run all trials; the observed one has ended before any other begins."""
        adopting = _AdoptingSource(source, self.workload, self.file)
        return self.executor.run(cast(TrialSource, adopting))


def adopting(executor: Executor, workload: Workload, file: Path) -> Executor:
    """Return an executor that takes an observed run for the trial that it was."""
    return cast(Executor, AdoptingExecutor(executor=executor, workload=workload, file=file))


class _AdoptingSource:
    """Gives out the trials of a source, but for one that was run already."""

    def __init__(self, source: TrialSource, workload: Workload, file: Path) -> None:
        self._source, self._workload, self._file = source, workload, file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def next_trial(self) -> tuple[TrialSpec, RunningTrial] | None:
        """Return the next trial that has to be run."""
        while True:
            found = self._source.next_trial()
            if found is None:
                return None
            outcome = adopted(self._file, found[0], self._workload)
            if outcome is None:
                return found
            self._source.finish_trial(found[0], outcome)
            self._file.unlink(missing_ok=True)


def adopted(file: Path, spec: TrialSpec, workload: Workload) -> TrialOutcome | None:
    """Write an observed run as the executed notebook of a trial.

    Returns:
        what the trial came to; None where the trial differs from the run.
    """
    metadata = read_metadata(file) if spec.number == 0 else None
    if metadata is None or not _is_alike(metadata, spec, workload):
        return None
    notebook, settings = workload.notebook, workload.settings
    run = ObservedRun.read(file, notebook)
    executed = ExecutedNotebook(run.node, spec)
    for point in _points_of(metadata):
        executed.points.record(point)
    printed = PrintedScores(settings.scores, executed.points.record)
    for text in run.texts():
        printed.read(text.stream, text.text)
        printed.end_cell()
    known = run.expressions()
    wanted = variables_to_read(settings.scores, settings.objective)
    executed.note(
        variables={name: known[name] for name in wanted if name in known},
        started_at=metadata.started_at,
        snapshot=metadata.snapshot,
        environment=metadata.environment,
        kernel=metadata.kernel,
        kernel_reason=metadata.kernel_reason,
    )
    result = KernelResult(ending=Finished())
    outcome = judge(executed, result, RunningTrial(), settings)
    if outcome.reason is Reason.NO_SCORE:  # the file was edited, and names what the run left out
        return None
    outcome = replace(
        outcome,
        duration_s=run.duration_s,
        environment=metadata.environment,
        kernel=KernelUse(is_forked=False, reason="it was the observed run"),
    )
    executed.finish(outcome)
    executed.write()
    return outcome


def _points_of(metadata: TrialMetadata) -> Iterator[Point]:
    """Yield the points that a notebook has reported and that libraries have logged."""
    for name, value in metadata.finals.items():
        yield Point(step=None, metrics={name: value}, source=PointSource.REPORTED)
    for source in (PointSource.REPORTED, PointSource.OBSERVED):
        for name, series in metadata.points_by(source).items():
            for step, value in series.points:
                yield Point(step=step, metrics={name: value}, source=source, library=series.library)


def _is_alike(metadata: TrialMetadata, spec: TrialSpec, workload: Workload) -> bool:
    """Whether the run was made of what the trial would be made of."""
    fingerprint = fingerprint_of(
        workload.notebook, workload.settings, kernel_name=workload.kernel_name
    )
    values: Params = {**spec.params, **spec.fixed}
    own = _own_values(workload.notebook)
    return (
        metadata.observed == made_of(fingerprint)
        and (metadata.study, metadata.seed) == (spec.study, spec.seed)
        and not spec.inputs
        and all(name in own and own[name] == value for name, value in values.items())
    )


def _own_values(notebook: ResearchNotebook) -> dict[str, Any]:
    assignments = notebook.assignments
    names = [*assignments.names(), *assignments.arguments()]
    own = {name: assignments.plain_value(name) for name in names}
    if notebook.parameters_cell:
        cell = notebook.code[notebook.parameters_cell - 1]
        own |= {name: value for name, (value, _) in plain_values(cell).items()}
    return own
