"""Print the output of commands: progress to stderr, results to stdout (with `--json` to stderr)."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..display import screen
from ..display.repeating import repeated
from ..settings.units import duration
from ..trials import (
    Notice,
    Snapshot,
    SweepResult,
    TrialRecord,
    TrialState,
    clipped,
    counts_line,
    params_line,
)
from .live_table import live_table
from .streams import can_redraw, folded, is_terminal

if TYPE_CHECKING:
    from ..drafting.observed_run import Observer
    from ..sweep import Sweep
    from ..sweep.planning.plan import SweepPlan
    from ..trials import Event

#: Without `-v`, `status` prints at most this number of ended trials (chosen, not measured).
_MOST_ENDED = 20
#: A line of `status` has the trial's end and then its params. So that the params are aligned, all
#: ends are padded to the longest one, but at most to this number of characters (chosen, not
#: measured).
_WIDEST = 60
#: Chores are the tasks of a sweep besides its trials. Without a live table, a line is printed for
#: each chore that takes more than `_LONG_S` seconds. Chores are checked every `_LOOK_S` seconds.
_LONG_S, _LOOK_S = 4.0, 1.0


class ConsoleOutput:
    """Prints the output of one command.

    Args:
        quiet: Whether to print only failures.
        verbose: Whether to print more, such as all trials that have ended.
        json: Whether the last line of stdout is a JSON object. Everything else is then printed to
            stderr.
    """

    def __init__(self, *, quiet: bool, verbose: bool, json: bool) -> None:
        self._quiet = quiet
        self._verbose = verbose
        self._json = json
        self._lock = threading.RLock()
        self._started = time.monotonic()
        self._sweep: Sweep | Observer | None = None
        self._has_table = False
        self._told: set[Notice] = set()
        self._watching = ExitStack()

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> ConsoleOutput:
        """Return a `ConsoleOutput` with the options of a parsed command line."""
        return cls(quiet=arguments.quiet, verbose=arguments.verbose, json=arguments.json)

    def begin(self, line: str) -> None:
        """Print a line about what the command does first. Display the live table until `close`.

        The times at the beginning of printed lines count from this call. Without a terminal, there
        is no live table, and tasks that take long are printed instead.
        """
        self._started = time.monotonic()
        if self._quiet:
            return
        self._has_table = can_redraw(sys.stderr)
        self._watching.enter_context(
            live_table(self._snapshot, sys.stderr) if self._has_table else self._said_chores()
        )
        self.progress(line)

    def watch(self, sweep: Sweep | Observer | None) -> None:
        """Set the sweep whose progress is printed from now on.

        Args:
            sweep: The sweep, or an observer that runs a notebook once. None to print no progress.
        """
        self._sweep = sweep

    def close(self) -> None:
        """Stop printing progress, and erase the live table."""
        self._watching.close()

    def _snapshot(self) -> Snapshot | None:
        return None if self._sweep is None else self._sweep.snapshot()

    def _said_chores(self) -> AbstractContextManager[object]:
        """Return a context manager that prints each long chore once, while its block runs.

        A chore is a task of the sweep besides its trials, such as writing the comparison page.
        """
        said: set[tuple[str, float]] = set()

        def say() -> None:
            doing = () if self._sweep is None else self._sweep.doing()
            for chore in doing:
                is_new = (chore.kind, chore.since_s) not in said
                if is_new and time.monotonic() - chore.since_s > _LONG_S:
                    said.add((chore.kind, chore.since_s))
                    self.progress(screen.chore_line(chore))

        return repeated(say, _LOOK_S, name="chores")

    def observe(self, event: Event, record: TrialRecord | None) -> None:
        """Print a line about an event of the sweep. Events that people need not see print nothing.

        Args:
            event: The event.
            record: Record of the trial. None if the event is about the whole sweep.
        """
        from ..sweep import Sweep

        assert isinstance(self._sweep, Sweep)
        match event:
            case "sweep_started":
                self._print_plan(self._sweep)
            case "trial_started" if record is not None and not self._has_table:
                again = f" (attempt {record.attempt})" if record.attempt > 1 else ""
                params = params_line(record.params)
                self.progress(f"{record.run_id} started{again}: {params}")
            case "trial_ended" if record is not None:
                objectives = self._sweep.plan.settings.objective
                ending = f"{record.run_id} {screen.ending_line(record, objectives)}"
                if self._has_table:  # Lines above the table must not be wider than the terminal.
                    room = shutil.get_terminal_size().columns - len("[10h00m] ")
                    ending = clipped(ending, room)
                self.progress(ending)
                self._tell_notices(record)
            case "bringing_back" if self._sweep.plan.remote is not None:
                self.progress(f"restoring the study from {self._sweep.plan.remote.display_url}")
            case "copying" if self._sweep.plan.remote is not None:
                self.progress(f"copying new results to {self._sweep.plan.remote.display_url}")
            case "data":
                self.progress(self._sweep.data_lines.popleft())
            case "stopping":
                self._tell_stop(self._sweep)

    def _tell_stop(self, sweep: Sweep) -> None:
        if not sweep.has_running:
            what = "no new trials, and none is running"
        elif sweep.is_stopping_all:
            what = "the running trials are being stopped"
        else:
            what = "no new trials; running ones finish (Ctrl-C again to stop them now)"
        self.progress(f"stopping ({sweep.stopped_by}): {what}")

    def _tell_notices(self, record: TrialRecord) -> None:
        """Print a trial's notices (facts that users should know, such as overwritten files).

        Each kind of notice is printed only for the first trial that has it.
        """
        new = {kind: names for kind, names in record.notices.items() if kind not in self._told}
        for line in screen.notice_lines([replace(record, notices=new)]):
            self.progress(line)
        self._told |= new.keys()

    def summary(self, result: SweepResult) -> None:
        """Print the summary of a sweep that has ended.

        With `--quiet`, print only what went wrong. But if the study has no completed trial, print
        the whole summary in any case.
        """
        if not (self._quiet and result.counts[TrialState.COMPLETED]):
            self._print(screen.summary(result, self._fold))
        elif lines := screen.trouble_lines(result):
            self._print("\n".join(lines))

    def _fold(self, lines: Iterable[str]) -> Iterable[str]:
        """Wrap lines to the width of the terminal, if the output is a terminal."""
        if not is_terminal(self._stream):
            return lines
        return folded(lines, shutil.get_terminal_size().columns)

    def status(
        self,
        result: SweepResult,
        snapshot: Snapshot,
        *,
        owner: str | None,
        chosen: Sequence[TrialRecord] | None = None,
    ) -> None:
        """Print the state of a study.

        Args:
            result: Results of the study so far.
            snapshot: Progress of the running trials.
            owner: Which process sweeps the study, in words. None if no process does.
            chosen: Trials to print, in this order. None for the trials that ended last.
        """
        if self._quiet:
            return
        ended = [record for record in result.records if record.state.has_ended]
        some = ended if self._verbose else ended[-_MOST_ENDED:]
        if chosen is not None:
            some = ended = list(chosen)
        lines = [f"study {result.study}: {counts_line(result.counts)}"]
        lines.append(f"swept by {owner}" if owner else "no sweep is running")
        if len(some) < len(ended):
            lines.append(f"  … {len(ended) - len(some)} earlier trials; -v shows them")
        endings = [screen.ending_line(record, result.objectives) for record in some]
        width = min(_WIDEST, max(map(len, endings), default=0))
        for record, ending in zip(some, endings, strict=True):
            params = params_line(record.params)
            lines.append(f"  {record.run_id}  {ending:<{width}}  {params}")
        if not snapshot.running:
            lines += screen.answer_lines(result)
        if owner is None:
            lines += screen.confirmation_lines(result.confirmation, result.storage)
        self._print("\n".join(self._fold(lines)))
        if snapshot.running:
            screen.print_table(snapshot, self._stream)
        self._print("")

    def line(self, text: str) -> None:
        """Print a line of the result, unless the command is quiet."""
        if not self._quiet:
            self._print(text)

    @property
    def can_ask(self) -> bool:
        """Whether the user can be asked: input and output are terminals, without `--quiet`."""
        if self._quiet or sys.stdin is None:
            return False
        return is_terminal(sys.stdin) and is_terminal(self._stream)

    def json(self, data: Any) -> None:
        """Print the JSON object as the last line of stdout, if the command has `--json`."""
        if self._json:
            print(json.dumps(data, allow_nan=False), flush=True)

    def _print_plan(self, sweep: Sweep) -> None:
        settings = sweep.plan.settings
        description = sweep.plan.executor.description
        place = f" ({description})" if description else ""
        confirm, then = settings.confirm, ""
        if confirm is not None:
            then = f" and {confirm.best} x {confirm.seeds} to confirm the best"
        self.progress(
            f"study {settings.name}: {settings.study.trials} trials{then} of "
            f"{sweep.plan.notebook.display_name}, "
            f"{sweep.plan.executor.jobs} at once{place}, sampler {sweep.plan.samplers.name}"
        )
        self.tell_kernel(sweep.plan)
        for name, file in sweep.plan.inputs.items():
            self.progress(f"{name}: {file}")
        for doubt in sweep.plan.doubts:
            self.progress(doubt)
        if self._verbose:
            self.progress(
                f"storage {sweep.plan.storage_url}; kernel {sweep.plan.workload.kernel_name}; "
                f"{settings.resources.threads} thread(s) per kernel; seed {settings.study.seed}"
            )

    def tell_kernel(self, plan: SweepPlan) -> None:
        """Print which environment runs the notebook, if the user has not named one."""
        if plan.kernel.reason is not None:
            self.progress(f"kernel: {plan.kernel.name} ({plan.kernel.reason})")

    def progress(self, line: str) -> None:
        """Print a line to stderr, preceded by the elapsed time, unless the command is quiet."""
        if not self._quiet:
            took = duration(time.monotonic() - self._started)
            with self._lock:
                print(f"[{took:>6}] {line}", file=sys.stderr)

    @property
    def _stream(self) -> Any:
        return sys.stderr if self._json else sys.stdout

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)
