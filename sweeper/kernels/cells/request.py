"""Define the request and the result of one execution of a notebook."""

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
        node: The notebook. It is executed in place: outputs, states and times are written into it.
        running: The trial as it runs. It receives each point, the kernel's pid and its cell. A stop
            comes from it.
        write: Writes the notebook's file. Called whenever the file should be updated.
        on_kernel_gone: Called when the kernel and all its processes have ended, perhaps after the
            result was returned. Called with False if SIGKILL has not ended the kernel.
        env: Environment variables that this trial adds to its kernel.
        own_params: Injected parameters that differ between trials.
        origin: How the kernel must be made. None if the fork policy decides.
        prepares_next: Whether to start the kernel of a later trial meanwhile.
        score_sources: Sources by score. Printed text is searched for those with a pattern.
        variables: Top-level variables to read as numbers after the last cell.
        values: Top-level variables of any type to read after the last cell.
        gpu_fraction: Fraction of its GPU's memory that torch may use. None for all.
        cell_output_bytes: Bytes of one cell's output that are kept at most.
        grace_s: Seconds from a stop to the kernel's end, for a notebook that checks for a stop.
        on_kernel_ready: Called when the kernel has answered for the first time.
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
    """An exception that a cell has raised.

    Attributes:
        cell: Execution count of the cell. None if the kernel has not said it.
        exception: Name of the exception's class.
    """

    cell: int | None
    exception: str


@dataclass(frozen=True, slots=True)
class Finished:
    """All cells have run, or the notebook has ended itself."""


@dataclass(frozen=True, slots=True)
class CellFailed:
    """A cell has raised an exception.

    Attributes:
        raised: The exception and its cell.
        error: The same in words, for people.
    """

    raised: Raised
    error: str


@dataclass(frozen=True, slots=True)
class KernelDied:
    """The kernel's process ended while a cell ran."""


@dataclass(frozen=True, slots=True)
class NotStarted:
    """No kernel has answered.

    Attributes:
        why: Reason, for people.
    """

    why: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The trial was stopped before the notebook had finished."""


#: How the execution of a notebook ended.
Ending = Finished | CellFailed | KernelDied | NotStarted | Stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResult:
    """Result of one execution. The outputs are in the notebook.

    Attributes:
        ending: How the execution ended.
        exit_code: Exit code of a kernel that ended by itself, negative for a signal. Else None.
        stderr_tail: Last text that the kernel's process wrote outside of any cell.
        answer: What was read in the kernel after the last cell. Empty if it could not be asked.
        origin: How the kernel was made, and why it was started, if it was.
        is_orphan: Whether the kernel ended because the process that it was forked from has ended.
        libraries: Names of libraries whose own logs were reported.
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
        """Number of tagged cells that had run before the kernel was forked."""
        return 0 if self.origin.shared is None else self.origin.shared.tagged

    @property
    def lost_its_kernel(self) -> bool:
        """Whether no kernel has answered, or the process that it was forked from has ended."""
        return self.is_orphan or isinstance(self.ending, NotStarted)
