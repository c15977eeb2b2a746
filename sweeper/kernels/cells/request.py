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
        node: Notebook to execute. Outputs, states of cells and times are written into it.
        running: The running trial. It receives each point (values of metrics at one step), the
            kernel's pid and the current cell, and it tells whether to stop.
        write: Function that writes the notebook's file. Called whenever the file should be updated.
        on_kernel_gone: Function that is called when the kernel and all its processes have ended,
            which may be after the result is returned. Its argument is False if even SIGKILL has not
            ended the kernel.
        env: Environment variables that this trial adds to those of all kernels.
        own_params: Values of the injected params that differ between the trials of the sweep.
        random_seed: Seed with which the random generators of the kernel begin.
        origin: How the kernel must be made: started or forked. None if the fork policy decides.
        prepares_next: Whether to start the kernel of a later trial while this notebook runs.
        score_sources: Variable, expression or pattern that gives a score, by the score's name, as
            the parameters file states. Printed text is searched for the patterns.
        variables: Top-level variables and expressions to read as numbers after the last cell.
        values: Top-level variables of any type to read after the last cell.
        gpu_fraction: Fraction of the GPU's memory that torch may use. None for no limit.
        cell_output_bytes: Largest number of bytes of one cell's output that is kept.
        grace_s: Grace time (`limits.grace`) in seconds. After a stop, the notebook may use most of
            this time to end, and the rest is left for the sweep; see `stopping.py`.
        on_kernel_ready: Function that is called when the kernel has answered for the first time.
    """

    node: NotebookNode
    running: RunningTrial
    write: Callable[[], None]
    on_kernel_gone: Callable[[bool], None]
    env: Mapping[str, str]
    own_params: Params
    random_seed: int
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
        cell: Execution count of the cell. None if it is unknown.
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
        error: Message for people that names the cell and the exception.
    """

    raised: Raised
    error: str


@dataclass(frozen=True, slots=True)
class KernelDied:
    """The kernel's process ended while a cell ran, or failed after the last cell.

    It failed if it ended with an exit code other than 0 before the sweep had read the values of the
    variables.
    """


@dataclass(frozen=True, slots=True)
class NotStarted:
    """No kernel has answered, so no cell has run.

    Attributes:
        why: Reason in words, for people. It follows "the kernel did not start: " in messages.
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
        exit_code: Exit code of a kernel that died (see `KernelDied`), even if a stop has killed it.
            Negative for a signal. None if the kernel has not died.
        stderr_tail: Last text that the kernel's process wrote to stderr outside of any cell.
        answer: Values that were read in the kernel after the last cell. Empty if the kernel did not
            answer.
        origin: How the kernel was made, with the reason if it was started and not forked.
        is_orphan: Whether the kernel ended because the process that it was forked from has ended.
        libraries: Names of the libraries that have logged points.
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
        """Number of cells tagged `shared` that had run before the kernel was forked."""
        return 0 if self.origin.shared is None else self.origin.shared.tagged

    @property
    def lost_its_kernel(self) -> bool:
        """Whether no kernel answered, or the kernel ended with the process it was forked from."""
        return self.is_orphan or isinstance(self.ending, NotStarted)
