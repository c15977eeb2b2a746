"""The command `data push`: upload the data of trials, so that other machines can fetch it."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ..errors import NotebookError, SettingsError
from ..trials import display_path
from .codes import OK
from .console_output import ConsoleOutput


def data(options: argparse.Namespace) -> int:
    """Upload the folder `data.path` of a parameters file to the file's URL `data.from`."""
    from ..data.archive import Dataset
    from ..settings import Settings
    from ..settings.units import size

    console = ConsoleOutput.of(options)
    settings = Settings.load(options.parameters)
    if settings.data is None:
        raise SettingsError(
            f"{options.parameters}: data: this key is missing; state where the data is and where "
            "it is pushed to, as in data: {path: ./data, from: s3://bucket/datasets}"
        )
    beside = Path(options.input or options.parameters)
    if not os.path.isfile(beside):
        raise NotebookError(f"{beside}: there is no such notebook")
    dataset = Dataset(settings.data, folder=beside.absolute().parent)
    place = display_path(dataset.place())
    version, sent_bytes = dataset.push(console.progress)
    done = f"was sent ({size(sent_bytes)})" if sent_bytes else "was there already"
    console.line(f"{place}: version {version} {done}: {dataset.url}")
    console.json({"version": version, "path": place, "sent_bytes": sent_bytes})
    return OK
