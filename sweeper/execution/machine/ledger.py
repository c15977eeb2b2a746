"""Who has claimed how much of this machine's GPUs, and which cores: all sweeps of all users.

A claim is a file that its sweep holds under a lock. The system drops the lock when the process
dies, however it does, so a claim counts only as long as somebody holds it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

_log = logging.getLogger(__name__)

#: The same for all users of the machine, whatever their folder for temporary files.
_FOLDER = Path("/tmp/notebook-hpo-gpus")
_FOLDER_MODE, _FILE_MODE = 0o1777, 0o666
_ENDING = ".claim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a trial may take of a device: of a GPU a part, of a core all.

    Attributes:
        device: the GPU's UUID, or `core` with its number.
        memory_bytes: how much of the GPU's memory it may take, used or not.
        is_alone: whether no other trial may come onto the GPU.
        session: the process id of its kernel, which leads the session of all its processes; 0
            before there is one.
        waits_since_s: of a trial that waits for the device, on the machine's monotonic clock; it
            takes nothing yet. None for one that has a share.
    """

    device: str
    memory_bytes: int = 0
    is_alone: bool = False
    session: int = 0
    waits_since_s: float | None = None


class StoppedWaiting(Exception):
    """A trial was stopped while it waited for its share of the machine."""


class HeldClaim:
    """A claim of this process.

    Attributes:
        claim: what it says now.
    """

    def __init__(self, path: Path, descriptor: int, claim: Claim) -> None:
        self._path, self._descriptor = path, descriptor
        self.claim = claim
        self._write()

    def change(self, claim: Claim) -> None:
        """Claim something else from now on."""
        self.claim = claim
        with suppress(OSError):  # a full disk; the claim is then as it was
            self._write()

    def _write(self) -> None:
        # Always of one length, and written at once: a reader finds the old text or the new one.
        os.pwrite(self._descriptor, json.dumps(asdict(self.claim)).ljust(512).encode(), 0)

    def release(self) -> None:
        """Give up the claim."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


class Turn:
    """The turn among those that wait for a device; whoever has waited longest is next.

    Without it a sweep of small trials would keep a device from ever having room for a large trial
    of another one, or from being empty for one whose need nobody knows.

    Args:
        patience_s: how long a trial waits before other sweeps let it go first.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._held: HeldClaim | None = None

    def ask(self, ledger: Ledger, device: str, *, since_s: float) -> None:
        """Have others begin no trial on a device for which one of this sweep has long waited.

        Args:
            since_s: when that trial began to wait, on the monotonic clock.
        """
        if time.monotonic() - since_s < self._patience_s:
            return
        claim = Claim(device=device, waits_since_s=since_s)
        if self._held is None:
            self._held = ledger.add(claim)
        elif self._held.claim != claim:
            self._held.change(claim)

    def end(self) -> None:
        """Let other sweeps begin trials on the device again."""
        if self._held is not None:
            self._held.release()
            self._held = None


def closed_for(since_s: float, claims: Sequence[Claim]) -> set[str]:
    """The devices for which another trial has waited longer than since `since_s`."""
    return {c.device for c in claims if c.waits_since_s is not None and c.waits_since_s < since_s}


class Ledger:
    """The claims on the GPUs and cores of this machine.

    Args:
        folder: where they are; each has to be seen by all sweeps that use the same devices.
    """

    def __init__(self, folder: Path = _FOLDER) -> None:
        self._folder = folder

    @contextmanager
    def gate(self) -> Iterator[None]:
        """While the block runs, no other process looks at the claims or adds one.

        Raises:
            OSError: the folder cannot be used.
        """
        if not self._folder.is_dir():
            self._folder.mkdir(exist_ok=True)
            self._folder.chmod(_FOLDER_MODE)
        descriptor = _opened(self._folder / "gate", os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def claims(self) -> list[Claim]:
        """All claims of living sweeps, those of this process included; call it within `gate`."""
        found = (self._read(path) for path in sorted(self._folder.glob(f"*{_ENDING}")))
        return [claim for claim in found if claim is not None]

    def add(self, claim: Claim) -> HeldClaim:
        """Claim a device, or a part of a GPU; call it within `gate`.

        Raises:
            OSError: the claim cannot be written.
        """
        path = self._folder / f"{os.getpid()}-{secrets.token_hex(4)}{_ENDING}"
        descriptor = _opened(path, os.O_EXCL | os.O_RDWR)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            return HeldClaim(path, descriptor, claim)
        except OSError:  # a full disk, on which nobody would see the claim
            path.unlink(missing_ok=True)
            os.close(descriptor)
            raise

    def _read(self, path: Path) -> Claim | None:
        """A claim that somebody holds; the file of a process that has died is removed."""
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:  # it was just released
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            return _parsed(os.read(descriptor, 512))
        else:
            with suppress(OSError):  # another user's
                path.unlink()
            return None
        finally:
            os.close(descriptor)


def _opened(path: Path, flags: int) -> int:
    """Open or create a file that all users of the machine can lock, whatever our umask."""
    descriptor = os.open(path, os.O_CREAT | flags, _FILE_MODE)
    with suppress(OSError):  # another user made it
        os.fchmod(descriptor, _FILE_MODE)
    return descriptor


def _parsed(data: bytes) -> Claim | None:
    try:
        return Claim(**json.loads(data))
    except (ValueError, TypeError):  # another version of this package wrote it
        _log.info("a claim cannot be read: %r", data[:100])
        return None
