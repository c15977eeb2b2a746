"""Define the plan of a sweep, which is checked before a kernel starts or a file is written."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from ...execution.executor import Executor
from ...execution.local import LocalExecutor
from ...execution.workload import Workload
from ...kernels import KernelChoice
from ...notebooks.fingerprint import Fingerprint
from ...notebooks.research import ResearchNotebook
from ...search.samplers import SamplerFactory
from ...settings import Settings
from ...settings.addresses import Address
from ...settings.machines import Cluster
from ...study.facts import InputFact
from ...study.located import LocatedStudy
from ...study.study import Study
from ...sync import RemoteCopy
from ...trials import InputFile, RerunPlan, StudyPaths, TrialOutcome, TrialSpec
from .kinds import whole_ranges

#: Function that returns the outcome of a trial that was run before the sweep, so that it need not
#: run again. It returns None for any other trial.
Adopt = Callable[[TrialSpec, Workload], TrialOutcome | None]
#: Function that makes an executor from a workload. It may wait for workers of a cluster. The second
#: argument is a function that returns whether the sweep was stopped. If so, the wait ends with
#: `StoppedError`.
MakeExecutor = Callable[[Workload, Callable[[], bool]], Executor]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """All parts of a sweep.

    Attributes:
        workload: Notebook, settings, paths and more that all trials of the sweep have in common.
        kernel: The kernel of the trials, and why it was chosen.
        executor: Runs the trials, on this machine or on a cluster.
        make_executor: Makes an executor from a workload, for a study that runs the best trials of
            this one again.
        samplers: Makes the samplers that propose params.
        storage_url: URL of the study's storage.
        tracking: Address of MLflow's store.
        tracks_by_default: Whether neither an option nor the environment names that store.
        began_s: Time from which `timeout_s` counts, on the monotonic clock.
        timeout_s: Wall-clock limit of the sweep, in seconds. None for no limit.
        fingerprint: What decides the trials' results: the kernel, settings, and hashes of the code.
        allow_changes: Whether to resume a study whose trials ran with other code or settings.
        remote: Copy of the study in an object storage. None if there is none.
        adopt: Returns the outcome of a trial that was run before the sweep, so that it is not run
            again. Returns None for any other trial. None if no trial was run before the sweep.
        inputs: Files of other studies that the trials use, by input name. Known once the study is
            open.
        input_facts: The same files in the form in which the study stores them.
        confirming: Params and seeds that the study runs, to confirm or ablate trials of a search.
            None if the study itself is a search.
    """

    workload: Workload
    kernel: KernelChoice
    executor: Executor
    make_executor: MakeExecutor
    samplers: SamplerFactory
    storage_url: Address
    tracking: Address
    tracks_by_default: bool
    began_s: float
    timeout_s: float | None
    fingerprint: Fingerprint
    allow_changes: bool
    remote: RemoteCopy | None
    adopt: Adopt | None = None
    inputs: Mapping[str, InputFile] = field(default_factory=dict)
    input_facts: Mapping[str, InputFact] = field(default_factory=dict)
    confirming: RerunPlan | None = None

    def close(self) -> None:
        """End everything that the executor started before the sweep began, such as a cluster."""
        close = getattr(self.executor, "close", None)
        if close is not None:
            close()

    def with_trials(self, trials: int) -> SweepPlan:
        """Return the same plan for a study with another number of trials."""
        study = self.settings.study.model_copy(update={"trials": trials})
        settings = self.settings.model_copy(update={"study": study})
        return replace(self, workload=replace(self.workload, settings=settings))

    def located(self, study: Study) -> LocatedStudy:
        """Return the opened study together with its paths and the URL of its storage."""
        return LocatedStudy(study=study, paths=self.paths, storage_url=self.storage_url)

    @property
    def left_s(self) -> float | None:
        """Seconds until the time limit. Negative after it, None if there is no limit."""
        if self.timeout_s is None:
            return None
        return self.began_s + self.timeout_s - time.monotonic()

    @property
    def settings(self) -> Settings:
        """Settings from the parameters file and the options of this call."""
        return self.workload.settings

    @property
    def notebook(self) -> ResearchNotebook:
        """The research notebook."""
        return self.workload.notebook

    @property
    def doubts(self) -> list[str]:
        """Remarks for users on integer ranges that may be meant as float ranges, with remedies.

        They are shown when trials begin. By then, the types of the params can no longer change in
        this study, so each remedy is for another study.
        """
        found = whole_ranges(self.notebook, self.settings)
        return [f"{doubt}; in another study, {doubt.remedy}" for doubt in found]

    @property
    def paths(self) -> StudyPaths:
        """All paths of the study."""
        return self.workload.paths


def executor_of(
    settings: Settings, jobs: int | str | None, *, end_s: float = math.inf
) -> MakeExecutor:
    """Return a function that makes an executor: on the settings' cluster, else on this machine.

    Args:
        settings: Settings of the sweep.
        jobs: Number of trials that run at once, or `"auto"`. None for the executor's default.
        end_s: Time at which the sweep must end, on the monotonic clock. The executor waits for the
            workers of a cluster until then at most.
    """
    if settings.cluster is not None:
        return partial(_on_cluster, settings=settings.cluster, jobs=jobs, end_s=end_s)
    return lambda workload, _: LocalExecutor.on_this_machine(workload, 1 if jobs is None else jobs)


def _on_cluster(
    workload: Workload,
    is_stopped: Callable[[], bool],
    *,
    settings: Cluster,
    jobs: int | str | None,
    end_s: float,
) -> Executor:
    from ...cluster.executor import DaskExecutor

    wait_s = min(settings.wait, max(0.0, end_s - time.monotonic()))
    limited = settings.model_copy(update={"wait": wait_s})
    return DaskExecutor.open(workload, limited, jobs, is_stopped=is_stopped)


def remote_copy(
    settings: Settings, paths: StudyPaths, storage_url: Address, tracking: Address
) -> RemoteCopy | None:
    """Return the remote copy that the settings ask for, or None if they ask for none."""
    if settings.sync is None:
        return None
    return RemoteCopy(
        settings.sync.url,
        every_s=settings.sync.every,
        paths=paths,
        storage=storage_url.file,
        tracking=tracking.file,
    )
