"""The command `data`: push the data of trials, fetch it before a sweep, verify what is here."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import NotebookError, SettingsError
from ..trials import display_path
from .codes import OK
from .console_output import ConsoleOutput


def data(options: argparse.Namespace) -> int:
    """Push, fetch or verify the data of a parameters file."""
    from ..settings import Settings
    from ..settings.units import size
    from ..sync.datasets import Dataset

    console = ConsoleOutput(options)
    settings = Settings.load(options.parameters)
    if settings.data is None:
        raise SettingsError(
            f"{options.parameters}: data: is missing; say where the data lies and where it is "
            "pushed to, as in data: {path: ./data, from: s3://bucket/datasets}"
        )
    beside = Path(options.input or options.parameters)
    if not beside.is_file():
        raise NotebookError(f"{beside}: there is no such notebook")
    dataset = Dataset(settings.data, folder=beside.absolute().parent)
    place = display_path(dataset.place())
    if options.action == "push":
        pushed = dataset.push(console.progress)
        what = f"{pushed.n_files} file{'s' if pushed.n_files != 1 else ''}, "
        what += f"{size(pushed.size_bytes)}"
        console.line(
            f"{place}: version {pushed.version} ({what}) is at {dataset.url}; "
            + (f"{size(pushed.sent_bytes)} were sent" if pushed.is_new else "it was there already")
        )
        sent = pushed.sent_bytes
        console.json({"version": pushed.version, "path": place, "sent_bytes": sent})
        return OK
    dataset.settle()
    dataset.bring(console.progress, reads_all=options.action == "verify")
    done = "every file was read and is" if options.action == "verify" else "is"
    console.line(f"{place}: {done} version {dataset.version} of {dataset.url}")
    console.json({"version": dataset.version, "path": place})
    return OK
