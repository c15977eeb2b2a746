"""The command line: flags in, one frozen `Settings` and its parts, exit codes out.

The only room that prints.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Callable, Sequence

from ..errors import SweepError
from .codes import INTERRUPTED, NOTHING_COMPLETED, WRONG_USE
from .parser import COMMANDS, make_parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and given[0] not in (*COMMANDS, "-h", "--help"):
        given.insert(0, "run")
    options = make_parser().parse_args(given or ["--help"])
    command: Callable[[argparse.Namespace], int] = options.command
    _quiet_libraries(verbose=getattr(options, "verbose", False))
    try:
        return command(options)
    except SweepError as error:
        print(f"notebook_hpo.py: {error}", file=sys.stderr)
        return WRONG_USE
    except KeyboardInterrupt:  # before the sweep has begun: nothing to end, nothing to lose
        print("notebook_hpo.py: stopped by Ctrl-C before anything had started", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone
        sys.stderr.close()
        return NOTHING_COMPLETED


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
    logging.getLogger("traitlets").setLevel(logging.ERROR)  # of pictures without a description
    # nbclient logs the deaths and failures that every outcome tells anyway.
    logging.getLogger("sweeper.kernels").setLevel(level if verbose else logging.CRITICAL)
    warnings.simplefilter("ignore")
