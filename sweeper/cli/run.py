"""The commands `run` (sweep a notebook) and `ablate` (measure the effect of each param)."""

from __future__ import annotations

import argparse
import logging
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

from ..errors import StoppedError
from ..trials import StudyPaths, TrialState, each_of
from .codes import INTERRUPTED, NOTHING_COMPLETED, OF_SIGNALS, OK, PREEMPTED
from .console_output import ConsoleOutput
from .event_log import EventLog
from .proposal import propose
from .run_options import RunOptions
from .signals import end_command, handled

if TYPE_CHECKING:
    from ..settings import Settings
    from ..sweep import Sweep
    from ..sweep.planning.plan import Adopt
    from ..trials import Observer

_log = logging.getLogger(__name__)


def run(arguments: argparse.Namespace) -> int:
    """Sweep a notebook. Return the exit code."""
    options = RunOptions.of(arguments)
    with (
        handled(end_command),
        closing(ConsoleOutput.of(arguments)) as console,
        nullcontext() if options.events is None else closing(EventLog(options.events)) as events,
    ):
        if not propose(options, console):
            return OK
        observers = [] if events is None else [events.observe]
        made = prepared(options, console, observers=[*observers, console.observe])
        return _swept(made, console, events)


def ablate(options: argparse.Namespace) -> int:
    """Run the best trial unchanged, and with each param in turn reset to the notebook's value."""
    with handled(end_command), closing(ConsoleOutput.of(options)) as console:
        console.begin("preparing the ablation: the study and the MLflow store")
        from ..control.ablating import ablation
        from ..control.lookup import find_study

        existing = find_study(
            options.study, storage=options.storage, tracking_uri=options.tracking_uri
        )
        sweep = ablation(
            existing,
            seeds=options.seeds,
            cluster=options.cluster,
            jobs=options.jobs,
            allow_changes=options.allow_changes,
            observer=console.observe,
        )
        return _swept(sweep, console)


def prepared(
    options: RunOptions,
    console: ConsoleOutput | None = None,
    *,
    observers: Sequence[Observer],
) -> Sweep:
    """Build the sweep that a command line describes, ready to run.

    Args:
        options: Options of the command line.
        console: Prints the progress of the sweep. None in Jupyter, where the sweep displays itself.
        observers: Called in this order with each event of the sweep.

    Raises:
        SweepError: Something is wrong with the sweep. Nothing was started.
    """
    from ..notebooks.research import ResearchNotebook

    settings = options.settings()
    notebook = ResearchNotebook(options.input)
    notebook.check_names(settings.sources)
    StudyPaths.parse(options.output, study=settings.name)
    if console is not None:
        console.begin(
            f"preparing the sweep of {notebook.display_name}: the study and the MLflow store"
        )
    # The call above has printed a line, because the next step takes seconds, or a minute on a busy
    # machine. It imports Optuna, papermill and MLflow, and may create a store.
    return options.sweep(
        settings,
        notebook,
        allow_changes=options.allow_changes,
        observer=each_of(*observers),
        adopt=_adopt(options, settings),
    )


def _adopt(options: RunOptions, settings: Settings) -> Adopt | None:
    """Return a function that uses the observed run as the first trial of the sweep.

    The observed run is the one run of the notebook before its sweep was proposed.

    Returns:
        None if there is no observed run.
    """
    from ..drafting.observed_run import OBSERVED_NAME

    file = StudyPaths.parse(options.output, study=settings.name).folder / OBSERVED_NAME
    if not os.path.exists(file):
        return None
    from ..drafting.adopting import adopted

    return partial(adopted, file)


def _swept(sweep: Sweep, console: ConsoleOutput, events: EventLog | None = None) -> int:
    """Run a sweep, print its result, and return the exit code.

    Args:
        sweep: The sweep, ready to run.
        console: Prints the progress and the result.
        events: File of `--events`, to which the result is written. None without this option.
    """
    with closing(sweep.plan), stopped_by_signals(sweep) as received:
        console.watch(sweep)
        try:
            result = sweep.run()
        except StoppedError as error:
            console.close()
            _log.warning("%s; the same command starts it again", error)
            return received[-1] if received else INTERRUPTED
        console.close()
        if events is not None:
            events.write("sweep_ended", result=result.to_json())
        console.summary(result)
        console.json(result.to_json())
    if received:
        return received[-1]
    completed = result.counts[TrialState.COMPLETED]
    return OK if completed and not result.is_failure else NOTHING_COMPLETED


@contextmanager
def stopped_by_signals(sweep: Sweep, interrupt_name: str = "Ctrl-C") -> Iterator[list[int]]:
    """Stop the sweep if a signal arrives while the block runs.

    After the first Ctrl-C no more trials start. The second one stops the running trials. SIGHUP
    and SIGTERM stop all trials at once. After SIGTERM, which announces that the machine will be
    taken away, the whole sweep ends within `limits.grace`.

    Args:
        sweep: The sweep that runs.
        interrupt_name: Name of SIGINT in the summary: `Ctrl-C`, or in Jupyter `an interrupt of the
            kernel`.

    Yields:
        A list, to which the exit code of each received signal is appended.
    """
    received: list[int] = []

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        received.append(INTERRUPTED)
        sweep.stop(interrupt_name, now=len(received) > 1)

    def terminate(number: int, _frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        received.append(OF_SIGNALS[name])
        if received[-1] == PREEMPTED:
            sweep.preempt(name)
        else:
            sweep.stop(name, now=True)

    with handled(terminate, interrupt):
        yield received
