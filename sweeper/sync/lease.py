"""The lease of a remote copy. One process holds it, renews it, and notices when it is lost."""

from __future__ import annotations

import math
import os
import secrets
import socket
import threading
from contextlib import suppress
from dataclasses import replace

from ..errors import SyncError
from .manifest import LocalMarker, Owner
from .store import Store, StoreError

_NAME = "owner.json"
#: Number of missed renewals after which a lease has expired (chosen).
_MISSED = 3


class RemoteLease:
    """An object in the store that names the process which writes the copy.

    A thread renews it. If two processes take the lease at the same time, the later one holds it.
    The other one notices this at its next `check`, which it makes before it writes anything to the
    copy.

    Args:
        store: Store with the copy.
        every_s: Seconds between two renewals.
    """

    def __init__(self, store: Store, *, every_s: float) -> None:
        self._store = store
        self._every_s = every_s
        self._mine: Owner | None = None
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def refuse_if_alive(self, mark: LocalMarker | None) -> None:
        """Check that no other live process writes the copy.

        Args:
            mark: Marker in the study's folder, which this process has locked. So a process of this
                machine that wrote the copy from this folder must have ended. None if there is no
                marker.

        Raises:
            SyncError: Another process writes the copy. The message names it, and how long to wait
                if it is dead.
            StoreError: The store is unavailable.
        """
        owner = self._look()
        if owner is None or owner.has_ended:
            return
        is_ours = mark is not None and mark.copy_id == owner.copy_id
        if is_ours and owner.host == socket.gethostname():
            return
        age_s = self._store.age_s(_NAME)
        left_s = _MISSED * owner.every_s - age_s
        if left_s > 0:
            raise SyncError(
                f"sync: {self._store.url}: {owner.words} sweeps this study and gave a sign of "
                f"life {age_s:.0f} s ago; if it is dead, wait {math.ceil(left_s)} s and try again, "
                "else stop it there, or choose another name with --study and "
                "other outputs with -o"
            )

    def take(self, copy_id: str) -> None:
        """Write the lease, and start its renewal. Call `refuse_if_alive` first.

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
            every_s=self._every_s,
        )
        self._store.put(_NAME, self._mine.text.encode())
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Check that no other process has taken the lease.

        Raises:
            SyncError: Another process holds it. The message names this process.
            StoreError: The store is unavailable.
        """
        owner = self._look()
        if owner is not None and self._mine is not None and owner.token != self._mine.token:
            raise SyncError(
                f"sync: {self._store.url} was taken over by {owner.words}, which goes on with "
                "the study"
            )

    def release(self) -> None:
        """End the lease, so that other processes need not wait until it expires."""
        self._closing.set()
        if self._mine is None or self._thread is None:
            return
        self._thread.join()  # a renewal must not follow the release
        with suppress(SyncError, StoreError):  # the lease is lost, or will expire by itself
            self._replace(replace(self._mine, has_ended=True))

    def _renew(self) -> None:
        while not self._closing.wait(self._every_s):
            try:
                assert self._mine is not None
                self._replace(self._mine)
            except SyncError:
                return  # the next copy checks the lease, and reports its loss
            except StoreError:
                continue

    def _replace(self, owner: Owner) -> None:
        """Write the lease again if this process still holds it.

        Raises:
            SyncError: Another process holds it.
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
