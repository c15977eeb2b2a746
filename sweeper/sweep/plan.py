"""Everything that a sweep is made of, checked before a kernel starts or a file is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..execution.executor import Executor
from ..execution.local import LocalExecutor
from ..execution.workload import Workload
from ..kernels import can_freeze, check_kernel
from ..notebooks import ResearchNotebook
from ..notebooks.fingerprint import Fingerprint, fingerprint_of, local_code
from ..notebooks.shared_cells import check_shared_cells
from ..settings import Settings
from ..settings.addresses import Address
from ..settings.machines import Cluster
from ..study import SamplerFactory, make_pruner
from ..sync import RemoteCopy
from ..sync.archive import Dataset
from ..trials import Inputs, StudyPaths
from .frozen_code import snapshot_of
from .preemption import check_service


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """Everything that a sweep is made of.

    Attributes:
        timeout_s: wall-clock limit of the whole sweep; None for as long as its trials take.
        fingerprint: what its trials are made of.
        allow_changes: whether to go on with a study whose trials were made of something else.
        is_frozen: whether its kernels import modules as they were when the sweep began.
        make_executor: makes one from a workload, for the study that confirms this one.
        confirming: what this study confirms, as `trials.plan_of` makes it; None for a search.
        remote: the study's copy in an object storage; None where there is to be none.
        data: that its trials read, and each machine fetches; None where none is stated.
        inputs: what its trials use of other studies, known once the study is open; `stated_inputs`
            is how the parameters file asks for it.
    """

    workload: Workload
    executor: Executor
    make_executor: Callable[[Workload], Executor]
    samplers: SamplerFactory
    storage_url: Address
    tracking_uri: Address | None
    timeout_s: float | None
    fingerprint: Fingerprint
    allow_changes: bool
    is_frozen: bool
    remote: RemoteCopy | None
    data: Dataset | None = None
    inputs: Inputs = field(default_factory=dict)
    stated_inputs: Mapping[str, Any] = field(default_factory=dict)
    confirming: Mapping[str, Any] | None = None

    def close(self) -> None:
        """End what the executor has started before the sweep began, and let go of the data."""
        if self.data is not None:
            self.data.close()
        close = getattr(self.executor, "close", None)
        if close is not None:
            close()

    def with_trials(self, trials: int) -> SweepPlan:
        """The same plan for a study of so many trials."""
        study = self.settings.study.model_copy(update={"trials": trials})
        settings = self.settings.model_copy(update={"study": study})
        return replace(self, workload=replace(self.workload, settings=settings))

    @property
    def settings(self) -> Settings:
        """The parameters file, with the options of this call."""
        return self.workload.settings

    @property
    def notebook(self) -> ResearchNotebook:
        """The notebook that is swept."""
        return self.workload.notebook

    @property
    def paths(self) -> StudyPaths:
        """Every path of the study."""
        return self.workload.paths


def plan_sweep(
    settings: Settings,
    *,
    notebook: str | Path | ResearchNotebook,
    output: str,
    jobs: int | str | None,
    storage: str | None,
    tracking_uri: str | None,
    kernel: str | None,
    timeout_s: float | None,
    allow_changes: bool,
    executor: Callable[[Workload], Executor] | None,
) -> SweepPlan:
    """Check the arguments of `Sweep.from_settings`, which says what they are, and build the parts.

    Raises:
        SweepError: one of them is wrong; nothing was started, nothing was written.
    """
    research = notebook if isinstance(notebook, ResearchNotebook) else ResearchNotebook(notebook)
    research.check_parameters(settings.sources)
    kernel_name = kernel or research.kernel_name
    if executor is None and settings.cluster is not None:
        executor = partial(_on_cluster, settings=settings.cluster, jobs=jobs)
    is_local = executor is None
    if executor is None:  # another place has kernels of its own
        asked_by = f"--kernel {kernel}" if kernel else research.display_name
        check_kernel(kernel_name, asked_by=asked_by)
        executor = partial(LocalExecutor.on_this_machine, jobs=1 if jobs is None else jobs)
    make_pruner(settings)  # refuses wrong options now
    if settings.resources.preemption != "none":
        check_service(settings.resources.preemption)
    paths = StudyPaths.parse(output, study=settings.name)
    if settings.confirm is not None:
        paths.confirming()  # refuses a name that is too long now
    storage_url = Address.of(storage or f"sqlite:///{paths.storage}")
    tracking_uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or None
    code = local_code(research.code, research.path.parent)
    folder = research.path.parent
    data = None if settings.data is None else Dataset(settings.data, folder=folder)
    workload = Workload(
        notebook=research,
        settings=settings,
        kernel_name=kernel_name,
        cwd=folder,
        paths=paths,
        snapshot=snapshot_of(research, settings, code),
        data=data,
    )
    if research.language == "python":
        check_shared_cells(research, workload.own_names)
    samplers = SamplerFactory(settings)
    tracking = None if tracking_uri is None else Address.of(tracking_uri)
    remote = remote_copy(settings, paths, storage_url, tracking)
    return SweepPlan(
        workload=workload,
        # The last, because a cluster's workers may already be at work when it is there.
        executor=executor(workload),
        make_executor=executor,
        samplers=samplers,
        storage_url=storage_url,
        tracking_uri=tracking,
        timeout_s=timeout_s,
        fingerprint=fingerprint_of(research, settings, kernel_name=kernel_name, code=code),
        allow_changes=allow_changes,
        is_frozen=not is_local or can_freeze(kernel_name),
        remote=remote,
        data=data,
    )


def _on_cluster(workload: Workload, *, settings: Cluster, jobs: int | str | None) -> Executor:
    from ..execution.dask import DaskExecutor

    return DaskExecutor.open(workload, settings, jobs)


def remote_copy(
    settings: Settings, paths: StudyPaths, storage_url: Address, tracking: Address | None
) -> RemoteCopy | None:
    """The copy of a study that its settings ask for; None where they ask for none."""
    if settings.sync is None:
        return None
    return RemoteCopy(
        settings.sync.url,
        every_s=settings.sync.every,
        paths=paths,
        storage_url=str(storage_url),
        tracking_uri=None if tracking is None else str(tracking),
    )
