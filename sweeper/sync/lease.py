"""Whose copy it is: one process writes it, says so while it lives, and sees when it has lost it."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from dataclasses import replace

from ..errors import SyncError
from ..object_store import Store, StoreError
from .manifest import LocalMarker, Owner

_NAME = "owner.json"
#: A claim that was not renewed for so many of its intervals is given up.
_MISSED = 3


class RemoteLease:
    """A process's word that the copy is its own, renewed on a thread of its own."""

    def __init__(self, store: Store, *, study: str, every_s: float) -> None:
        self._store = store
        self._name = f"{study}/{_NAME}"
        self._shown = f"{store.display_url}/{study}"
        self._every_s = every_s
        self._mine: Owner | None = None
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def refuse_if_alive(self, mark: LocalMarker | None) -> None:
        """Refuse a copy that another process writes now.

        Args:
            mark: of the folder that this process holds: what wrote the copy from it is dead.

        Raises:
            SyncError: who writes it, and how long to wait if that one is dead.
            StoreError: the store is away.
        """
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
                f"sync: {self._shown}: {owner.words} sweeps this study and said so {age_s:.0f} s "
                f"ago; if it is dead, wait {left_s:.0f} s and try again, else stop it there, or "
                "choose another name with --study"
            )

    def take(self, copy_id: str) -> None:
        """The copy is this process's from now on.

        Raises:
            StoreError: the store is away.
        """
        mine = Owner(
            host=socket.gethostname(),
            pid=os.getpid(),
            token=secrets.token_hex(8),
            copy_id=copy_id,
            every_s=self._every_s,
            at_s=time.time(),
        )
        self._put(mine)
        self._mine = mine
        self._thread = threading.Thread(target=self._renew, name="claim", daemon=True)
        self._thread.start()

    @property
    def is_taken(self) -> bool:
        """Whether this process has said so."""
        return self._mine is not None

    def check(self) -> None:
        """Make sure that nobody has taken it over.

        Raises:
            SyncError: who has it now.
            StoreError: the store is away.
        """
        owner = self._look()
        if owner is not None and self._mine is not None and owner.token != self._mine.token:
            raise SyncError(f"{self._shown} was taken over by {owner.words}")

    def release(self) -> None:
        """Others may have it at once."""
        self._closing.set()
        if self._mine is None or self._thread is None:
            return
        self._thread.join()  # what it is just writing must not come after this
        try:
            self.check()
            self._put(replace(self._mine, has_ended=True, at_s=time.time()))
        except (SyncError, StoreError):
            pass  # then they wait until it is old, or have it already

    def _renew(self) -> None:
        while not self._closing.wait(self._every_s):
            try:
                self.check()
                assert self._mine is not None
                if not self._closing.is_set():
                    self._put(replace(self._mine, at_s=time.time()))
            except SyncError:
                return  # what is copied next finds out, and says so
            except StoreError:
                continue

    def _look(self) -> Owner | None:
        data = self._store.get(self._name)
        try:
            return None if data is None else Owner.read(data)
        except ValueError:
            return None

    def _put(self, owner: Owner) -> None:
        self._store.put(self._name, owner.text.encode())
