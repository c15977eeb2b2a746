"""Everything that a sweep is made of, checked before a kernel starts or a file is written."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ...execution.executor import Executor
from ...execution.local import LocalExecutor
from ...execution.workload import Workload
from ...kernels import check_kernel
from ...notebooks.fingerprint import Fingerprint
from ...notebooks.research import ResearchNotebook
from ...search.samplers import SamplerFactory
from ...settings import Settings
from ...settings.addresses import Address
from ...settings.machines import Cluster
from ...study.facts import InputFact
from ...sync import RemoteCopy
from ...trials import InputFile, StudyPaths
from .kinds import whole_ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """Everything that a sweep is made of.

    Attributes:
        began_s: when the sweep was called, on the monotonic clock.
        timeout_s: its wall-clock limit from then on; None for as long as its trials take.
        fingerprint: what its trials are made of.
        allow_changes: whether to go on with a study whose trials were made of something else.
        make_executor: makes one from a workload, for the study that confirms this one.
        confirming: what this study confirms, as `trials.plan_of` makes it; None for a search.
        remote: the study's copy in an object storage; None where there is to be none.
        inputs: what its trials use of other studies, known once the study is open; `input_facts` is
            what the study stores of it.
    """

    workload: Workload
    executor: Executor
    make_executor: Callable[[Workload], Executor]
    samplers: SamplerFactory
    storage_url: Address
    tracking: Address
    began_s: float
    timeout_s: float | None
    fingerprint: Fingerprint
    allow_changes: bool
    remote: RemoteCopy | None
    inputs: Mapping[str, InputFile] = field(default_factory=dict)
    input_facts: Mapping[str, InputFact] = field(default_factory=dict)
    confirming: Mapping[str, Any] | None = None

    def close(self) -> None:
        """End what the executor has started before the sweep began."""
        close = getattr(self.executor, "close", None)
        if close is not None:
            close()

    def with_trials(self, trials: int) -> SweepPlan:
        """The same plan for a study of so many trials."""
        study = self.settings.study.model_copy(update={"trials": trials})
        settings = self.settings.model_copy(update={"study": study})
        return replace(self, workload=replace(self.workload, settings=settings))

    @property
    def left_s(self) -> float | None:
        """How many seconds of the limit are left; None without one."""
        if self.timeout_s is None:
            return None
        return self.began_s + self.timeout_s - time.monotonic()

    @property
    def settings(self) -> Settings:
        """The parameters file, with the options of this call."""
        return self.workload.settings

    @property
    def notebook(self) -> ResearchNotebook:
        """The notebook that is swept."""
        return self.workload.notebook

    @property
    def doubts(self) -> list[str]:
        """What users should look at before trials are paid for, with the remedy."""
        return [f"{doubt}; {doubt.remedy}" for doubt in whole_ranges(self.notebook, self.settings)]

    @property
    def paths(self) -> StudyPaths:
        """Every path of the study."""
        return self.workload.paths


def executor_of(
    settings: Settings, notebook: ResearchNotebook, *, kernel: str | None, jobs: int | str | None
) -> Callable[[Workload], Executor]:
    """What makes the place where trials run: the cluster of the settings, else this machine.

    Raises:
        SettingsError: this machine has no such kernel.
    """
    if settings.cluster is not None:
        return partial(_on_cluster, settings=settings.cluster, jobs=jobs)
    asked_by = f"--kernel {kernel}" if kernel else notebook.display_name
    check_kernel(kernel or notebook.kernel_name, asked_by=asked_by)
    return partial(LocalExecutor.on_this_machine, jobs=1 if jobs is None else jobs)


def _on_cluster(workload: Workload, *, settings: Cluster, jobs: int | str | None) -> Executor:
    from ...cluster.executor import DaskExecutor

    return DaskExecutor.open(workload, settings, jobs)


def remote_copy(
    settings: Settings, paths: StudyPaths, storage_url: Address, tracking: Address
) -> RemoteCopy | None:
    """The copy of a study that its settings ask for; None where they ask for none."""
    if settings.sync is None:
        return None
    return RemoteCopy(
        settings.sync.url,
        every_s=settings.sync.every,
        paths=paths,
        storage=storage_url.file,
        tracking=tracking.file,
    )
