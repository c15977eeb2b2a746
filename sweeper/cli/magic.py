"""Define the line magic `%sweep` of IPython, which runs the command `run` in a Jupyter kernel."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from IPython.core.magic import no_var_expand

from ..errors import SettingsError, SweepError
from ..notebook_api.messages import TRIAL_VARIABLE
from .console_output import ConsoleOutput
from .parser import parse
from .proposal import propose
from .run import prepared, run, stopped_by_signals
from .run_options import RunOptions

if TYPE_CHECKING:
    from ..trials import Event, SweepResult, TrialRecord

#: Options about the output of a terminal. They are refused in a cell, which displays the result.
_OF_TERMINALS = ("events", "json", "quiet", "verbose")


@no_var_expand  # IPython would replace `{run_id}` in the line by the value of a variable.
def sweep(line: str) -> SweepResult | None:
    """Sweep a notebook with the options of the command line, as in `%sweep my.ipynb -j 4`.

    An error of the sweep is printed, not raised. In a notebook that runs as a trial itself, do
    nothing.

    Returns:
        The result, which Jupyter displays. None in a trial, after `-h`, `--version` or `--dry-run`,
        and after an error.
    """
    if TRIAL_VARIABLE in os.environ:
        return None
    with suppress(SystemExit):  # argparse raises SystemExit after the help.
        try:
            arguments = parse(_words(line))
            if arguments.command is not run:
                raise SettingsError(
                    "this command does not run in a cell; begin with the notebook to sweep, as in "
                    "%sweep my.ipynb -j 4"
                )
            for name in _OF_TERMINALS:
                if getattr(arguments, name):
                    raise SettingsError(f"--{name} has no effect in a cell; leave it out")
            # A cell cannot ask the user, so a proposed sweep starts without a question.
            options = replace(RunOptions.of(arguments), yes=True)
            if not propose(options, ConsoleOutput.of(arguments)):
                return None

            def tell(event: Event, _record: TrialRecord | None) -> None:
                if event == "stopping" and not made.is_stopping_all:
                    print("no new trials; running ones finish (interrupt again to stop them now)")

            made = prepared(options, observers=[tell])
            with closing(made.plan), stopped_by_signals(made, "an interrupt of the kernel"):
                return made.run()
        except SweepError as error:
            print(f"%sweep: {error}", file=sys.stderr)
    return None


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:  # A closing quote is missing.
        raise SettingsError(str(error)) from error
