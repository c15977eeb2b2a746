"""Repeat calls to a database or a disk that is temporarily unavailable, within a time limit.

A database that restarts or a disk that is full for some seconds must not end a sweep.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from typing import TypeVar

from ..errors import first_line

_log = logging.getLogger(__name__)

T = TypeVar("T")

#: Wait `_FIRST_S` seconds before the second attempt. The wait doubles before each further attempt,
#: up to `_LONGEST_S` seconds.
_FIRST_S, _LONGEST_S = 0.1, 2.0
#: A disk or server that was unavailable several times counts as available again after this many
#: seconds without an error (chosen, not measured).
_SETTLED_S = 30.0
#: Error numbers of faults of the machine: a full, read-only, unmounted or failing disk; a network
#: disk that is not connected; a folder that was removed or whose mode was changed; and lack of
#: descriptors, processes or memory.
_OF_THE_MACHINE = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EIO,
        errno.ESTALE,
        errno.ENODEV,
        errno.ENXIO,
        errno.ENOTCONN,  # A FUSE mount, such as Colab's Drive, whose process has ended.
        errno.ECONNABORTED,
        errno.ESHUTDOWN,
        errno.ETIMEDOUT,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.EACCES,
        errno.EPERM,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EEXIST,
        errno.EMFILE,
        errno.ENFILE,
        errno.EAGAIN,
        errno.ENOMEM,
    }
)


class Patience:
    """Repeats calls that fail temporarily. Safe to use from several threads.

    Args:
        subject: Name of what may be unavailable, for messages, such as the URL of a database.
        may_pass: Returns whether an error is temporary, so that the call may succeed later.

    Attributes:
        limit_s: Function that returns for how many seconds a failing call is repeated. At first, it
            returns 0, so that calls are not repeated.
        check: Called before each call. Raises an error if the call must not be made any more.
        has_succeeded: Whether any call has succeeded so far.
    """

    def __init__(self, subject: str, *, may_pass: Callable[[Exception], bool]) -> None:
        self._subject = subject
        self._may_pass = may_pass
        self.limit_s: Callable[[], float] = lambda: 0.0
        self.check: Callable[[], object] = lambda: None
        self._since_s: float | None = None
        self._is_away = self._is_unsteady = False
        self._there_since_s: float | None = None  # Time of the first success after the last error.
        self.has_succeeded = False

    def insist(self, call: Callable[[], T], again: Callable[[], T] | None = None) -> T:
        """Repeat a call until it succeeds, and return its result.

        Args:
            call: Function to call.
            again: Function to call from the second attempt on. It is needed if `call` must not be
                repeated: the database may have made a change although its answer was lost. None to
                repeat `call`.

        Raises:
            Exception: The error of the call, if it is not temporary or if the limit is over.
        """
        pause_s = _FIRST_S
        while True:
            try:
                self.check()
                result = call()
            except Exception as error:
                if not self._may_pass(error) or not self._is_worth_waiting(error):
                    raise
            else:
                self.note_success()
                return result
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_S)
            call = again or call

    def attempt(self, call: Callable[[], object]) -> None:
        """Call a function once.

        Log a temporary error instead of raising it, because the caller calls again later.

        Raises:
            Exception: The error of the call, if it is not temporary or if `limit_s` returns 0.
        """
        try:
            self.check()
            call()
        except Exception as error:
            if not self._may_pass(error) or self.limit_s() == 0:
                raise
            self._is_gone(error, "the sweep tries again")
        else:
            self.note_success()

    def _is_worth_waiting(self, error: Exception) -> bool:
        limit_s = self.limit_s()
        if limit_s == 0:
            return False
        self._is_gone(error, f"the sweep tries again for {limit_s:g} s")
        since_s = self._since_s = self._since_s or time.monotonic()
        return time.monotonic() - since_s < limit_s

    def _is_gone(self, error: Exception, what_next: str) -> None:
        there_since_s, self._there_since_s = self._there_since_s, None
        if not self._is_away:
            self._is_away = True
            self._is_unsteady = not _has_settled(there_since_s)
            message = first_line(error)
            place = "" if message.startswith(self._subject) else f"{self._subject}: "
            _log.warning("%s%s; trials continue, and %s", place, message, what_next)

    def note_success(self) -> None:
        """Record that the database or disk is available.

        `insist` and `attempt` do so after a call succeeds. A long call may do so before it returns.
        """
        self.has_succeeded = True
        if not self._is_away:
            return
        self._since_s = None
        self._there_since_s = self._there_since_s or time.monotonic()
        if not self._is_unsteady or _has_settled(self._there_since_s):
            self._is_away = False
            _log.warning("%s can be used again", self._subject)


def _has_settled(since_s: float | None) -> bool:
    return since_s is None or time.monotonic() - since_s >= _SETTLED_S


def is_of_the_machine(error: Exception) -> bool:
    """Return whether an error may be a temporary fault of this machine, such as a full disk."""
    # If no more threads can start, Python raises an error with a text, but without `errno`.
    lacks_threads = isinstance(error, RuntimeError) and "start new thread" in str(error)
    if isinstance(error, MemoryError) or lacks_threads:
        return True
    # Check the number and not the class of the error, because ZMQError is not an OSError.
    return getattr(error, "errno", None) in _OF_THE_MACHINE
