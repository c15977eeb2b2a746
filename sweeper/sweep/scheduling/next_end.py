"""Lets a slot wait for the end of a trial, where the order of trials is fixed."""

from __future__ import annotations

import queue

from ..stop_switch import StopSwitch


class NextEnd:
    """The next end of a trial, or of the sweep.

    Any thread may announce an end, and a signal handler that stops the sweep as well. One thread
    waits at a time.
    """

    def __init__(self, stop_switch: StopSwitch) -> None:
        self._stop_switch = stop_switch
        # A queue and no event: a signal handler may interrupt the thread that announces an end.
        self._ends: queue.SimpleQueue[None] = queue.SimpleQueue()
        stop_switch.when_closed(self.announce)

    def announce(self) -> None:
        """Have the slot that waits look again; returns at once."""
        self._ends.put(None)

    def wait(self) -> bool:
        """Wait for an end since the last call.

        Returns:
            whether more trials may start.
        """
        self._ends.get()
        while not self._ends.empty():  # one look is enough for all ends so far
            self._ends.get()
        return self._stop_switch.closed_by is None
