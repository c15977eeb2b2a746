"""Make the observed run of a notebook the first trial of its study, which saves running it twice.

The observed run executes the notebook as it is, to find its scores for a parameters file. The first
trial would have the same values and seed, unless the user has edited the parameters file.
"""

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
from ..settings import Settings
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
from .scores.seen_scores import texts_of


def adopted(file: Path, spec: TrialSpec, workload: Workload) -> TrialOutcome | None:
    """Save an observed run as the first trial of its study, if it had the trial's code and values.

    An observed run executes the notebook as it is before a sweep, to find its scores. For the first
    trial, the file and the folders of the run are removed afterwards, even if the result is None.

    Args:
        file: The executed notebook of the run. It may be missing.
        spec: The trial. For any other than the first one, nothing is done and the result is None.

    Returns:
        The outcome of the trial. None if the trial has to be run, for example because its code or
        values differ from the run's, or because the run's file may lack values of its scores.
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
    settings = workload.settings
    run = ObservedRun.read(file, workload.notebook)
    known = run.expressions()
    if not known.keys() >= {*variables_to_read(settings.scores, ())}:
        # The user has edited the parameters file, and it names a variable or an expression whose
        # value the run has not recorded.
        return None
    printed = _printed_points(run, settings)
    if printed is None:
        return None
    executed = ExecutedNotebook(run.node, spec)
    logged = _points_of(metadata, reads_libraries=settings.reports == "auto")
    for point in [*logged, *printed]:
        executed.points.record(point)
    wanted = variables_to_read(settings.scores, settings.objective)
    executed.note(
        variables={name: known[name] for name in wanted if name in known},
        started_at=metadata.started_at,
        # The trial names the study's snapshot, not that of the observed run. Both have the same
        # code, but the snapshot of the run is not kept.
        snapshot=workload.snapshot_name,
        environment=metadata.environment,
        random_seed=metadata.random_seed,
        kernel=metadata.kernel,
        kernel_reason="this run was made before the sweep",
        originals=originals_of(workload, spec),
    )
    outcome = judge(executed, KernelResult(ending=Finished()), RunningTrial(), settings)
    if outcome.reason is Reason.NO_SCORE:
        # The user has edited the parameters file, and it names a score that the run does not have.
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


def _printed_points(run: ObservedRun, settings: Settings) -> list[Point] | None:
    """Return the values of scores that the observed run (before the sweep) has printed.

    None if the run's file may lack some: a trial reads a value from each state of a text that is
    overwritten in place, such as a progress bar. The file has only the last state, so the result is
    None if such a text has a value.
    """
    found: list[Point] = []
    printed = PrintedScores(settings.scores, found.append)
    for text in texts_of(run.node):
        n_before = len(found)
        printed.read(text.stream, text.text)
        printed.end_cell()
        if text.is_redrawn and len(found) > n_before:
            return None
    return found


def _points_of(metadata: TrialMetadata, *, reads_libraries: bool) -> Iterator[Point]:
    """Yield the values that a notebook has reported, and those that libraries have logged.

    Args:
        reads_libraries: Whether to yield what libraries have logged. It is False if the parameters
            file has `reports: explicit`.
    """
    for name, value in metadata.finals.items():
        yield Point(step=None, metrics={name: value}, source=PointSource.REPORTED)
    sources = [PointSource.REPORTED]
    if reads_libraries:
        sources.append(PointSource.OBSERVED)
    for source in sources:
        for name, series in metadata.points_by(source).items():
            for step, value in series.points:
                yield Point(step=step, metrics={name: value}, source=source, library=series.library)


def _is_alike(metadata: TrialMetadata, spec: TrialSpec, workload: Workload) -> bool:
    """Return whether the observed run (before the sweep) completed with a trial's code and values.

    Study and seed have to be the same, too. False for a trial that gets artifacts of other studies
    (`inputs`). False, too, if a score is read from printed text and the run was interrupted and
    resumed: its file lacks what it had printed before.
    """
    fingerprint = fingerprint_of(
        workload.notebook, workload.settings, kernel_name=workload.kernel_name
    )
    reads_printed = any(source.pattern for source in workload.settings.scores.values())
    if metadata.attempt > 1 and reads_printed:
        return False
    return (
        metadata.state is TrialState.COMPLETED
        and has_same_code(metadata, fingerprint)
        and (metadata.study, metadata.seed) == (spec.study, spec.seed)
        and metadata.random_seed == random_seed_of(workload, spec)
        and not spec.inputs
        and _has_same_values(metadata.fixed, spec, workload)
    )


def _has_same_values(fixed: Params, spec: TrialSpec, workload: Workload) -> bool:
    """Return whether a trial has the values that the observed run (before the sweep) had.

    The run had the values in `fixed`, and for all other names those in its code.

    Args:
        fixed: Values by name that replaced those in the run's code.
        spec: The trial.
        workload: Has the notebook's code.
    """
    values: Params = as_json({**spec.params, **spec.fixed})
    assignments = workload.notebook.assignments
    own = {name: value for name, value in values.items() if name not in fixed}
    return fixed.items() <= values.items() and all(
        assignments.places(name) and assignments.plain_value(name) == value
        for name, value in own.items()
    )
