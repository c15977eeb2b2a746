"""One JSON object per event of a sweep, for programs that follow it: `--events`."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any

from ..errors import SettingsError
from ..trials import Event, TrialRecord, trial_json


class EventLog:
    """Appends to a file, or to a descriptor such as `/dev/fd/3`, a line for each event.

    A reader that goes away ends the lines, and not the sweep.

    Raises:
        SettingsError: it cannot be written.
    """

    def __init__(self, path: str) -> None:
        try:
            self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115  until the command ends
        except OSError as error:
            raise SettingsError(
                f"--events {path}: {error.strerror}; name a file in a folder that exists, or "
                "/dev/fd/3"
            ) from error

    def observe(self, event: Event, record: TrialRecord | None) -> None:
        """Write an event of a sweep."""
        self.write(str(event), **({} if record is None else {"trial": trial_json(record)}))

    def write(self, event: str, **about: Any) -> None:
        """Write a line, at once and whole."""
        line = {"version": 1, "event": event, "time_s": round(time.time(), 3), **about}
        with suppress(OSError):
            self._file.write(json.dumps(line, allow_nan=False) + "\n")
            self._file.flush()
