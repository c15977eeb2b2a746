"""The commands `init` and `schema`, which help to write a parameters file."""

from __future__ import annotations

import argparse
import json

from .codes import OK


def init(options: argparse.Namespace) -> int:
    """Print a parameters file made from a notebook's parameters cell."""
    from ..drafting import draft
    from ..notebooks import ResearchNotebook

    print(draft(ResearchNotebook(options.input)), end="")
    return OK


def schema(_options: argparse.Namespace) -> int:
    """Print the JSON schema of the parameters file."""
    from ..settings import Settings

    print(json.dumps(Settings.json_schema(), indent=2))
    return OK
