"""The commands `init` and `schema`: a first parameters file, and the JSON schema of such files."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from typing import TYPE_CHECKING

from .codes import OK
from .signals import end_command, handled

if TYPE_CHECKING:
    from ..drafting.draft import Draft
    from ..notebooks.research import ResearchNotebook


def init(options: argparse.Namespace) -> int:
    """Print a parameters file that is drafted from a notebook."""
    from ..drafting.draft import draft
    from ..notebooks.research import ResearchNotebook

    notebook = ResearchNotebook(options.input)
    drafted = _drafted_from_a_run(notebook, options) if options.run else draft(notebook)
    print(drafted.text, end="")
    return OK


def _drafted_from_a_run(notebook: ResearchNotebook, options: argparse.Namespace) -> Draft:
    """Run a notebook once, and draft a parameters file from what it computed.

    The executed notebook is not kept.
    """
    from ..drafting.observed_run import observe
    from ..execution.runtime import temporary_folder
    from ..sweep import Sweep

    print(f"running {notebook.display_name} once as it is", file=sys.stderr)
    with handled(end_command), temporary_folder("init") as folder:
        output = f"{folder}/{{run_id}}.ipynb"
        sweep_of = partial(Sweep.from_settings, output=output, kernel=options.kernel)
        return observe(notebook, sweep_of).drafted(notebook)


def schema(_options: argparse.Namespace) -> int:
    """Print the JSON schema of the parameters file."""
    from ..settings import Settings

    print(json.dumps(Settings.json_schema(), indent=2))
    return OK
