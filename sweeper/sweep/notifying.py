"""Send a message to ntfy or a webhook when a trial fails or a sweep ends."""

from __future__ import annotations

import json
import logging
import threading
import urllib.request
from typing import Any

from ..errors import first_line
from ..settings.sections import Notify
from ..trials import Event, SweepResult, TrialRecord, TrialState

_log = logging.getLogger(__name__)

#: A server has this number of seconds to accept a message. The end of a sweep waits at most as long
#: for each message (chosen, not measured).
_LIMIT_S = 5.0


class Notifier:
    """Sends the messages that the section `notify` of the parameters file asks for.

    Each message is sent by its own thread, so that no trial waits for it.

    Args:
        notify: Section `notify`. None if no message is to be sent.
        study: Name of the study. It begins the title of each message.
    """

    def __init__(self, notify: Notify | None, study: str) -> None:
        self._notify, self._study = notify, study
        self._sending: list[threading.Thread] = []
        self._has_failed = False

    def observe(self, event: Event, record: TrialRecord | None) -> None:
        """Send a message if this event is the end of the sweep's first failed trial."""
        if event is Event.TRIAL_ENDED and record is not None and not self._has_failed:
            self._has_failed = record.state is TrialState.FAILED
            if self._has_failed:
                self.send("failure", f"trial {record.run_id} has failed: {record.message}")

    def ended(self, kind: str, result: SweepResult) -> None:
        """Send a message about the end of the sweep.

        Args:
            kind: Kind of end: `end`, `budget` or `preemption`. If `notify.on` lacks it, the message
                is sent as `end`.
            result: Result of the sweep.
        """
        if self._notify is None:
            return
        if kind not in self._notify.on:
            kind = "end"
        found = result.to_json()
        text = f"{result.headline}\n{found['page'] or ''}".strip()
        self.send(kind, text, best=found["best"], page=found["page"])

    def send(self, kind: str, text: str, **more: Any) -> None:
        """Send a message if `notify.on` contains its kind.

        Args:
            kind: Kind of message, such as `failure` or `end`.
            text: Text for people.
            more: Further fields of the JSON that a webhook receives.
        """
        if self._notify is not None and kind in self._notify.on:
            sender = threading.Thread(target=self._send, args=[kind, text, more], daemon=True)
            sender.start()
            self._sending.append(sender)

    def close(self) -> None:
        """Wait up to 5 s for each message that is being sent."""
        for sender in self._sending:
            sender.join(_LIMIT_S)

    def _send(self, kind: str, text: str, more: dict[str, Any]) -> None:
        assert self._notify is not None
        title = f"{self._study}: {kind}"
        if "ntfy" in self._notify.url:
            headers = {"Title": title.encode("ascii", "replace").decode()}
            body = text
        else:
            headers = {"Content-Type": "application/json"}
            message = {
                "version": 1,
                "event": kind,
                "study": self._study,
                # Send the text twice, because Slack shows the field `text`, and Discord `content`.
                "text": f"{title}\n{text}",
                "content": f"{title}\n{text}",
                "best": None,
                "page": None,
            }
            body = json.dumps(message | more)
        request = urllib.request.Request(self._notify.url, data=body.encode(), headers=headers)
        try:
            urllib.request.urlopen(request, timeout=_LIMIT_S).close()
        except Exception as error:  # noqa: BLE001  no trial depends on a message
            _log.warning("notify: the message did not arrive: %s", first_line(error))
