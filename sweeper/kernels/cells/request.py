"""What one execution of a notebook needs, and what has come of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from nbformat import NotebookNode

from ...settings.sections import ScoreSource
from ...trials import Params, RunningTrial
from ..forking.origins import KernelOrigin
from .expressions import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionRequest:
    """One notebook to run in a kernel of its own.

    Attributes:
        node: The notebook, executed in place. Outputs, states and times end up in it.
        running: Receives each point and the kernel's pid and cell. A stop comes from it.
        write: Called whenever the notebook's file should be brought up to date.
        on_kernel_gone: Called once the kernel and all processes that it has started have ended,
            which may be after the result is there. Called with False where SIGKILL has not ended
            the kernel.
        env: Variables that this trial adds to the environment of its kernel.
        own_params: The injected parameters that not all trials have in common.
        origin: How the kernel has to come to be; None for as the policy decides.
        prepares_next: Whether to start the kernel of a later trial meanwhile.
        score_sources: By score. Those with a pattern are searched for in what is printed.
        variables: Top-level variables to read as numbers after the last cell.
        values: Top-level variables to read back after the last cell, of any type.
        gpu_fraction: The share of its GPU's memory that torch may use; None for all.
        cell_output_bytes: How much of one cell's output is kept.
        on_kernel_ready: Called when the kernel has answered for the first time.
        grace_s: The time from a stop to the kernel's end, for a notebook that asks whether to stop.
    """

    node: NotebookNode
    running: RunningTrial
    write: Callable[[], None]
    on_kernel_gone: Callable[[bool], None]
    env: Mapping[str, str]
    own_params: Params
    origin: KernelOrigin | None = None
    prepares_next: bool = False
    score_sources: Mapping[str, ScoreSource] = field(default_factory=dict)
    variables: Sequence[str] = ()
    values: Sequence[str] = ()
    gpu_fraction: float | None = None
    cell_output_bytes: int
    grace_s: float
    on_kernel_ready: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Raised:
    """What a cell has raised.

    Attributes:
        cell: The execution count of the cell; None where the kernel has told none.
        exception: The name of the exception's class.
    """

    cell: int | None
    exception: str


@dataclass(frozen=True, slots=True)
class Finished:
    """All cells have run, or the notebook has ended itself."""


@dataclass(frozen=True, slots=True)
class CellFailed:
    """A cell has raised.

    Attributes:
        error: The cell and its exception, for people.
    """

    raised: Raised
    error: str


@dataclass(frozen=True, slots=True)
class KernelDied:
    """The kernel has ended while a cell ran."""


@dataclass(frozen=True, slots=True)
class NotStarted:
    """No kernel has answered, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The trial was asked to stop before the notebook had come to its end."""


#: How the execution of a notebook ended.
Ending = Finished | CellFailed | KernelDied | NotStarted | Stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResult:
    """What has come of one execution; the outputs are in the notebook itself.

    Attributes:
        ending: How the execution ended.
        exit_code: Of a kernel that ended by itself; negative for a signal.
        stderr_tail: The last text that the kernel's process wrote outside of any cell.
        answer: What was read in the kernel after the last cell; empty where it could not be asked.
        origin: How the kernel came to be; if it was started, also why.
        is_orphan: Whether the kernel ended because the process that it was forked from did.
        libraries: The libraries that have reported by themselves.
    """

    ending: Ending
    exit_code: int | None = None
    stderr_tail: str = ""
    answer: Answer = field(default_factory=Answer)
    origin: KernelOrigin = field(default_factory=KernelOrigin)
    is_orphan: bool = False
    libraries: frozenset[str] = frozenset()

    @property
    def shared_cells(self) -> int:
        """How many tagged cells had run before the kernel was forked."""
        return 0 if self.origin.shared is None else self.origin.shared.tagged

    @property
    def lost_its_kernel(self) -> bool:
        """Whether no kernel was there, or the process that it was forked from ended."""
        return self.is_orphan or isinstance(self.ending, NotStarted)
