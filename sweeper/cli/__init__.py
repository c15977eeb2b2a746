"""The command line: flags in, one frozen `Settings` and its parts, exit codes out.

The only room that prints.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Callable, Sequence

from ..errors import BrokenError, SweepError
from .codes import INTERRUPTED, NOTHING_COMPLETED, OK, WRONG_USE
from .parser import parse
from .run import run
from .streams import unbreakable

_Command = Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    with unbreakable() as (stdout, _):
        command, code = _run(list(sys.argv[1:] if arguments is None else arguments))
        stdout.flush()
        if stdout.fault is not None:
            _complain(f"standard output cannot be written: {stdout.fault}")
            # A sweep leaves all in its study; what other commands print is all that they do.
            code = code if command is run else WRONG_USE
    return code


def _run(given: Sequence[str]) -> tuple[_Command | None, int]:
    """Run a command.

    Returns:
        the command, None where that is not clear, and its exit code.
    """
    command: _Command | None = None
    try:
        options = parse(given)
        command = options.command
        _quiet_libraries(verbose=getattr(options, "verbose", False))
        return command, options.command(options)
    except SweepError as error:
        _complain(str(error))
        return command, NOTHING_COMPLETED if isinstance(error, BrokenError) else WRONG_USE
    except KeyboardInterrupt:  # before the sweep has begun: nothing to end, nothing to lose
        _complain("stopped by Ctrl-C before anything had started")
        return command, INTERRUPTED
    except SystemExit:  # argparse has printed the help or the version
        return command, OK


def _complain(message: str) -> None:
    print(f"notebook_hpo.py: {message}", file=sys.stderr)


class _ToStderr(logging.Handler):
    """To whatever stands for standard error at the time: the live table puts itself before it."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


def _quiet_libraries(*, verbose: bool) -> None:
    """The libraries below talk to their own users; ours hear from us."""
    level = logging.INFO if verbose else logging.ERROR
    logging.basicConfig(
        level=logging.WARNING, format="%(name)s: %(message)s", handlers=[_ToStderr()]
    )
    logging.getLogger("sweeper").setLevel(logging.INFO if verbose else logging.WARNING)
    for name in ("papermill", "asyncio", "optuna"):
        logging.getLogger(name).setLevel(level)
    # It tells of pictures without a description, and of faults that our own message tells better.
    logging.getLogger("traitlets").setLevel(level if verbose else logging.CRITICAL)
    # nbclient logs the deaths and failures that every outcome tells anyway.
    logging.getLogger("sweeper.kernels").setLevel(level if verbose else logging.CRITICAL)
    warnings.simplefilter("ignore")
