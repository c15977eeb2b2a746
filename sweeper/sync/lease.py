"""Hold the lease of a remote copy: take it, renew it, and notice when another process takes it."""

from __future__ import annotations

import logging
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from ..errors import StoppedError, SyncError
from ..object_storage.store import Store, StoreError
from .manifest import LocalMarker, Owner

_log = logging.getLogger(__name__)

_NAME = "owner.json"
#: A lease expires after this many missed renewals (chosen, not measured).
_MISSED = 3
#: While another process holds the lease, check it after each wait of this many seconds.
_CHECK_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Holder:
    """The process that holds a lease.

    Attributes:
        owner: Content of the lease.
        age_s: Seconds since the process took or renewed the lease.
    """

    owner: Owner
    age_s: float

    @property
    def left_s(self) -> float:
        """Return how many seconds are left until the lease expires."""
        return _MISSED * self.owner.every_s - self.age_s


class RemoteLease:
    """An object in the store that names the process which writes the copy.

    A thread renews the lease. If two processes take the lease at the same time, the later one holds
    it. The other process notices this at its next `check`, which it makes before it writes a
    manifest, removes an object or renews its lease.

    Args:
        store: Store with the copy.
        every_s: Seconds between two renewals.
        folder: Hash of the path of the study's folder, from `guard.mark_of`.
    """

    def __init__(self, store: Store, *, every_s: float, folder: str) -> None:
        self._store = store
        self._every_s, self._folder = every_s, folder
        self._mine: Owner | None = None
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def wait_until_free(
        self, mark: LocalMarker | None, *, is_stopped: Callable[[], bool] = lambda: False
    ) -> None:
        """Wait until no other process holds the lease.

        The lease of a killed process expires. If the holder is alive, this method notices that the
        lease is renewed, and raises an error.

        Args:
            mark: Marker in the study's folder. None if there is no marker. This process has locked
                the folder. So a lease that another process of this machine took for the same
                folder does not count: that process must have ended.
            is_stopped: Returns whether the sweep was stopped, which ends the wait.

        Raises:
            SyncError: Another process writes the copy, and is or may be alive.
            StoreError: The store is unavailable.
        """
        first = holder = self._holder(mark)
        if first is None or holder is None:
            return
        end_s = time.monotonic() + first.left_s + _CHECK_S
        _log.warning(
            "remote copy: %s took or renewed its lease of this copy %.0f s ago; waiting up to "
            "%.0f s for another renewal, which would show that this process is alive",
            first.owner.words,
            first.age_s,
            math.ceil(first.left_s),
        )
        while holder is not None:
            if is_stopped():
                raise StoppedError("sync: the sweep was stopped while it waited for the copy")
            if holder.owner != first.owner or time.monotonic() > end_s:
                raise SyncError(
                    f"sync: {self._store.url}: {holder.owner.words} sweeps this study, and renewed "
                    f"its lease {holder.age_s:.0f} s ago; stop it there, or choose another name "
                    "with --study and other outputs with -o"
                )
            time.sleep(min(_CHECK_S, holder.left_s))
            holder = self._holder(mark)

    def _holder(self, mark: LocalMarker | None) -> _Holder | None:
        """Return the other process that holds the lease. None if the lease is free."""
        owner = self._look()
        if owner is None or owner.has_ended:
            return None
        is_of_folder = mark is not None and mark.copy_id == owner.copy_id
        if is_of_folder and (owner.host, owner.folder) == (socket.gethostname(), self._folder):
            return None
        holder = _Holder(owner=owner, age_s=self._store.age_s(_NAME))
        return holder if holder.left_s > 0 else None

    def take(self, copy_id: str) -> None:
        """Write the lease, and start its renewal. Call `wait_until_free` first.

        Args:
            copy_id: Id of the folder that is copied.

        Raises:
            StoreError: The store is unavailable.
        """
        self._mine = Owner(
            host=socket.gethostname(),
            pid=os.getpid(),
            token=secrets.token_hex(8),
            copy_id=copy_id,
            folder=self._folder,
            every_s=self._every_s,
        )
        self._store.put(_NAME, self._mine.text.encode())
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Check that no other process has taken the lease.

        Raises:
            SyncError: Another process holds the lease. The message names that process.
            StoreError: The store is unavailable.
        """
        owner = self._look()
        if owner is not None and self._mine is not None and owner.token != self._mine.token:
            raise SyncError(
                f"sync: {self._store.url} was taken over by {owner.words}, which now sweeps the "
                "study; resume the study there, or stop that sweep first"
            )

    def release(self) -> None:
        """End the lease, so that other processes need not wait until it expires."""
        self._closing.set()
        if self._mine is None or self._thread is None:
            return
        self._thread.join()  # A renewal after the release would take the lease again.
        with suppress(SyncError, StoreError):  # The lease was lost, or will expire by itself.
            self._replace(replace(self._mine, has_ended=True))

    def _renew(self) -> None:
        while not self._closing.wait(self._every_s):
            try:
                assert self._mine is not None
                self._mine = replace(self._mine, n_renewals=self._mine.n_renewals + 1)
                self._replace(self._mine)
            except SyncError:
                return  # The next copy checks the lease, and reports its loss.
            except StoreError:
                continue

    def _replace(self, owner: Owner) -> None:
        """Write the lease again if this process still holds it.

        Args:
            owner: The new content of the lease.

        Raises:
            SyncError: Another process holds the lease.
            StoreError: The store is unavailable.
        """
        self.check()
        self._store.put(_NAME, owner.text.encode())

    def _look(self) -> Owner | None:
        data = self._store.get(_NAME)
        try:
            return None if data is None else Owner.read(data)
        except ValueError:
            return None
