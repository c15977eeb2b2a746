"""Open what all trials of a worker use: kernels, memory, GPUs and disk."""

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

#: While no kernel of the sweep has answered yet, a kernel start is repeated for this many seconds
#: (chosen, not measured). Most likely, the kernel's Python environment is broken, which is
#: permanent.
_FIRST_KERNEL_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What all trials of a worker use.

    Attributes:
        workload: What the trials of the sweep have in common.
        places: Assigns memory and GPUs to trials.
        pool: Kernels of the sweep.
        patience: Repeats a call while the disk with the executed notebooks is unavailable.
        kernel_patience: Repeats the start of a kernel while no kernel starts.
        folder: Private folder of the sweep, which is removed at its end.
        sources: Sources of scores, as completed trials have shown them.
        environment: Name of the record of the trials' environment. Empty if there is none.
    """

    workload: Workload
    places: Places
    pool: KernelPool
    patience: Patience
    kernel_patience: Patience
    folder: Path
    sources: LearnedSources
    environment: str = ""


@contextmanager
def opened_site(workload: Workload, *, places: Places, time_left: TimeLeft) -> Iterator[Site]:
    """Open the kernels of a sweep on this machine. None of its processes outlives the block.

    Open only one per machine and study: it first ends all processes with the mark of the study's
    folder, including those of another site.

    Args:
        workload: What the trials of the sweep have in common.
        places: Assigns memory and GPUs of this machine to trials.
        time_left: Time that the sweep has left.
    """
    raise_descriptor_limit()
    with (
        guarded(workload.paths.folder) as (token, folder),
        places.opened(folder=folder, token=token),
    ):
        pool = _pool(workload, places, token=token, folder=folder)
        outputs = f"the outputs in {display_path(workload.paths.root)}"
        patience = Patience(outputs, may_pass=is_of_the_machine)
        patience.limit_s = time_left.patience_s
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
    )
    # Some libraries decide at import by the GPUs that they see. So the process that imports them
    # sees all GPUs of the sweep, although each trial gets only some of them later.
    visible = ",".join(gpu.uuid for gpu in places.gpus)
    return KernelPool(
        setup,
        kernels=workload.settings.kernels,
        import_env={"CUDA_VISIBLE_DEVICES": visible} if visible else {},
        shared_cells=workload.shared_cells,
    )


def _kept_environment(workload: Workload, places: Places, *, token: str) -> str:
    """Record the environment of the trials. Return the record's name, or "" if it is not known."""
    # The processes that describe the environment have the mark of the sweep, too.
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
    except Exception as error:  # noqa: BLE001  trials do not depend on the record
        _log.info("the environment of the trials is unknown: %s", error)
        return ""
