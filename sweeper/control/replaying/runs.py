"""Run trials again in kernels of this machine, and judge each replay when it has ended."""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...errors import KernelError, StudyError, SweepError
from ...execution.environment import environment_changes
from ...execution.local import LocalExecutor
from ...execution.workload import Workload
from ...kernels import can_freeze, check_kernel
from ...notebook_api.messages import Point, StopReason
from ...notebooks import ResearchNotebook, annotate, read_executed, read_metadata
from ...notebooks.fingerprint import changed_modules, modules_beside
from ...notebooks.scores import scrape
from ...settings import Settings
from ...study_folder.snapshots import (
    CodeSnapshot,
    keep_environment,
    read_environment,
    read_snapshot,
)
from ...sync.datasets import Dataset
from ...trials import (
    RunningTrial,
    StudyPaths,
    TrialOutcome,
    TrialSpec,
    TrialState,
    display_path,
)
from ..lookup import ExistingStudy
from ..side_trials import SideTrials
from .suspects import changed_data, find_suspects
from .targets import ReplayTarget, inputs_of_target
from .verdict import ReplayState, Verdict, compare

_log = logging.getLogger(__name__)

OnVerdict = Callable[[Verdict], None]
#: How many causes a verdict names at most.
_MOST_CAUSES = 8
#: The kernel for trials whose own is not installed.
_KERNEL_HERE = "python3"
_HERE = "--here replays it on this machine as it is, and gives the difference as a number"


def replay(
    existing: ExistingStudy,
    targets: Sequence[ReplayTarget],
    *,
    jobs: int | str = 1,
    here: bool = False,
    cold: bool = False,
    on_verdict: OnVerdict,
) -> list[Verdict]:
    """Run trials again with the same cells, params, seed and threads, and compare the results.

    Args:
        jobs: how many at once, or `"auto"`.
        here: whether a machine without the trials' kernel or GPU will do.
        cold: whether each gets a kernel of its own that is started, not forked.
        on_verdict: called with each verdict, one at a time.

    Raises:
        SweepError: this machine has not what the trials need; nothing was run.
    """
    verdicts: list[Verdict] = []
    lock = threading.Lock()

    def note(verdict: Verdict) -> None:
        with lock:
            verdicts.append(verdict)
            on_verdict(verdict)

    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        groups = list(_groups(existing, targets, Path(folder), here=here, cold=cold))
        runs = [(group, LocalExecutor.on_this_machine(group.workload, jobs)) for group in groups]
        if not here:
            _refuse_other_device(targets, has_gpus=all(it.has_gpus for _, it in runs))
        for group, executor in runs:
            executor.run(_Replays(group, note))
    return sorted(verdicts, key=lambda verdict: verdict.run_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Trials that ran the same cells with the same fixed values, so that one workload has them.

    Attributes:
        fixed: the values that the sweep of these trials had fixed.
        changes: what has changed of their code since, in words.
    """

    existing: ExistingStudy
    workload: Workload
    fixed: Mapping[str, Any]
    targets: Sequence[ReplayTarget]
    changes: Sequence[str]

    def spec(self, target: ReplayTarget) -> TrialSpec:
        """The trial, to be run as if for the first time and written beside its own notebook."""
        metadata = read_metadata(target.original) or {}
        spec = target.record.spec(
            study=self.existing.study.name,
            study_id=self.existing.study.study_id,
            fixed=self.fixed,
            checkpoint_dir=self.workload.paths.checkpoints(target.record.run_id),
            artifact_dir=self.workload.paths.saved(target.record.run_id),
            inputs=inputs_of_target(self.existing.paths, target),
            code=str(metadata.get("code", "")),
        )
        return replace(spec, attempt=1, notebook=target.replay)


def _groups(
    existing: ExistingStudy,
    targets: Sequence[ReplayTarget],
    folder: Path,
    *,
    here: bool,
    cold: bool,
) -> Iterator[_Group]:
    facts = existing.study.facts
    if "notebook" not in facts:
        raise StudyError(
            f"the study {existing.study.name!r} has not stored where its notebook is; sweep it once"
        )
    cwd = Path(facts["notebook"]).parent
    if not cwd.is_dir():
        raise StudyError(
            f"{cwd}: the folder of the notebook is gone, in which trials find their data and "
            "modules; put it back"
        )
    settings = _settings_for(existing, here=here, cold=cold)
    kernel = _kernel_for(existing, here=here)
    alike: dict[str, list[ReplayTarget]] = {}
    for target in targets:
        metadata = read_metadata(target.original) or {}
        common = [metadata.get(name) for name in ("code", "snapshot", "fixed", "data")]
        alike.setdefault(str(common), []).append(target)
    for index, members in enumerate(alike.values()):
        notebook = ResearchNotebook(members[0].original, is_executed=True)
        metadata = read_metadata(members[0].original) or {}
        paths = StudyPaths.parse(f"{folder}/{index}/{{run_id}}.ipynb", study="replay")
        paths.folder.mkdir(parents=True)
        snapshot = _snapshot(existing, metadata)
        data, changes = _data(settings, cwd, metadata)
        workload = Workload(
            notebook=notebook,
            settings=settings,
            kernel_name=kernel,
            cwd=cwd,
            paths=paths,
            snapshot=snapshot,
            data=data,
        )
        made_of = facts["made_of"]
        is_frozen = snapshot is not None and can_freeze(kernel)
        yield _Group(
            existing=existing,
            workload=workload,
            fixed=metadata.get("fixed", {}),
            targets=members,
            changes=[
                *changes,
                *([] if is_frozen else changed_modules(made_of, notebook.code, cwd)),
            ],
        )


def _data(
    settings: Settings, cwd: Path, metadata: Mapping[str, Any]
) -> tuple[Dataset | None, list[str]]:
    """The data of a trial, fetched where it is missing; and in words what has changed of it.

    A trial is replayed with other data, too: the verdict says how far its numbers differ then.
    """
    version = metadata.get("data", {}).get("version")
    if settings.data is None or version is None:
        return None, []
    stated = settings.data.model_copy(update={"version": version})
    data = Dataset(stated, folder=cwd)
    try:
        data.settle()
        data.bring(_log.warning)
    except SweepError as error:
        _log.warning("the data is not what the trial has used: %s", error)
        place = display_path(data.place())
        return None, [f"data.path {place} is not version {version} any more, which the trial used"]
    return data, []


def _snapshot(existing: ExistingStudy, metadata: Mapping[str, Any]) -> CodeSnapshot | None:
    """The modules of a trial; None where they were not kept, so that those on disk have to do."""
    name = metadata.get("snapshot")
    try:
        return read_snapshot(existing.paths, name) if name else None
    except StudyError as error:
        _log.warning("%s; the modules beside the notebook are used as they are now", error)
        return None


def _refuse_other_device(targets: Sequence[ReplayTarget], *, has_gpus: bool) -> None:
    """Refuse trials that had a GPU where there is none: their bits would differ for sure."""
    on_gpu = [target.record.run_id for target in targets if target.record.gpu is not None]
    if on_gpu and not has_gpus:
        raise StudyError(f"trial {on_gpu[0]} ran on a GPU, and none is used here; {_HERE}")


def _settings_for(existing: ExistingStudy, *, here: bool, cold: bool) -> Settings:
    settings = existing.settings
    if cold:
        execution = settings.execution.model_copy(update={"kernels": "cold"})
        settings = settings.model_copy(update={"execution": execution})
    if here:  # the numbers of the other machine's GPUs mean nothing here
        resources = settings.resources.model_copy(update={"gpus": "auto", "gpus_per_trial": 1})
        settings = settings.model_copy(update={"resources": resources})
    return settings


def _kernel_for(existing: ExistingStudy, *, here: bool) -> str:
    name = str(existing.study.facts["made_of"]["kernel"])
    try:
        check_kernel(name, asked_by=f"the study {existing.study.name!r}")
    except KernelError as error:
        if not here:
            raise KernelError(f"{error}; {_HERE}") from error
        check_kernel(_KERNEL_HERE, asked_by="--here")
        _log.warning("the kernel %r is not installed; %r takes its place", name, _KERNEL_HERE)
        return _KERNEL_HERE
    return name


class _Replays(SideTrials[ReplayTarget]):
    """Gives the trials of a group to an executor, and judges each that has ended."""

    def __init__(self, group: _Group, on_verdict: OnVerdict) -> None:
        super().__init__(group.targets)
        self._group = group
        self._on_verdict = on_verdict

    def begin(self, item: ReplayTarget, running: RunningTrial) -> TrialSpec:
        """Make the spec of a replay."""
        if item.record.state is TrialState.PRUNED:
            running.subscribe(_CutAsBefore(item, self._group.workload.settings, running))
        return self._group.spec(item)

    def end(self, item: ReplayTarget, spec: TrialSpec, outcome: TrialOutcome) -> None:
        """Compare a replay with its trial."""
        verdict = _judge(self._group, item, outcome)
        try:
            _keep_environment(self._group, item)
            _mark(item, verdict)
        except OSError as error:  # the verdict counts, wherever it cannot be written
            _log.warning("%s: %s", display_path(item.replay), error.strerror or error)
        self._on_verdict(verdict)


class _CutAsBefore:
    """Ends the replay of a pruned trial when it has reported as many points as the trial had."""

    def __init__(self, target: ReplayTarget, settings: Settings, running: RunningTrial) -> None:
        node = read_executed(target.original)
        series = scrape(node, sources=settings.scores, objectives=settings.objective).series
        self._left = {name: len(points) for name, points in series.items()}
        self._running = running

    def __call__(self, point: Point) -> None:
        for name in point.metrics:
            if point.step is not None and name in self._left:
                self._left[name] -= 1
        if all(left <= 0 for left in self._left.values()):
            self._running.stop(StopReason.PRUNED, "the trial was pruned here")


def _judge(group: _Group, target: ReplayTarget, outcome: TrialOutcome) -> Verdict:
    known: dict[str, Any] = {
        "run_id": target.record.run_id,
        "original": target.original,
        "replay": target.replay,
        "duration_s": outcome.duration_s,
    }
    is_cut = target.record.state is TrialState.PRUNED
    if outcome.state not in (TrialState.COMPLETED, target.record.state):
        message = f"the replay is {outcome.state}: {outcome.message}"
        causes = _causes(group, target)
        return Verdict(state=ReplayState.FAILED, scores={}, message=message, causes=causes, **known)
    found = compare(
        read_executed(target.original),
        read_executed(target.replay),
        group.workload.settings,
        is_cut=is_cut,
    )
    state = ReplayState.EQUAL if found.is_equal else ReplayState.DIFFERENT
    return Verdict(
        state=state,
        n_scores=found.n_scores,
        n_points=found.n_points,
        scores=found.scores,
        first=found.first,
        distance=found.distance,
        output=found.output,
        causes=() if found.is_equal else _causes(group, target),
        **known,
    )


def _causes(group: _Group, target: ReplayTarget) -> list[str]:
    """What may have made the difference: changes since the trial ran, then code that varies."""
    notebook, cwd = group.workload.notebook, group.workload.cwd
    record = target.record
    changes = [*group.changes, *_environment_changes(group, target)]
    since = [f"since the study was swept: {change}" for change in changes]
    causes = [*since, *changed_data(notebook.code, record.params, cwd, since_s=record.started_at_s)]
    if record.attempt > 1 or record.retry_of is not None:
        causes.append(
            "the trial was interrupted and begun again: if it went on from a checkpoint, that may "
            "lack a part of its state, such as the optimizer's or a generator's"
        )
    if record.gpu is not None and record.gpu.was_short:
        causes.append("memory of its GPU ran short, by which libraries choose other algorithms")
    snapshot = group.workload.snapshot
    modules = modules_beside(notebook.code, cwd) if snapshot is None else snapshot.files
    suspects = find_suspects(notebook.code, modules)
    return [*causes, *map(str, suspects)][:_MOST_CAUSES]


def _environment_changes(group: _Group, target: ReplayTarget) -> list[str]:
    """What is other here than where the trial ran, as far as both are known."""
    then = (read_metadata(target.original) or {}).get("environment")
    now = (read_metadata(target.replay) or {}).get("environment")
    if not then or not now:
        return []
    try:
        before = read_environment(group.existing.paths, then)
        return environment_changes(before, read_environment(group.workload.paths, now))
    except StudyError:  # a file was removed
        return []


def _keep_environment(group: _Group, target: ReplayTarget) -> None:
    """Keep the record of where a replay ran with those of the study's trials."""
    name = (read_metadata(target.replay) or {}).get("environment")
    if name:
        with suppress(StudyError):  # there was no time to write it
            keep_environment(group.existing.paths, read_environment(group.workload.paths, name))


def _mark(target: ReplayTarget, verdict: Verdict) -> None:
    """Write the verdict into the notebook of the replay, where there is one."""
    if read_metadata(target.replay) is not None:
        of, state = target.original.name, str(verdict.state)
        annotate(
            target.replay, replay={"of": of, "verdict": state, "difference": verdict.difference}
        )
