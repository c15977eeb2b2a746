"""Write one JSON object for each event of a sweep, for programs that follow it: `--events`."""

from __future__ import annotations

import json
import queue
import threading
import time
from contextlib import suppress
from typing import Any

from ..errors import SettingsError
from ..trials import Event, TrialRecord, trial_json

#: The end of a sweep waits at most this number of seconds for a reader that does not read (chosen,
#: not measured).
_LIMIT_S = 5.0


class EventLog:
    """Appends a line for each event to a file, or to a descriptor such as `/dev/fd/3`.

    A line that cannot be written, for example because the reader has closed the pipe, is lost, and
    the sweep continues. A thread writes the lines, so that a slow reader does not delay the sweep.

    Args:
        path: File to append to.

    Raises:
        SettingsError: The file cannot be written.
    """

    def __init__(self, path: str) -> None:
        try:
            # The file is open until the command ends.
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise SettingsError(
                f"--events {path}: {error.strerror}; name a file in a folder that exists, or "
                "/dev/fd/3"
            ) from error
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="events", daemon=True)
        self._thread.start()

    def observe(self, event: Event, record: TrialRecord | None) -> None:
        """Write a line about an event of a sweep, with the facts about the event's trial, if any.

        Args:
            event: The event.
            record: Record of the trial. None if the event is about the whole sweep.
        """
        about = {} if record is None else {"trial": trial_json(record)}
        self.write(str(event), **about)

    def write(self, event: str, **about: Any) -> None:
        """Queue a line. A thread then appends the line to the file, in one write.

        Args:
            event: Name of the event.
            **about: Further keys of the JSON object.
        """
        line = {"version": 1, "event": event, "time_s": round(time.time(), 3), **about}
        self._lines.put(json.dumps(line, allow_nan=False).encode() + b"\n")

    def close(self) -> None:
        """End the thread after it has written all queued lines. Wait for this at most 5 s."""
        self._lines.put(None)
        self._thread.join(_LIMIT_S)

    def _work(self) -> None:
        for line in iter(self._lines.get, None):
            with suppress(OSError):
                self._file.write(line)
