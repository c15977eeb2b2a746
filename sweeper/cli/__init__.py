"""The command line: read options, call the library, print, and return exit codes.

Only this folder prints. The other folders do all other work.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import warnings
from collections.abc import Callable, Sequence

from ..errors import BrokenError, FailedRunError, SweepError, shortened
from .codes import INTERRUPTED, NOTHING_COMPLETED, OF_SIGNALS, OK, WRONG_USE
from .parser import parse
from .run import run
from .streams import unbreakable

_Command = Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: Words of the command line after the program's name. None for `sys.argv[1:]`.

    Returns:
        The exit code.
    """
    # `sys.executable` is relative if a relative folder in `PATH` has the interpreter. It is made
    # absolute, because kernels start in another folder, the notebook's.
    sys.executable = sys.executable and os.path.abspath(sys.executable)
    # nbformat imports jsonschema. If JupyterLab is installed, jsonschema imports `rfc3987_syntax`,
    # which takes 0.7 s to compile a grammar of internationalized addresses. No schema of a notebook
    # has such addresses. So None makes this import fail, and jsonschema works without it.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    with unbreakable() as stdout:
        command, code = _run(list(sys.argv[1:] if arguments is None else arguments))
        stdout.flush()
        if stdout.fault is not None:
            _print_error(f"standard output cannot be written: {stdout.fault}")
            # A sweep keeps its exit code, because its results are in its study. The output of any
            # other command is lost, so that command has failed.
            code = code if command is run else WRONG_USE
    return code


def _run(words: Sequence[str]) -> tuple[_Command | None, int]:
    """Run the command that a command line names.

    Returns:
        The command's function and its exit code. The function is None if the words could not be
        parsed, or only request the help or the version.
    """
    command: _Command | None = None
    try:
        options = parse(words)
        command = options.command
        _quiet_libraries(verbose=getattr(options, "verbose", False))
        return command, options.command(options)
    except SweepError as error:
        _print_error(str(error))
        has_begun = isinstance(error, BrokenError | FailedRunError)
        return command, NOTHING_COMPLETED if has_begun else WRONG_USE
    except KeyboardInterrupt:  # A sweep that has begun handles Ctrl-C itself.
        when = " before the sweep had started" if command is run else ""
        _print_error(f"stopped by Ctrl-C{when}")
        return command, INTERRUPTED
    except SystemExit as end:
        # argparse raises SystemExit after the help or the version. Signal handlers raise it, too.
        code = end.code if isinstance(end.code, int) else OK
        names = {exit_code: name for name, exit_code in OF_SIGNALS.items()}
        if code in names:
            _print_error(f"stopped by {names[code]}")
        return command, code


def _print_error(message: str) -> None:
    lines = map(shortened, message.splitlines())  # A message may quote a very long option.
    print("notebook_hpo.py:", "\n".join(lines), file=sys.stderr)


#: Format of messages of this package without `-v`: the message, and a traceback if there is one.
_PLAIN = logging.Formatter("%(message)s")


class _ToStderr(logging.Handler):
    """Prints log messages to `sys.stderr`, which the live table replaces while it is displayed.

    Each message begins with the name of the module that has logged it. Without `-v`, this name is
    left out of messages of this package.
    """

    def emit(self, record: logging.LogRecord) -> None:
        ours = logging.getLogger("sweeper")
        is_plain = record.name.startswith(f"{ours.name}.") and not ours.isEnabledFor(logging.INFO)
        print(_PLAIN.format(record) if is_plain else self.format(record), file=sys.stderr)


def _quiet_libraries(*, verbose: bool) -> None:
    """Set up logging to stderr. Hide Python's warnings.

    Without `-v`, also hide most logs of some libraries, such as papermill and Optuna.
    """
    level = logging.INFO if verbose else logging.ERROR
    logging.basicConfig(
        level=logging.WARNING, format="%(name)s: %(message)s", handlers=[_ToStderr()]
    )
    logging.getLogger("sweeper").setLevel(logging.INFO if verbose else logging.WARNING)
    for name in ("papermill", "asyncio", "optuna"):
        logging.getLogger(name).setLevel(level)
    # Without `-v`, these are not shown: nbconvert's warnings about pictures without a description,
    # and errors that nbconvert logs and also raises.
    logging.getLogger("traitlets").setLevel(level if verbose else logging.CRITICAL)
    # Without `-v`, nbclient's logs about dead kernels and failed cells are not shown, because the
    # outcome of the trial contains the same error.
    logging.getLogger("sweeper.jupyter").setLevel(level if verbose else logging.CRITICAL)
    warnings.simplefilter("ignore")
