"""Run trials again and compare every score and every step with the original: the command `replay`.

Each replay gets a kernel that is started for it, never a forked one. The study is not changed.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from ..data.archive import Dataset
from ..errors import KernelError, NotebookError, OutputError, SettingsError, StudyError
from ..execution.local import LocalExecutor
from ..execution.runtime import temporary_folder
from ..execution.side_trials import SideTrials
from ..execution.workload import Workload
from ..kernels import Proof, check_kernel, choose_kernel
from ..notebook_api.messages import encode_float
from ..notebooks.compare import Differences, Execution, compare
from ..notebooks.fingerprint import SECTIONS
from ..notebooks.metadata import BLANK, TrialMetadata, as_json, read_metadata
from ..notebooks.research import ResearchNotebook
from ..settings import Settings
from ..settings.yaml_reader import read_yaml
from ..study_folder.snapshots import CodeSnapshot, read_snapshot
from ..trials import (
    InputFile,
    StudyPaths,
    TrialOutcome,
    TrialRecord,
    TrialSpec,
    TrialState,
    display_path,
)
from .diff import read_execution
from .lookup import STORAGE_NAME, ExistingStudy, find_study

_log = logging.getLogger(__name__)

#: If a trial's original kernel is missing, `--here` runs the trial in another kernel: the one that
#: a sweep on this machine would choose for a notebook with this kernel name.
_KERNEL_HERE = "python3"
_HERE = "--here replays it on this machine all the same, and shows how much the results differ"
_HERE_IN = (
    "activate the environment that has the notebook's packages: --here replays the trial in it, "
    "and shows how much the results differ"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTarget:
    """A trial that is to be run again.

    Attributes:
        record: Record of the trial in the study.
        metadata: Metadata of the trial's executed notebook.
    """

    record: TrialRecord
    metadata: TrialMetadata

    @property
    def replay(self) -> Path:
        """Path of the replay's executed notebook, next to that of the trial."""
        notebook = self.record.notebook
        return notebook.with_name(notebook.stem + ".replay.ipynb")

    def inputs(self, paths: StudyPaths) -> dict[str, InputFile]:
        """Return the files of other studies that the trial has used.

        The keys are the params with which the notebook gets the paths. The paths are those of the
        copies that the trial's study keeps.
        """
        return {
            name: replace(file, path=paths.input(file.sha256, file.artifact))
            for name, file in self.metadata.inputs.items()
        }


class ReplayState(StrEnum):
    """Result of a replay: equal numbers, different numbers, or a replay that did not complete."""

    EQUAL = "equal"
    DIFFERENT = "different"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The comparison of one trial with its replay. Only numbers decide its state, not outputs.

    Attributes:
        target: The trial.
        found: Differences between the trial (first) and its replay (second).
        n_scores: Number of final scores that were compared.
        n_points: Number of reported points that were compared.
        causes: Possible causes of differences, such as changes since the trial ran.
        message: Why nothing could be compared. None if the replay completed.
        duration_s: Duration of the replay in seconds.
    """

    target: ReplayTarget
    found: Differences
    n_scores: int = 0
    n_points: int = 0
    causes: Sequence[str] = ()
    message: str | None = None
    duration_s: float = 0.0

    @property
    def run_id(self) -> str:
        """Run id of the trial."""
        return self.target.record.run_id

    @property
    def state(self) -> ReplayState:
        """Result: all numbers are equal bit for bit, some are different, or the replay failed."""
        if self.message is not None:
            return ReplayState.FAILED
        return ReplayState.EQUAL if self.found.has_equal_numbers else ReplayState.DIFFERENT

    def lines(self) -> list[str]:
        """Return the verdict as lines for people. The first line is complete by itself."""
        if self.state is ReplayState.EQUAL:
            compared = f"final scores: {self.n_scores}, reported points: {self.n_points}"
            lines = [f"{self.run_id}: equal, bit for bit ({compared}; {self.duration_s:.1f} s)"]
            return lines + [f"  an output differs: {output}" for output in self.found.outputs[:1]]
        if self.state is ReplayState.FAILED:
            return [f"{self.run_id}: not compared: {self.message}"]
        distance = self.found.distance
        none = "nothing that is known to change results has changed since the study was swept"
        far = "" if math.isinf(distance) else f"; the largest relative difference is {distance:.2g}"
        files = map(display_path, (self.target.record.notebook, self.target.replay))
        return [
            f"{self.run_id}: different: {'; '.join(self.found.numbers_in_words())}{far}",
            *(f"  {cause}" for cause in self.causes or [none]),
            f"  compare {' and '.join(files)}",
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints. Infinity and NaN, which JSON lacks, are texts."""
        return {
            "run_id": self.run_id,
            "verdict": str(self.state),
            "notebook": display_path(self.target.record.notebook),
            "replay": display_path(self.target.replay),
            "compared": {"scores": self.n_scores, "points": self.n_points},
            "distance": encode_float(self.found.distance),
            "causes": list(self.causes),
            "message": self.message,
            "duration_s": round(self.duration_s, 3),
            **self.found.to_json(),
        }


def replay(
    existing: ExistingStudy,
    targets: Sequence[ReplayTarget],
    *,
    jobs: int | str = 1,
    here: bool = False,
    on_verdict: Callable[[Verdict], None],
) -> list[Verdict]:
    """Run trials again with the same cells, params, seed and threads, and compare the results.

    Args:
        existing: Study of the trials.
        targets: The trials.
        jobs: Number of trials that run at once, or `"auto"`.
        here: Whether this machine may lack the original kernel, or the GPU that the trials used.
        on_verdict: Called with each verdict. Calls never overlap.

    Returns:
        The verdicts, sorted by run id.

    Raises:
        SweepError: This machine lacks what the trials need, or their code or data is lost. No trial
            was run.
    """
    verdicts: list[Verdict] = []
    lock = threading.Lock()
    by_number = {target.record.number: target for target in targets}

    def note(workload: Workload, spec: TrialSpec, outcome: TrialOutcome) -> bool:
        verdict = _judge(existing, workload, by_number[spec.number], outcome)
        with lock:
            verdicts.append(verdict)
            on_verdict(verdict)
        return True

    with temporary_folder("replay") as folder:
        runs = [
            (workload, alike, LocalExecutor.on_this_machine(workload, jobs))
            for workload, alike in _workloads(existing, targets, folder, here=here)
        ]
        uses = {target.record.run_id: target.record.gpu for target in targets}
        on_gpu = [run_id for run_id, use in uses.items() if use is not None and use.is_likely]
        if on_gpu and not here and not all(executor.places.gpus for *_, executor in runs):
            raise StudyError(f"trial {on_gpu[0]} used a GPU, and none is used here; {_HERE}")
        for workload, alike, executor in runs:
            specs = [_spec_of(existing, workload, target) for target in alike]
            executor.run(SideTrials(specs, end=partial(note, workload)))
    return sorted(verdicts, key=lambda verdict: verdict.run_id)


# --- choice of trials ----------------------------------------------------------------------------


def targets_of(
    existing: ExistingStudy, run_ids: Sequence[str], *, takes_all: bool, sample: int | None
) -> list[ReplayTarget]:
    """Return the trials of a study that are to be run again.

    Exactly one of the last three arguments has to be given.

    Args:
        existing: The study.
        run_ids: Run ids of the trials.
        takes_all: Whether to choose all completed trials.
        sample: Number of completed trials to choose, evenly spread over the study.

    Raises:
        SettingsError: None or several of the three arguments were given.
        StudyError: A trial of `run_ids` does not exist or has not completed. Or no trial of the
            study has completed.
        NotebookError: The executed notebook of a trial is missing.
        OutputError: Another file has the path of a replay's notebook.
    """
    if bool(run_ids) + takes_all + (sample is not None) != 1:
        raise SettingsError(
            f"which trials of {existing.study.name!r} to replay? Give run ids, --all, or "
            "--sample N; or give only the path of an executed notebook"
        )
    if run_ids:
        records = [existing.record(run_id) for run_id in dict.fromkeys(run_ids)]
    else:
        records = [
            record for record in existing.study.records() if record.state is TrialState.COMPLETED
        ]
        if not records:
            raise StudyError(
                f"the study {existing.study.name!r} has no trial that has completed; sweep it first"
            )
        missing = [record.run_id for record in records if not record.notebook.is_file()]
        if len(missing) < len(records):
            records = [record for record in records if record.run_id not in missing]
            if missing:
                _log.warning("trials without notebooks are left out: %s", ", ".join(missing))
    if sample is not None:
        n = min(sample, len(records))
        records = [records[index * len(records) // n] for index in range(n)]
    return [_target(existing, record) for record in records]


def trial_of(
    notebook: Path, *, storage: str | None, tracking_uri: str | None
) -> tuple[ExistingStudy, list[str]]:
    """Return the study of an executed notebook, and a list with the run id of its trial.

    Args:
        notebook: Executed notebook of a trial.
        storage: URL of the Optuna storage. Needed only if no folder above the notebook has the
            study.
        tracking_uri: Address of MLflow with its password, which studies do not store.

    Raises:
        NotebookError: The file is not a notebook that a sweep has executed.
        StudyError: The notebook's study cannot be found.
    """
    metadata = read_metadata(notebook) or BLANK
    if not metadata.study_id:
        raise NotebookError(
            f"{notebook}: there is no executed notebook of a trial at this path; give one, as in: "
            "replay out/digits.0007.ipynb"
        )
    wanted = metadata.study
    if storage is None:
        folders = (folder / wanted for folder in notebook.absolute().parents)
        folder = next((folder for folder in folders if (folder / STORAGE_NAME).is_file()), None)
        if folder is None:
            raise StudyError(
                f"{notebook}: no folder above it has its study {wanted!r}; give the study's "
                "storage with --storage"
            )
        wanted = str(folder)
    existing = find_study(wanted, storage=storage, tracking_uri=tracking_uri)
    if metadata.study_id != existing.study.study_id:
        raise StudyError(
            f"{notebook}: it was written by another study than the one in {existing.storage_url}; "
            "give the right one with --storage"
        )
    return existing, [metadata.run_id]


def _target(existing: ExistingStudy, record: TrialRecord) -> ReplayTarget:
    """Return a trial with its notebook's metadata, after a check that it can be run again.

    Raises:
        StudyError: The trial has not completed.
        NotebookError: The executed notebook of the trial is missing.
        OutputError: Another file has the path of the replay's notebook.
    """
    if record.state is not TrialState.COMPLETED:
        raise StudyError(
            f"trial {record.run_id} is {record.state}, and only completed trials have results to "
            "compare with; choose a trial that has completed"
        )
    metadata = read_metadata(record.notebook)
    if metadata is None:
        raise NotebookError(
            f"{display_path(record.notebook)}: the executed notebook of trial {record.run_id} is "
            "missing or damaged, so there is nothing to compare with; choose another"
        )
    target = ReplayTarget(record=record, metadata=metadata)
    earlier = read_metadata(target.replay) or BLANK
    if target.replay.exists() and earlier.study_id != existing.study.study_id:
        raise OutputError(
            f"{display_path(target.replay)}: exists, and is not a replay of this study; move it "
            "away"
        )
    return target


# --- workloads -----------------------------------------------------------------------------------


def _workloads(
    existing: ExistingStudy, targets: Sequence[ReplayTarget], folder: Path, *, here: bool
) -> Iterator[tuple[Workload, list[ReplayTarget]]]:
    """Group trials that can share a workload. Yield each workload with its trials.

    A workload is what trials share: the notebook, the settings, the data and the kernel.

    Args:
        existing: The study.
        targets: Trials to run again.
        folder: Folder for the outputs of these runs.
        here: Whether this machine may lack the original kernel, or the GPU that the trials used.
    """
    cwd = Path(existing.study.facts.notebook).parent
    if not cwd.is_dir():
        raise StudyError(
            f"{cwd}: the notebook's folder does not exist, and trials read their data and modules "
            "there; put it back"
        )
    kernel = _kernel_for(existing, cwd, here=here)
    confirms = existing.study.facts.confirms is not None
    groups: dict[tuple[Any, Any, Any, int | None], list[ReplayTarget]] = {}
    for target in targets:
        trial = target.metadata
        random_seed = None if trial.random_seed == trial.seed else trial.random_seed
        key = trial.code, trial.snapshot, trial.data, random_seed
        groups.setdefault(key, []).append(target)
    for index, ((*_, random_seed), alike) in enumerate(groups.items()):
        metadata = alike[0].metadata
        paths = StudyPaths.parse(f"{folder}/{index}/{{run_id}}.ipynb", study="replay")
        paths.folder.mkdir(parents=True)
        snapshot = read_snapshot(existing.paths, metadata.snapshot)
        settings = _settings_of(existing.settings, snapshot, here=here)
        repeat = settings.repeat
        workload = Workload(
            notebook=ResearchNotebook(alike[0].record.notebook, is_executed=True),
            settings=settings,
            kernel_name=kernel,
            cwd=cwd,
            paths=paths,
            snapshot=snapshot,
            code_folder=cwd.resolve(),  # The project may have been moved since it was swept.
            data=_data(settings, cwd, metadata),
            random_seed=random_seed,
            replaces_seeds=confirms or (repeat is not None and not repeat.by_fold),
        )
        yield workload, alike


def _data(settings: Settings, cwd: Path, metadata: TrialMetadata) -> Dataset | None:
    """Return the data that a trial used. Fetch it first if this machine lacks it.

    Returns:
        None if the trial used no data of the parameters file.
    """
    if settings.data is None or metadata.data is None:
        return None
    stated = settings.data.model_copy(update={"version": metadata.data.version})
    data = Dataset(stated, folder=cwd)
    data.settle()
    data.bring(_log.warning)
    return data


def _settings_of(last: Settings, snapshot: CodeSnapshot, *, here: bool) -> Settings:
    """Return the settings for trials that ran the code of a snapshot.

    Settings on which results depend are those of the trials' own sweep. All others are those of the
    last sweep, because they fit the present machine best.

    Args:
        last: Settings of the study's last sweep.
        snapshot: Code of the trials, with the settings of their sweep.
        here: Whether this machine may have other GPUs than those that the settings name.
    """
    own = Settings.from_mapping(read_yaml(snapshot.parameters))
    decisive = {key: getattr(own, key) for key in (*SECTIONS, "repeat", "reports")}
    resources: dict[str, Any] = {"cpus_per_trial": own.resources.cpus_per_trial}
    if here:
        resources |= {"gpus": "auto", "gpus_per_trial": 1}
    return last.model_copy(
        update={
            **decisive,
            "kernels": "cold",
            "resources": last.resources.model_copy(update=resources),
        }
    )


def _kernel_for(existing: ExistingStudy, cwd: Path, *, here: bool) -> str:
    name = existing.study.facts.kernel
    try:
        check_kernel(name, asked_by=f"the study {existing.study.name!r}", remedy="")
    except KernelError as error:
        if not here:
            raise KernelError(f"{error}; {_HERE_IN}") from error
        chosen = choose_kernel(
            None, named=_KERNEL_HERE, is_python=True, folder=cwd, notebook="--here"
        )
        _log.warning("the kernel %r is not installed; %r is used instead", name, chosen.name)
        return chosen.name
    return name


def _spec_of(existing: ExistingStudy, workload: Workload, target: ReplayTarget) -> TrialSpec:
    """Return the `TrialSpec` of a replay, whose notebook is written next to that of the trial."""
    settings, paths = workload.settings, workload.paths
    record = target.record
    fixed = dict(target.metadata.fixed)
    for name in fixed.keys() & settings.fixed.keys():
        now = settings.fixed[name]
        # The metadata contains infinity and NaN as texts. Take the numbers from the settings.
        if as_json(now) == fixed[name]:
            fixed[name] = now
    return TrialSpec(
        study=existing.study.name,
        study_id=existing.study.study_id,
        number=record.number,
        params=record.params,
        fixed=fixed,
        seed=record.seed,
        attempt=1,
        notebook=target.replay,
        checkpoint_dir=paths.checkpoints(record.run_id),
        artifact_dir=paths.saved(record.run_id),
        inputs=target.inputs(existing.paths),
        code=target.metadata.code,
    )


def _judge(
    existing: ExistingStudy, workload: Workload, target: ReplayTarget, outcome: TrialOutcome
) -> Verdict:
    """Compare a trial with its replay.

    Args:
        existing: Study of the trial.
        workload: Workload of the replay.
        target: The trial.
        outcome: Outcome of the replay. If it has not completed, nothing is compared.
    """
    record, settings = target.record, workload.settings
    if outcome.state is not TrialState.COMPLETED:
        nothing = Execution(scores={}, series={})
        return Verdict(
            target=target,
            found=compare(nothing, nothing),
            message=f"the replay is {outcome.state}: {outcome.message}",
            duration_s=outcome.duration_s,
        )
    before = read_execution(record.notebook, existing.paths, settings)
    now = read_execution(target.replay, workload.paths, settings)
    found = compare(before, now)
    causes = [f"since the study was swept: {change}" for change in found.environment_in_words()]
    if record.attempt > 1 or record.retry_of is not None:
        causes.append(
            "the trial was interrupted and run again: if it resumed from a checkpoint, the "
            "checkpoint may lack a part of the state, such as the optimizer's or a generator's"
        )
    if target.metadata.kernel == "warm" and target.metadata.proof != Proof.EQUAL:
        causes.append(
            "the trial ran in a forked kernel, and no test has shown that this changes no number"
        )
    return Verdict(
        target=target,
        found=found,
        n_scores=len(before.scores),
        n_points=sum(map(len, before.series.values())),
        causes=causes,
        duration_s=outcome.duration_s,
    )
