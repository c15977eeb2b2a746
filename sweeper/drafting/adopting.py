"""Make the observed run the first trial of its study, so that nothing is run twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ..execution.kernel_inputs import originals_of, random_seed_of
from ..execution.verdict import judge
from ..execution.workload import Workload
from ..kernels import Finished, KernelResult
from ..notebook_api.messages import Point, PointSource
from ..notebooks.executed import ExecutedNotebook
from ..notebooks.fingerprint import fingerprint_of
from ..notebooks.metadata import TrialMetadata, as_json, read_metadata
from ..notebooks.scores import PrintedScores, variables_to_read
from ..study_folder.saved import saved_in
from ..trials import (
    KernelUse,
    Params,
    Reason,
    RunningTrial,
    TrialOutcome,
    TrialSpec,
    TrialState,
)
from .observed_run import ObservedFolders, ObservedRun, has_same_code
from .seen_scores import texts_of


def adopted(file: Path, spec: TrialSpec, workload: Workload) -> TrialOutcome | None:
    """Make an observed run a trial: write it as the executed notebook of the trial.

    Args:
        file: The executed notebook of the run.

    Returns:
        The outcome of the trial. None if the trial differs from the run, or would have points that
        the run's file lacks. Then the run is removed.
    """
    if spec.number != 0:
        return None
    outcome = _adopted(file, spec, workload)
    file.unlink(missing_ok=True)
    ObservedFolders(paths=workload.paths).remove()
    return outcome


def _adopted(file: Path, spec: TrialSpec, workload: Workload) -> TrialOutcome | None:
    metadata = read_metadata(file)
    if metadata is None or not _is_alike(metadata, spec, workload):
        return None
    notebook, settings = workload.notebook, workload.settings
    run = ObservedRun.read(file, notebook)
    executed = ExecutedNotebook(run.node, spec)
    known = run.expressions()
    if not known.keys() >= {*variables_to_read(settings.scores, ())}:
        # Somebody has edited the parameters file, and it names a score that nobody has read.
        return None
    for point in _points_of(metadata, reads_libraries=settings.reports == "auto"):
        executed.points.record(point)
    found: list[Point] = []
    printed = PrintedScores(settings.scores, found.append)
    for text in texts_of(run.node):
        n_before = len(found)
        printed.read(text.stream, text.text)
        printed.end_cell()
        if text.is_redrawn and len(found) > n_before:
            # A trial gets the points of the overwritten states, too. The run's file lacks them.
            return None
    for point in found:
        executed.points.record(point)
    wanted = variables_to_read(settings.scores, settings.objective)
    executed.note(
        variables={name: known[name] for name in wanted if name in known},
        started_at=metadata.started_at,
        # The study does not keep the snapshot of the run. It has other settings and the same code.
        snapshot=workload.snapshot_name,
        environment=metadata.environment,
        random_seed=metadata.random_seed,
        kernel=metadata.kernel,
        kernel_reason="this run was made before the sweep",
        originals=originals_of(workload, spec),
    )
    result = KernelResult(ending=Finished())
    outcome = judge(executed, result, RunningTrial(), settings)
    if outcome.reason is Reason.NO_SCORE:
        # Somebody has edited the parameters file, and it names a score that the run lacks.
        return None
    outcome = replace(
        outcome,
        duration_s=run.duration_s,
        environment=metadata.environment,
        notices=metadata.notices,
        ended_at_s=metadata.ended_at_s,
        gpu=metadata.gpu,
        kernel=KernelUse(is_forked=False, reason="it was the observed run"),
    )
    ObservedFolders(paths=workload.paths).give_to(spec)
    executed.note(artifacts=saved_in(spec.artifact_dir))
    executed.finish(outcome)
    executed.write()
    return outcome


def _points_of(metadata: TrialMetadata, *, reads_libraries: bool) -> Iterator[Point]:
    """Yield the points that a notebook has reported, and perhaps those that libraries have logged.

    A trial has the latter unless the parameters file says `reports: explicit`.
    """
    for name, value in metadata.finals.items():
        yield Point(step=None, metrics={name: value}, source=PointSource.REPORTED)
    logged = [PointSource.OBSERVED] if reads_libraries else []
    for source in (PointSource.REPORTED, *logged):
        for name, series in metadata.points_by(source).items():
            for step, value in series.points:
                yield Point(step=step, metrics={name: value}, source=source, library=series.library)


def _is_alike(metadata: TrialMetadata, spec: TrialSpec, workload: Workload) -> bool:
    """Return whether the run had the code, the seed and the values that the trial would have.

    Values that were fixed for the run are in its metadata. The others are those of the notebook.
    A run that has continued after an interruption lacks what it had printed before.
    """
    fingerprint = fingerprint_of(
        workload.notebook, workload.settings, kernel_name=workload.kernel_name
    )
    values: Params = as_json({**spec.params, **spec.fixed})
    known, fixed = workload.notebook.assignments, metadata.fixed
    sources = workload.settings.scores.values()
    return (
        metadata.state is TrialState.COMPLETED
        and has_same_code(metadata, fingerprint)
        and (metadata.attempt == 1 or not any(source.pattern for source in sources))
        and (metadata.study, metadata.seed) == (spec.study, spec.seed)
        and metadata.random_seed == random_seed_of(workload, spec)
        and not spec.inputs
        and fixed.items() <= values.items()
        and all(
            name in fixed or (known.places(name) and known.plain_value(name) == value)
            for name, value in values.items()
        )
    )
