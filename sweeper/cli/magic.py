"""The line `%sweep` of IPython: the command `run` in a notebook's own kernel."""

from __future__ import annotations

import os
import shlex
from contextlib import closing
from typing import TYPE_CHECKING

from ..errors import SweepError
from ..notebook_api.messages import TRIAL_VARIABLE
from .parser import parse
from .run import prepared, run

if TYPE_CHECKING:
    from ..trials import SweepResult


def sweep(line: str) -> SweepResult | None:
    """Sweep a notebook with the options of the command line, as in `%sweep my.ipynb -j 4`.

    Returns:
        the result, which is displayed; None in a trial, which sweeps nothing.

    Raises:
        UsageError: the sweep was refused; IPython prints its text alone.
    """
    from IPython.core.error import UsageError

    if TRIAL_VARIABLE in os.environ:
        return None
    try:
        options = parse(shlex.split(line))
        if options.command is not run:
            raise UsageError("%sweep sweeps a notebook: %sweep my.ipynb -j 4; other commands: !")
        options.yes = True  # nobody can press a key
        made = prepared(options)
        with closing(made.plan):
            return made.run()
    except (SweepError, ValueError) as error:  # a quote without its end
        raise UsageError(str(error)) from None
    except SystemExit:  # after the help
        return None
