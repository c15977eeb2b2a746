"""papermill with an engine of our own: injected parameters, honest states, our own writer."""

from __future__ import annotations

import datetime
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from nbformat import NotebookNode
from papermill.engines import Engine, NotebookExecutionManager, papermill_engines

from ..errors import first_line
from ..notebook_api.messages import Point
from ..notebooks.scores import PrintedScores
from ..trials import Params, RunningTrial
from .client import CATCH_UP_S, SweepClient
from .forking.evidence import GeneratorStates
from .forking.policy import Way
from .inject import assignments
from .kernel import Kernel
from .pool import KernelPool

#: How long a kernel may take to answer for the first time.
START_TIMEOUT_S = 120
#: How long after a cell's reply its last outputs may still be on their way.
_IOPUB_TIMEOUT_S = 60
_ENGINE = "sweeper"

_log = logging.getLogger(__name__)


class Ending(StrEnum):
    """How the execution of a notebook ended."""

    FINISHED = "finished"
    CELL_FAILED = "cell_failed"
    KERNEL_DIED = "kernel_died"
    NOT_STARTED = "not_started"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResult:
    """What came of one execution; the outputs are in the notebook itself.

    Attributes:
        boot_s: how long it waited for the kernel's first answer.
    """

    ending: Ending
    error: str = ""
    exit_code: int | None = None
    stderr_tail: str = ""
    variables: Mapping[str, float] = field(default_factory=dict)
    way: Way = Way.STARTED
    is_orphan: bool = False
    shared_cells: int = 0
    boot_s: float = 0.0
    states_at_start: GeneratorStates = field(default_factory=dict)
    states_at_end: GeneratorStates = field(default_factory=dict)
    seeded: Sequence[str] = ()


class LiveNotebook(NotebookExecutionManager):
    """papermill's bookkeeping of cells, made honest and written through our own writer.

    papermill marks every cell as completed that did not raise, also those that never ran.
    """

    STOPPED = "stopped"

    def __init__(self, nb: NotebookNode, *, write: Callable[[], None]) -> None:
        # papermill saves only when a message arrives; the client does it by time.
        super().__init__(nb, progress_bar=False, autosave_cell_every=0)
        self._write = write
        self._written_s = -math.inf
        self._is_behind = False

    def save(self, **_: Any) -> None:
        """Write the notebook as it is now; or soon, where it was written just before."""
        self._is_behind = True
        if time.monotonic() - self._written_s >= CATCH_UP_S:
            self.catch_up()

    def catch_up(self) -> None:
        """Write what has changed since the last time."""
        if self._is_behind:
            self._write()
            self._is_behind, self._written_s = False, time.monotonic()

    def cell_end(self, cell: NotebookNode, status: str) -> None:
        """State how a cell ended, and save."""
        if status == self.FAILED:
            self.cell_exception(cell)
        ended = self.now()
        started = datetime.datetime.fromisoformat(cell.metadata.papermill["start_time"])
        cell.metadata.papermill["end_time"] = ended.isoformat()
        cell.metadata.papermill["duration"] = (ended - started).total_seconds()
        cell.metadata.papermill["status"] = status
        self.save()

    def notebook_complete(self, **_: Any) -> None:
        """State how long the notebook took; cells that never ran stay `pending`."""
        self.end_time = self.now()
        self.nb.metadata.papermill["end_time"] = self.end_time.isoformat()
        self.nb.metadata.papermill["duration"] = (self.end_time - self.start_time).total_seconds()


class SweepEngine(Engine):
    """Runs a notebook with `SweepClient`; papermill's own engine has no hook for messages."""

    @classmethod
    def execute_notebook(
        cls, nb: NotebookNode, kernel_name: str, *, write: Callable[[], None], **options: Any
    ) -> KernelResult:
        """Execute `nb` in place; outputs, states and times end up in it."""
        live = LiveNotebook(nb, write=write)
        live.notebook_start()
        try:
            return cls.execute_managed_notebook(live, kernel_name, **options)
        finally:
            live.notebook_complete()

    @classmethod
    def execute_managed_notebook(
        cls,
        nb_man: LiveNotebook,
        kernel_name: str,
        *,
        pool: KernelPool,
        more_to_come: bool,
        take: Callable[[Mapping[str, str]], Kernel],
        own_params: Params,
        env: Mapping[str, str],
        on_gone: Callable[[], None],
        variables: Sequence[str],
        read_states: bool,
        **options: Any,
    ) -> KernelResult:
        """Take a kernel, run the cells in it, let it end behind our back."""
        try:
            kernel = take(env)
        except OSError as error:
            on_gone()
            return KernelResult(ending=Ending.NOT_STARTED, error=first_line(error))
        client = SweepClient(
            nb_man,
            kernel=kernel,
            iopub_timeout=_IOPUB_TIMEOUT_S,
            timeout=None,
            log=_log,
            **options,
        )
        boot_s, started_s = 0.0, time.monotonic()
        try:
            client.connect(env if pool.can_prepare else {}, timeout_s=START_TIMEOUT_S)
            boot_s = time.monotonic() - started_s
            if read_states and kernel.is_warm:
                client.read_states()
            if more_to_come:
                pool.prepare()
            if kernel.shared is not None:
                client.take_over(kernel.shared, assignments(own_params))
            client.run(variables, learn=pool.wants_import_profile, read_states=read_states)
            if client.lesson is not None:
                pool.learn(client.lesson)
        except RuntimeError as error:
            if client.is_ready:
                raise
            client.error = first_line(error)
        finally:
            client.disconnect()
            tail = kernel.stderr_tail()
            pool.retire(kernel, on_gone)
        return KernelResult(
            ending=_ending(client, client.channel),
            error=client.error or "",
            exit_code=client.exit_code,
            stderr_tail=tail,
            variables=client.variables,
            way=kernel.way,
            is_orphan=kernel.is_orphan,
            shared_cells=0 if kernel.shared is None else kernel.shared.until,
            boot_s=boot_s,
            states_at_start=client.states_at_start,
            states_at_end=client.states_at_end,
            seeded=() if kernel.shared is None else kernel.shared.seeded,
        )


def _ending(client: SweepClient, channel: RunningTrial) -> Ending:
    if client.has_finished and not client.has_obeyed:
        return Ending.FINISHED
    if channel.stop_reason:
        return Ending.STOPPED
    if not client.is_ready:
        return Ending.NOT_STARTED
    if client.died:
        return Ending.KERNEL_DIED
    return Ending.CELL_FAILED


def execute(
    node: NotebookNode,
    *,
    pool: KernelPool,
    more_to_come: bool,
    take: Callable[[Mapping[str, str]], Kernel] | None = None,
    own_params: Params,
    env: Mapping[str, str],
    on_gone: Callable[[], None],
    write: Callable[[], None],
    channel: RunningTrial,
    on_point: Callable[[Point], None],
    printed: PrintedScores,
    variables: Sequence[str],
    cell_output_bytes: int,
    grace_s: float,
    read_states: bool = False,
) -> KernelResult:
    """Run all cells of a notebook in a kernel of its own.

    Args:
        node: executed in place; outputs, states and times end up in it.
        pool: where the kernel comes from.
        more_to_come: whether this thread will ask for another kernel, to be prepared meanwhile.
        take: gives the kernel for an environment; None for `pool.take`.
        own_params: injected parameters that not all trials have in common.
        env: what the trial adds to the kernel's environment.
        on_gone: called once the kernel and all that it started have ended, which may be later.
        write: called whenever the file should be brought up to date.
        channel: on which a stop may arrive.
        on_point: called with each reported point as it arrives.
        printed: given all that is printed.
        variables: top-level variables to read after the last cell.
        cell_output_bytes: what one cell may put out before the rest is dropped.
        grace_s: from a stop to the kernel's end, for a notebook that asks whether to stop.
        read_states: whether to read the states of the global random generators, too.

    Raises:
        OSError: the notebook could not be written.
    """
    result: KernelResult = SweepEngine.execute_notebook(
        node,
        pool.name,
        write=write,
        pool=pool,
        more_to_come=more_to_come,
        take=take or pool.take,
        own_params=own_params,
        env=env,
        on_gone=on_gone,
        channel=channel,
        on_point=on_point,
        printed=printed,
        variables=variables,
        cell_output_bytes=cell_output_bytes,
        grace_s=grace_s,
        read_states=read_states,
    )
    return result


papermill_engines.register(_ENGINE, SweepEngine)
