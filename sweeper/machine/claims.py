"""Memory reservations of one user's sweeps on the GPUs of this machine.

All sweeps of the user read each other's reservations from files. A `Claim` is the part of a GPU's
memory that is reserved for one trial.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from ..files import private_folder, write_atomically

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The memory reservation of a trial on a GPU.

    Attributes:
        claim_bytes: Memory of the GPU that is reserved for the trial, whether it is used or not.
        used_bytes: Memory of the GPU that the trial uses now. Equal to `claim_bytes` if it cannot
            be measured.
        pid: Process id of the sweep that has made the reservation. None if it is this sweep.
    """

    claim_bytes: int
    used_bytes: int
    pid: int | None = None


class Claims:
    """Shares the memory reservations of this sweep with the user's other running sweeps.

    Each sweep writes one file, and holds a lock while it runs. When its process dies, the system
    releases the lock, and the reservations in the file no longer count. No call waits for a lock.

    Args:
        folder: Folder that all sweeps of the user share, and that only the user can enter.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or Path("/tmp") / f"notebook-hpo-gpus-{os.geteuid()}"
        self._token = secrets.token_hex(8)
        self._alive: FileLock | None = None
        self._is_off = False
        self._written: Mapping[str, Sequence[Claim]] = {}

    @contextmanager
    def gate(self) -> Iterator[bool]:
        """Keep other sweeps from reserving memory of a GPU while the block runs.

        Yields:
            Whether this sweep may reserve memory now. False if another sweep is doing so at this
            moment. True if reservations cannot be shared with other sweeps at all.
        """
        is_on = self._is_on()
        lock = FileLock(self._folder / "gate.lock")
        is_mine = is_on and self._is_taken(lock)
        try:
            yield is_mine or self._is_off
        finally:
            lock.release()

    def of_others(self, gpu: str) -> list[Claim]:
        """Return the memory reservations of the user's other sweeps on a GPU.

        The files of sweeps that have died are removed.

        Args:
            gpu: UUID of the GPU.
        """
        found: list[Claim] = []
        if not self._is_on():
            return found
        for path in self._folder.glob("*.json"):
            if path.stem == self._token:
                continue
            alive = FileLock(path.with_suffix(".alive"))
            if self._is_taken(alive):  # The lock was free, so the sweep of this file has died.
                path.unlink(missing_ok=True)
                Path(alive.lock_file).unlink(missing_ok=True)
                alive.release()
                continue
            # The other sweep may have ended and removed its file meanwhile.
            with suppress(OSError, LookupError, ValueError, TypeError):
                stated = json.loads(path.read_text())
                found += [
                    Claim(claim_bytes=claim_bytes, used_bytes=used_bytes, pid=stated["pid"])
                    for claim_bytes, used_bytes in stated["claims"].get(gpu, ())
                ]
        return found

    def write(self, claims: Mapping[str, Sequence[Claim]]) -> None:
        """Publish all memory reservations of this sweep to the user's other sweeps.

        Args:
            claims: Reservations by UUID of the GPU.
        """
        if not self._is_on():
            return
        path = self._folder / f"{self._token}.json"
        # Touch this sweep's files, because the system removes files from /tmp that nobody has
        # touched for days.
        for file in (path, path.with_suffix(".alive")):
            with suppress(OSError):
                os.utime(file)
        if self._written == claims:
            return
        try:
            stated = {
                gpu: [(claim.claim_bytes, claim.used_bytes) for claim in of_gpu]
                for gpu, of_gpu in claims.items()
            }
            write_atomically(path, json.dumps({"pid": os.getpid(), "claims": stated}))
            self._written = claims
        except OSError as error:
            self._switch_off(error)

    def close(self) -> None:
        """Withdraw all memory reservations of this sweep."""
        if self._alive is not None:
            (self._folder / f"{self._token}.json").unlink(missing_ok=True)
            Path(self._alive.lock_file).unlink(missing_ok=True)
            self._alive.release()
        self._written, self._alive = {}, None

    def _is_on(self) -> bool:
        """Return whether reservations can be shared with other sweeps.

        The first call makes the folder and acquires this sweep's lock.
        """
        if self._alive is None and not self._is_off:
            try:
                self._folder = private_folder(self._folder)
                self._alive = FileLock(self._folder / f"{self._token}.alive", thread_local=False)
                self._alive.acquire(timeout=0)
            except (OSError, Timeout) as error:
                self._switch_off(error)
        return not self._is_off

    def _is_taken(self, lock: FileLock) -> bool:
        """Acquire a lock unless another process holds it. Return whether this sweep now holds it.

        If the lock's file cannot be used, stop sharing reservations, and return False.
        """
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return False
        except OSError as error:
            self._switch_off(error)
            return False
        return True

    def _switch_off(self, error: Exception) -> None:
        self._is_off = True
        _log.warning(
            "GPU memory that your other sweeps on this machine have reserved is ignored: %s", error
        )
