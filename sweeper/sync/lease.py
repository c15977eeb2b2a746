"""The lease of a remote copy: one process holds it, renews it, and notices when it is lost."""

from __future__ import annotations

import math
import os
import secrets
import socket
import threading
from dataclasses import replace

from ..errors import SyncError
from .manifest import LocalMarker, Owner
from .store import ConflictError, Store, StoreError

_NAME = "owner.json"
#: A lease that was not renewed for so many of its intervals has expired.
_MISSED = 3


class RemoteLease:
    """An object in the store that names the process which writes the copy.

    A thread renews it. Where the store has conditional writes, of two processes that take the lease
    at the same time exactly one succeeds, and a process that was suspended cannot renew a lease
    that another process holds by now.
    """

    def __init__(self, store: Store, *, study: str, every_s: float) -> None:
        self._store = store
        self._name = f"{study}/{_NAME}"
        self._display_url = f"{store.display_url}/{study}"
        self._every_s = every_s
        #: The version of the object that `refuse_if_alive` has found free.
        self._version: str | None = None
        self._mine: Owner | None = None
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def refuse_if_alive(self, mark: LocalMarker | None) -> None:
        """Refuse a copy that another live process writes.

        Args:
            mark: the marker in the folder that this process has locked. A process of this machine
                that wrote the copy from the same folder must have ended.

        Raises:
            SyncError: another process writes the copy; the text has its name, and how long to
                wait if it is dead.
            StoreError: the store is away.
        """
        self._version = self._store.version(self._name)
        owner = self._look()
        if owner is None or owner.has_ended:
            return
        is_ours = mark is not None and mark.copy_id == owner.copy_id
        if is_ours and owner.host == socket.gethostname():
            return
        age_s = self._store.age_s(self._name)
        left_s = _MISSED * owner.every_s - age_s
        if left_s > 0:
            raise SyncError(
                f"sync: {self._display_url}: {owner.words} sweeps this study and gave a sign of "
                f"life {age_s:.0f} s ago; if it is dead, wait {math.ceil(left_s)} s and try again, "
                "else stop it there, or choose another name with --study"
            )

    def take(self, copy_id: str) -> None:
        """Take the lease that `refuse_if_alive` has found free.

        Raises:
            SyncError: another process has taken it meanwhile.
            StoreError: the store is away.
        """
        mine = Owner(
            host=socket.gethostname(),
            pid=os.getpid(),
            token=secrets.token_hex(8),
            copy_id=copy_id,
            every_s=self._every_s,
        )
        try:
            self._store.put_if_unchanged(self._name, mine.text.encode(), self._version)
        except ConflictError as error:
            owner = self._look()
            if owner is None or owner.token != mine.token:  # else only the answer was lost
                whose = "another process" if owner is None else owner.words
                raise SyncError(
                    f"sync: {self._display_url}: {whose} has begun to sweep this study at the same "
                    "time; wait for it or stop it there, or choose another name with --study"
                ) from error
        self._mine = mine
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Make sure that no other process has taken the lease over.

        Raises:
            SyncError: another process has it; the text has its name.
            StoreError: the store is away.
        """
        owner = self._look()
        if owner is not None and self._mine is not None and owner.token != self._mine.token:
            raise SyncError(
                f"sync: {self._display_url} was taken over by {owner.words}, which goes on with "
                "the study"
            )

    def release(self) -> None:
        """End the lease, so that other processes need not wait until it expires."""
        self._closing.set()
        if self._mine is None or self._thread is None:
            return
        self._thread.join()  # a renewal must not come after the release
        try:
            self._replace(replace(self._mine, has_ended=True))
        except (SyncError, StoreError, ConflictError):
            pass  # the lease expires by itself, or another process has it already

    def _renew(self) -> None:
        while not self._closing.wait(self._every_s):
            try:
                assert self._mine is not None
                self._replace(self._mine)
            except SyncError:
                return  # the next copy checks the lease, and reports its loss
            except (StoreError, ConflictError):
                continue

    def _replace(self, owner: Owner) -> None:
        """Write the lease again if this process still has it.

        Raises:
            SyncError: another process has it.
            ConflictError: another process has taken it just now.
            StoreError: the store is away.
        """
        version = self._store.version(self._name)
        self.check()
        self._store.put_if_unchanged(self._name, owner.text.encode(), version)

    def _look(self) -> Owner | None:
        data = self._store.get(self._name)
        try:
            return None if data is None else Owner.read(data)
        except ValueError:
            return None
