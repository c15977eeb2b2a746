"""The command line: reads flags, calls the other folders, prints, and returns exit codes.

No other folder prints, and nothing that the library can do is decided here.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Sequence

from ..errors import BrokenError, SweepError
from .codes import INTERRUPTED, NOTHING_COMPLETED, OK, WRONG_USE
from .parser import parse
from .streams import unbreakable


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    with unbreakable() as stdout:
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
        stdout.flush()
        if stdout.fault is not None:
            _print_error(f"standard output cannot be written: {stdout.fault}")
            code = code or WRONG_USE  # what a command has to say is lost
    return code


def _run(words: Sequence[str]) -> int:
    """Run a command; return its exit code."""
    try:
        options = parse(words)
        _quiet_libraries(verbose=getattr(options, "verbose", False))
        return int(options.command(options))
    except SweepError as error:
        _print_error(str(error))
        return NOTHING_COMPLETED if isinstance(error, BrokenError) else WRONG_USE
    except KeyboardInterrupt:  # a sweep that has begun ends otherwise
        _print_error("stopped by Ctrl-C")
        return INTERRUPTED
    except SystemExit as end:  # after the help or the version, or by a signal
        return end.code if isinstance(end.code, int) else OK


def _print_error(message: str) -> None:
    print(f"notebook_hpo.py: {message}", file=sys.stderr)


class _ToStderr(logging.Handler):
    """Writes to the current `sys.stderr`, which the live table replaces while it is drawn."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


def _quiet_libraries(*, verbose: bool) -> None:
    """Silence the messages of libraries that our own messages replace."""
    level = logging.INFO if verbose else logging.ERROR
    logging.basicConfig(
        level=logging.WARNING, format="%(name)s: %(message)s", handlers=[_ToStderr()]
    )
    logging.getLogger("sweeper").setLevel(logging.INFO if verbose else logging.WARNING)
    for name in ("papermill", "asyncio", "optuna"):
        logging.getLogger(name).setLevel(level)
    # nbconvert warns about pictures without a description, and logs errors that it also raises.
    logging.getLogger("traitlets").setLevel(level if verbose else logging.CRITICAL)
    # nbclient logs dead kernels and failed cells, which every outcome reports anyway.
    logging.getLogger("sweeper.kernels").setLevel(level if verbose else logging.CRITICAL)
    warnings.simplefilter("ignore")
