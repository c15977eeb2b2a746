"""Open the resources that all trials of a worker use: kernels, memory, GPUs and disk."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .. import kernels
from ..guard import MARK_VARIABLE
from ..kernels import KernelPool, KernelSetup
from ..machine.capacity import raise_descriptor_limit
from ..machine.places import Places
from ..study_folder.patience import Patience, is_of_the_machine
from ..study_folder.snapshots import keep_environment
from ..trials import display_path
from .environment import environment_of
from .executor import TimeLeft
from .learned_sources import LearnedSources
from .runtime import guarded
from .second_run import is_no_kernel
from .workload import Workload

_log = logging.getLogger(__name__)

#: The start of the first kernel of a sweep is repeated for this many seconds (chosen, not
#: measured). If the first kernel does not start, its Python environment is most likely broken, and
#: no wait helps.
_FIRST_KERNEL_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The resources that all trials of a worker use.

    Attributes:
        workload: What the trials of the sweep have in common.
        places: Object that assigns memory and GPUs to trials.
        pool: Pool that provides the kernels.
        patience: Object that repeats a call while the disk with the notebooks is unavailable.
        kernel_patience: Object that repeats the start of a kernel while no kernel starts.
        folder: Private folder of the sweep. It is removed when the sweep ends.
        sources: Sources of the scores, learned from completed trials.
        environment: Name of the file that describes the trials' environment. Empty if there is
            none.
        slots: Number of trials that run at once. 1 if a trial that waits cannot let another one run
            in its place, as on a cluster.
    """

    workload: Workload
    places: Places
    pool: KernelPool
    patience: Patience
    kernel_patience: Patience
    folder: Path
    sources: LearnedSources
    environment: str = ""
    slots: int = 1


@contextmanager
def opened_site(
    workload: Workload, *, places: Places, time_left: TimeLeft, slots: int
) -> Iterator[Site]:
    """Open the resources of a sweep on this machine. No process of the sweep outlives the block.

    Open only one site per machine and study. Each site first ends all processes whose environment
    has the mark of the study's folder (see `mark_of`), including those of another site.

    Args:
        workload: What the trials of the sweep have in common.
        places: Object that assigns memory and GPUs of this machine to trials.
        time_left: Time that the sweep has left.
        slots: Number of trials that run at once; see `Site`.
    """
    raise_descriptor_limit()
    with (
        guarded(workload.paths.folder) as (token, folder),
        places.opened(folder=folder, token=token),
    ):
        pool = _pool(workload, places, token=token, folder=folder)
        outputs = f"the outputs in {display_path(workload.paths.root)}"
        patience = Patience(outputs, may_pass=is_of_the_machine)
        patience.limit_s, patience.check = time_left.patience_s, time_left.check_held
        kernel_patience = Patience("the kernels", may_pass=is_no_kernel)
        kernel_patience.limit_s = lambda: (
            time_left.patience_s() if kernel_patience.has_succeeded else _FIRST_KERNEL_S
        )
        yield Site(
            workload=workload,
            places=places,
            pool=pool,
            patience=patience,
            kernel_patience=kernel_patience,
            folder=folder,
            sources=LearnedSources(settings=workload.settings),
            environment=_kept_environment(workload, places, token=token),
            slots=slots,
        )
        left_s = time_left.left_s()
        pool.close(patience_s=None if left_s is None else left_s / 3)


def _pool(workload: Workload, places: Places, *, token: str, folder: Path) -> KernelPool:
    setup = KernelSetup(
        name=workload.kernel_name,
        env={**os.environ, **places.env},
        cwd=workload.cwd,
        runtime_folder=folder,
        token=token,
        frozen=workload.frozen,
        random_seed=workload.seed_of_shared_cells,
    )
    # Some libraries behave differently if they see no GPU when they are imported. So the zygote,
    # which imports them and from which kernels are forked, sees all GPUs of the sweep. Each trial
    # later gets only some of the GPUs.
    visible = ",".join(gpu.uuid for gpu in places.gpus)
    return KernelPool(
        setup,
        kernels=workload.settings.kernels,
        import_env={"CUDA_VISIBLE_DEVICES": visible} if visible else {},
        shared_cells=workload.shared_cells,
    )


def _kept_environment(workload: Workload, places: Places, *, token: str) -> str:
    """Store a description of the trials' environment. Return its name, or "" if it is unknown."""
    # Mark the processes that describe the environment too: the guard ends marked processes with the
    # sweep.
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
    except Exception as error:  # noqa: BLE001  Trials do not depend on the description.
        _log.info("the environment of the trials is unknown: %s", error)
        return ""
