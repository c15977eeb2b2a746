"""The command `mcp`: serve sweeps to a coding agent."""

from __future__ import annotations

import argparse
from pathlib import Path

from .codes import OK


def mcp(options: argparse.Namespace) -> int:
    """Let a coding agent run sweeps: serve tools over MCP on standard input and output."""
    from ..agents.server import serve

    serve(Path(options.parameters), budget=options.budget, jobs=options.jobs)
    return OK
