"""Delivers messages to the process that writes to MLflow, in order, also across its death.

A message counts as delivered when that process has dealt with it. If the process dies, another one
gets what was not delivered.
"""

from __future__ import annotations

import itertools
import logging
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

from ..errors import TrackingError
from . import writing_process
from .messages import (
    Ended,
    Message,
    Opened,
    Refused,
    Reply,
    Reported,
    Started,
    Store,
    Taken,
    TimedPoint,
)

_log = logging.getLogger(__name__)

#: How long the end of a sweep waits for a store that takes no further message.
_PATIENCE_S = 60
#: How long a message waits for others, with which it is sent. Meanwhile its slot starts the next
#: trial.
_DELAY_S = 0.1
#: How long to wait before a store that cannot be used is tried again; twice as long each time.
_FIRST_PAUSE_S = 2
_LONGEST_PAUSE_S = 60
#: How often the process may die in a row, without having dealt with a new message in between.
_MOST_DEATHS = 5
#: How long the process may take to close the store.
_END_S = 10
#: How long to wait for a thread that sends, while a process that is stopped takes nothing.
_SENDING_S = 2


class Delivery:
    """Sends messages of one study, and receives replies, on two threads.

    Args:
        store: where the process writes.
        tries_again: whether a store that cannot be opened for a while is opened later; otherwise
            it is refused.
        on_reply: called with each reply but `Taken` and `Refused`.
        on_receipt: called for each message that was dealt with, with MLflow's id of its run and
            the reason why MLflow did not take it; each is None where there is none.
        on_refusal: called if the store cannot be used; `refusal` has the message then.

    Attributes:
        refusal: why the store cannot be used; None before that is known.
    """

    def __init__(
        self,
        store: Store,
        *,
        tries_again: bool,
        on_reply: Callable[[Reply], None],
        on_receipt: Callable[[Message, str | None, str | None], None],
        on_refusal: Callable[[], object],
    ) -> None:
        self._store = store
        self._tries_again = tries_again
        self._on_reply = on_reply
        self._on_receipt = on_receipt
        self._on_refusal = on_refusal
        self.refusal: str | None = None
        #: Set when the store is open, or cannot be used.
        self._answered = threading.Event()
        self._queue: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._serials = itertools.count()
        #: Held while messages are sent, so that all arrive in order.
        self._sending = threading.Lock()
        self._undelivered: dict[int, Message] = {}
        #: The starts of trials whose ends have not been written.
        self._begun: dict[str, Started] = {}
        #: The numbers of messages that only tell a new process what the last one knew.
        self._repeated: set[int] = set()
        self._n_deaths = 0
        #: How long to wait before the store is tried again; 0 while it can be used.
        self._pause_s = 0.0
        self._closing = threading.Event()
        self._is_all_sent = False
        #: Set when every message has been dealt with, or none will be any more.
        self._finished = threading.Event()
        try:
            self._process, self._connection = writing_process.launch()
            self._connection.send([store])
        except OSError as error:
            raise TrackingError(
                f"the process that writes to MLflow cannot be started: {error}"
            ) from error
        self._threads = [
            threading.Thread(target=self._send_queued, name="tracker", daemon=True),
            threading.Thread(target=self._receive, name="tracker replies", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def wait_until_open(self) -> None:
        """Wait until MLflow has opened the store.

        Raises:
            TrackingError: it cannot.
        """
        self._answered.wait()
        if self.refusal is not None:
            raise TrackingError(self.refusal)

    def put(self, message: Message) -> None:
        """Send a message soon; never waits."""
        self._queue.put(message)

    @property
    def is_closing(self) -> bool:
        """Whether the sweep waits for the last messages."""
        return self._closing.is_set()

    def close(self, *, patience_s: float | None) -> int:
        """Wait until all messages have been dealt with, and end the process.

        Args:
            patience_s: how long to wait at most; None waits until the store is open, and then as
                long as the process deals with a message at least every minute.

        Returns:
            how many messages have not been dealt with.
        """
        self._closing.set()
        self._queue.put(None)
        if patience_s is not None:
            self._finished.wait(patience_s)
        else:
            self._answered.wait()  # making a store may take a minute, in which no message is taken
            n_before = -1
            while n_before != self._n_waiting and not self._finished.is_set():
                n_before = self._n_waiting
                self._finished.wait(_PATIENCE_S)
        n_waiting = self._n_waiting
        self._end_process(is_orderly=n_waiting == 0 and self.refusal is None)
        for thread in self._threads:
            thread.join(_END_S)
        return n_waiting

    @property
    def _n_waiting(self) -> int:
        n_queued = self._queue.qsize()
        return len(self._undelivered) + n_queued - (n_queued > 0 and self._closing.is_set())

    # --- the thread that sends -------------------------------------------------------------------

    def _send_queued(self) -> None:
        is_last = False
        while not is_last:
            queued = [self._queue.get()]
            self._closing.wait(_DELAY_S)
            while not self._queue.empty():
                queued.append(self._queue.get())
            is_last = None in queued
            with self._sending:
                messages = _joined(message for message in queued if message is not None)
                items = [(next(self._serials), message) for message in messages]
                self._undelivered.update(items)
                self._is_all_sent = is_last
                self._send(items)
                self._see_whether_finished()

    def _send(self, items: list[tuple[int, Message]]) -> None:
        for _, message in items:
            if isinstance(message, Started):
                self._begun[message.run_id] = message
        if items and not self._finished.is_set():
            try:
                self._connection.send(items)
            except OSError:  # the process has died, and the other thread starts another one
                _log.debug("the process that writes to MLflow takes no messages")

    def _see_whether_finished(self) -> None:
        if self._is_all_sent and not self._undelivered:
            self._finished.set()

    # --- the thread that receives ----------------------------------------------------------------

    def _receive(self) -> None:
        while True:
            try:
                reply: Reply = self._connection.recv()
            except (EOFError, OSError):
                if not self._restart():
                    return
            else:
                self._take(reply)

    def _take(self, reply: Reply) -> None:
        match reply:
            case Taken():
                with self._sending:
                    self._take_receipt(reply)
                    self._see_whether_finished()
            case Refused():
                is_away = reply.is_temporary and self._tries_again
                if is_away or self._answered.is_set():
                    self._put_off(reply.message)
                else:
                    self._refuse(reply.message)
            case _:
                self._on_reply(reply)
                if isinstance(reply, Opened):
                    self._answered.set()
                    if self._pause_s:
                        _log.warning("the MLflow store can be used again")
                    self._pause_s = 0.0

    def _take_receipt(self, receipt: Taken) -> None:
        message = self._undelivered.pop(receipt.serial)
        if receipt.serial not in self._repeated:
            self._n_deaths = 0
        if isinstance(message, Ended) and receipt.error is None:
            self._begun.pop(message.run_id, None)
        self._on_receipt(message, receipt.mlflow_id, receipt.error)

    # --- the process -----------------------------------------------------------------------------

    def _restart(self) -> bool:
        """After the end of the process start another one; False if there is to be none."""
        code = self._process.wait()
        is_put_off = self._pause_s > 0 and not self._closing.wait(self._pause_s)
        with self._sending:
            self._connection.close()
            if self._finished.is_set():
                return False
            if not is_put_off and not self._goes_on(code):
                return False
            try:
                self._process, self._connection = writing_process.launch()
                self._connection.send([self._store])
            except OSError as error:
                self._give_up(f"the process that writes to MLflow cannot be started: {error}")
                return False
            # The new process knows no trial, so it first gets the starts of those that run.
            to_start = {m.run_id for m in self._undelivered.values() if isinstance(m, Started)}
            starts = [start for run_id, start in self._begun.items() if run_id not in to_start]
            repeated = {next(self._serials): start for start in starts}
            self._repeated.update(repeated)
            self._undelivered = {**repeated, **self._undelivered}
            self._send(list(self._undelivered.items()))
        return True

    def _goes_on(self, code: int) -> bool:
        """Whether to start another process after one that has died."""
        self._n_deaths += 1
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        _log.info("the process that writes to MLflow has died (%s); another goes on", how)
        return self._n_deaths < _MOST_DEATHS or self._skip(how)

    def _skip(self, how: str) -> bool:
        """Skip the message with which the process dies each time; False if there is none."""
        reason = f"the process that writes to MLflow died {self._n_deaths} times in a row ({how})"
        new = [serial for serial in self._undelivered if serial not in self._repeated]
        if not new or not self._answered.is_set():
            self._give_up(reason)
            return False
        self._on_receipt(self._undelivered.pop(new[0]), None, reason)
        self._n_deaths = 0
        self._see_whether_finished()
        return not self._finished.is_set()

    def _put_off(self, message: str) -> None:
        """Try again later, with another process; at the sweep's end no more."""
        if self._closing.is_set():
            self._end_late(message)
        else:
            if not self._pause_s:
                _log.warning("%s; trials go on, and it is tried again", message)
            self._pause_s = min(2 * self._pause_s or _FIRST_PAUSE_S, _LONGEST_PAUSE_S)

    def _give_up(self, message: str) -> None:
        """Deliver nothing more; before the store is open, this refuses it."""
        if self._answered.is_set():
            self._end_late(message)
        else:
            self._refuse(message)

    def _end_late(self, message: str) -> None:
        self._finished.set()
        self._answered.set()
        _log.warning("%s; what MLflow lacks is written by the next sweep", message)

    def _refuse(self, message: str) -> None:
        self._finished.set()
        self.refusal = message
        self._answered.set()
        self._on_refusal()

    def _end_process(self, *, is_orderly: bool) -> None:
        is_held = self._sending.acquire(timeout=_SENDING_S)
        try:
            self._finished.set()
            if is_orderly and is_held:
                with suppress(OSError):  # it has ended by itself
                    self._connection.send([None])
            else:
                self._process.kill()
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        finally:
            if is_held:
                self._sending.release()


def _joined(messages: Iterable[Message]) -> list[Message]:
    """The messages with the points of a trial in one, where no other message is between them."""
    joined: list[Message] = []
    points_of: dict[str, list[TimedPoint]] = {}
    for message in messages:
        if not isinstance(message, Reported):
            points_of.pop(message.run_id, None)
            joined.append(message)
        elif message.run_id in points_of:
            points_of[message.run_id] += message.points
        else:
            points = points_of[message.run_id] = list(message.points)
            joined.append(Reported(run_id=message.run_id, points=points))
    return joined
