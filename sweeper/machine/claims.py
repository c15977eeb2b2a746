"""What the sweeps of one user have claimed of this machine's GPUs: files that all of them read."""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from ..files import private_folder, write_atomically

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a trial may take of a GPU.

    Attributes:
        claim_bytes: of the GPU's memory, taken or not.
        used_bytes: what it takes now; all that it claims, where nobody can see it.
    """

    claim_bytes: int
    used_bytes: int


class Claims:
    """The claims of this sweep, and those of the user's other sweeps that are alive.

    Each sweep has one file, and holds a lock for as long as it lives: the system drops the lock of
    a process that dies, and its claims count no more. No call waits for a lock.

    Args:
        folder: the same for all sweeps of the user; only the user may enter it.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or Path("/tmp") / f"notebook-hpo-gpus-{os.geteuid()}"
        self._token = secrets.token_hex(8)
        self._alive: FileLock | None = None
        self._is_off = False
        self._written: Mapping[str, Sequence[Claim]] = {}

    @contextmanager
    def gate(self) -> Iterator[bool]:
        """While the block runs, no other sweep claims a part of a GPU.

        Yields:
            whether it is so; False where another sweep is just claiming a part.
        """
        is_on = self._is_on()
        lock = FileLock(self._folder / "gate.lock")
        is_mine = is_on and self._is_taken(lock)
        try:
            yield is_mine or self._is_off
        finally:
            lock.release()

    def of_others(self, gpu: str) -> list[Claim]:
        """The claims of other sweeps on a GPU."""
        found: list[Claim] = []
        for path in self._folder.glob("*.json") if self._is_on() else ():
            if path.stem == self._token:
                continue
            alive = FileLock(path.with_suffix(".alive"))
            if self._is_taken(alive):  # its sweep is dead
                path.unlink(missing_ok=True)
                Path(alive.lock_file).unlink(missing_ok=True)
                alive.release()
                continue
            with suppress(OSError, ValueError, TypeError):  # it was just removed
                claims = json.loads(path.read_text()).get(gpu, ())
                found += [Claim(claim_bytes=claim, used_bytes=used) for claim, used in claims]
        return found

    def write(self, claims: Mapping[str, Sequence[Claim]]) -> None:
        """State all claims of this sweep, by their GPUs."""
        if self._written == claims or not self._is_on():
            return
        path = self._folder / f"{self._token}.json"
        try:
            text = json.dumps({gpu: [*map(astuple, of_gpu)] for gpu, of_gpu in claims.items()})
            write_atomically(path, text)
            self._written = claims
        except OSError as error:
            self._switch_off(error)

    def close(self) -> None:
        """Withdraw all claims of this sweep."""
        if self._alive is not None:
            (self._folder / f"{self._token}.json").unlink(missing_ok=True)
            Path(self._alive.lock_file).unlink(missing_ok=True)
            self._alive.release()
        self._written, self._alive = {}, None

    def _is_on(self) -> bool:
        """Whether the claims can be used; the first call makes the folder and takes the lock."""
        if self._alive is None and not self._is_off:
            try:
                self._folder = private_folder(self._folder)
                self._alive = FileLock(self._folder / f"{self._token}.alive", thread_local=False)
                self._alive.acquire(timeout=0)
            except (OSError, Timeout) as error:
                self._switch_off(error)
        return not self._is_off

    def _is_taken(self, lock: FileLock) -> bool:
        """Take a lock, unless another process has it."""
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
        _log.warning("other sweeps of yours are not considered when GPUs are shared: %s", error)
