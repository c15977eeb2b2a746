"""The commands `init` and `schema`: a first parameters file, and the schema of such files."""

from __future__ import annotations

import argparse
import json

from .codes import OK


def init(options: argparse.Namespace) -> int:
    """Print a parameters file made from a notebook."""
    from ..drafting.draft import draft
    from ..notebooks.research import ResearchNotebook

    print(draft(ResearchNotebook(options.input)), end="")
    return OK


def schema(_options: argparse.Namespace) -> int:
    """Print the JSON schema of the parameters file."""
    from ..settings import Settings

    print(json.dumps(Settings.json_schema(), indent=2))
    return OK
