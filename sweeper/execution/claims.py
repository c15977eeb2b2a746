"""What the sweeps of one user have claimed of this machine's GPUs: files that all of them read."""

from __future__ import annotations

import json
import logging
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a trial may take of a GPU.

    Attributes:
        claim_bytes: of the GPU's memory, taken or not.
        taken_bytes: what it is seen to take now; None where that is not known.
        is_alone: whether no other trial may come onto the GPU.
    """

    claim_bytes: int
    taken_bytes: int | None = None
    is_alone: bool = False

    @property
    def used_bytes(self) -> int:
        """What it takes now: all that it claims, where nobody can see it."""
        return self.claim_bytes if self.taken_bytes is None else self.taken_bytes


class Claims:
    """The claims of this sweep, and those of the user's other sweeps that are alive.

    Each sweep has one file for each GPU, and holds a lock for as long as it lives: the system
    drops the lock of a process that dies, and its claims count no more. No call waits for a lock.

    Args:
        folder: the same for all sweeps of the user; only the user may enter it.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or Path("/tmp") / f"notebook-hpo-gpus-{os.geteuid()}"
        self._token = secrets.token_hex(8)
        self._alive: FileLock | None = None
        self._is_off = False
        self._written: dict[str, Sequence[Claim]] = {}

    @contextmanager
    def gate(self, gpu: str) -> Iterator[bool]:
        """While the block runs, no other sweep claims a part of the GPU.

        Yields:
            whether it is so; False where another sweep is just claiming a part.
        """
        if not self._is_on():
            yield True
            return
        lock = FileLock(self._folder / f"{_file_name(gpu)}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            yield False
            return
        except OSError as error:
            self._switch_off(error)
            yield True
            return
        try:
            yield True
        finally:
            lock.release()

    def of_others(self, gpu: str) -> list[Claim]:
        """The claims of other sweeps on a GPU."""
        found: list[Claim] = []
        for path in self._folder.glob(f"{_file_name(gpu)}.*.json") if self._is_on() else ():
            token = path.name.split(".")[-2]
            if token == self._token:
                continue
            if not self._lives(token):
                path.unlink(missing_ok=True)
                continue
            with suppress(OSError, ValueError, TypeError):  # it was just removed, or is another's
                found += [Claim(**one) for one in json.loads(path.read_text())]
        return found

    def write(self, gpu: str, claims: Sequence[Claim]) -> None:
        """State all claims of this sweep on a GPU."""
        if self._written.get(gpu, ()) == claims or not self._is_on():
            return
        path = self._folder / f"{_file_name(gpu)}.{self._token}.json"
        try:
            beside = path.with_suffix(".part")
            beside.write_text(json.dumps([asdict(claim) for claim in claims]))
            beside.replace(path)
            self._written[gpu] = claims
        except OSError as error:
            self._switch_off(error)

    def close(self) -> None:
        """Withdraw all claims of this sweep."""
        for gpu in self._written:
            (self._folder / f"{_file_name(gpu)}.{self._token}.json").unlink(missing_ok=True)
        if self._alive is not None:
            self._alive.release()
            (self._folder / f"{self._token}.alive").unlink(missing_ok=True)
        self._written, self._alive = {}, None

    def _is_on(self) -> bool:
        """Whether the claims can be used; the first call makes the folder and takes the lock."""
        if self._alive is None and not self._is_off:
            try:
                with suppress(FileExistsError):
                    self._folder.mkdir(mode=0o700)
                found = self._folder.lstat()  # a link is not followed
                is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
                if not is_ours or stat.S_IMODE(found.st_mode) & 0o077:
                    raise PermissionError(f"{self._folder} is no folder that is yours alone")
                lock = FileLock(self._folder / f"{self._token}.alive", thread_local=False)
                lock.acquire(timeout=0)
                self._alive = lock
            except (OSError, Timeout) as error:
                self._switch_off(error)
        return not self._is_off

    def _switch_off(self, error: Exception) -> None:
        self._is_off = True
        _log.warning("other sweeps of yours are not considered when GPUs are shared: %s", error)

    def _lives(self, token: str) -> bool:
        lock = FileLock(self._folder / f"{token}.alive", thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        except OSError:
            return False
        lock.release()
        (self._folder / f"{token}.alive").unlink(missing_ok=True)
        return False


def _file_name(gpu: str) -> str:
    return gpu.replace("/", "_").replace(".", "_")
