"""The data of trials: one archive per version in a store, unpacked once on each machine.

An archive is a plain tar file of the folder, with names in order and no times or owners, so equal
data gives equal bytes; their hash names the version. It is unpacked beside the folder, compared
with its hash and renamed: half of it is never used.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from ..errors import DataError
from ..files import write_atomically
from ..settings.sections import Data
from ..settings.units import size
from ..study_folder.user_cache import cache_folder
from ..trials import display_path
from .store import Store, StoreError

_log = logging.getLogger(__name__)

#: The object with the version that was pushed last, and the folder with one archive for each.
_NEWEST, _ARCHIVES = "newest", "archives"
_RECORD = ".notebook-hpo-data.json"
_DIGITS = 16
#: An archive is fetched in blocks, so that a lost connection repeats one of them and not all.
_BLOCK_BYTES = 16_000_000
#: A fetch leaves so much of the disk free.
_RESERVE_BYTES = 100_000_000
#: A store that does not answer is asked again for so long, and for so long where the data is here.
_PATIENCE_S, _BRIEF_S = 60.0, 1.0
_LOOK_S = 0.5
_LINE_EVERY_S = 5.0

#: Called with a line for people.
OnLine = Callable[[str], None]
_T = TypeVar("_T")


class Dataset:
    """The section `data` for one notebook. It can be pickled, to fetch on another machine.

    Args:
        settings: the section.
        folder: that of the notebook, in which a relative path begins.

    Attributes:
        version: that the trials use; empty before `settle`.
    """

    def __init__(self, settings: Data, *, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self.version = ""
        self._lock: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None}

    @property
    def url(self) -> str:
        """Where the data is fetched from; it has no secrets."""
        return self._settings.source

    @property
    def facts(self) -> dict[str, str]:
        """What a trial's notebook has of it."""
        return {"version": self.version, "from": self.url, "path": self._settings.path}

    def place(self, folder: Path | None = None) -> Path:
        """Where the data lies.

        Args:
            folder: of the notebook, where that is another one than at home.
        """
        stated = Path(self._settings.path).expanduser()
        return Path(os.path.abspath((folder or self._folder) / stated))

    def settle(self, *, begun_with: str | None = None) -> None:
        """Decide which version the trials use: that of the study's first trials, else the newest.

        A machine that has that version asks the store for nothing. A store that does not answer is
        no obstacle where the folder has a version: that one is used.

        Args:
            begun_with: the version of the study's trials so far.

        Raises:
            SettingsError: a package for such URLs is missing.
            DataError: there is no such version, or no data at all.
        """
        record = _Record.of(self.place())
        wanted = self._settings.version or begun_with
        if wanted and record is not None and record.version.startswith(wanted):
            self.version = record.version
            return
        try:
            self.version = _Remote(self.url, patience_s=_BRIEF_S).version(wanted)
        except DataError as error:
            if wanted or record is None or record.url != self.url:
                raise
            _log.warning("%s; the trials use version %s, which is here", error, record.version)
            self.version = record.version

    # --- having it here ---------------------------------------------------------------------------

    def bring(
        self,
        on_line: OnLine,
        is_stopped: Callable[[], bool] = lambda: False,
        *,
        folder: Path | None = None,
        is_copy: bool = False,
    ) -> None:
        """Have the version in the folder, and keep others from replacing it until `close`.

        A folder that was fetched as another version is renamed to NAME.VERSION. One that the user
        has filled, or has pushed another version from, is refused.

        Args:
            on_line: called with each line for people, from this thread.
            is_stopped: asked before each block; once it is True the call returns soon.
            folder: that of the notebook, where it is another one than at home.
            is_copy: whether that is a copy for one sweep: a relative path then leads to the user's
                cache on this machine, which later sweeps find again.

        Raises:
            DataError: the data is not what it should be, or cannot be fetched.
        """
        place = self.place(folder)
        if is_copy and not Path(self._settings.path).expanduser().is_absolute():
            place = self._linked_cache(place)
        place = place.resolve()
        self.close()
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            self._lock = lock = os.open(
                place.with_name(f".{place.name}.notebook-hpo.lock"), os.O_RDWR | os.O_CREAT, 0o666
            )
            if not self._holds(lock, place, on_line, is_stopped):
                on_line(f"waiting for another process that fetches {display_path(place)}")
                while not is_stopped() and not self._holds(lock, place, on_line, is_stopped):
                    time.sleep(_LOOK_S)
        except _StoppedError:
            self.close()
        except DataError:
            self.close()
            raise
        except OSError as error:
            if self._lock is None and self._is_here(place):  # nobody can fetch into its place
                return
            raise DataError(
                f"data.path: {error.filename or place}: {error.strerror or error}; "
                f"{size(_free_bytes(place))} are free there; data.path may name another folder"
            ) from error

    def close(self) -> None:
        """Let other sweeps put another version in place of this one."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _holds(
        self, lock: int, place: Path, on_line: OnLine, is_stopped: Callable[[], bool]
    ) -> bool:
        """Fetch if need be and share the folder; False while another process fetches into it."""
        if _flock(lock, fcntl.LOCK_EX):
            if not self._is_here(place):
                self._fetch(place, on_line, is_stopped)
            return _flock(lock, fcntl.LOCK_SH)
        if not _flock(lock, fcntl.LOCK_SH):
            return False
        if not self._is_here(place):
            raise DataError(
                f"data.path: another sweep uses {display_path(place)} in another version than "
                f"{self.version}; wait for its end or set data.path to another folder"
            )
        return True

    def _is_here(self, place: Path) -> bool:
        """Whether the folder has the version, as far as sizes and times of its files tell.

        Raises:
            DataError: the folder is the user's, or a file has changed since it was fetched.
        """
        record = _Record.of(place)
        if record is None and (not place.exists() or not any(place.iterdir())):
            return False
        problem = None
        if record is None:
            problem = f"{display_path(place)} has files of its own"
        elif record.version != self.version:
            if record.is_fetched:
                return False
            problem = f"{display_path(place)} has version {record.version}, pushed from it"
        elif changed := [it for it, look in record.files.items() if _look(place / it) != look]:
            problem = f"{display_path(place)}/{changed[0]} has changed"
        if problem:
            raise DataError(
                f"data.path: {problem}, and the trials use version {self.version} of {self.url}. "
                "Nothing was changed. Move the folder away to have that fetched, or push this as a "
                "new version: notebook_hpo.py data push -i NOTEBOOK -p PARAMETERS"
            )
        return True

    def _fetch(self, place: Path, on_line: OnLine, is_stopped: Callable[[], bool]) -> None:
        """Unpack the version beside its place, and exchange the two folders."""
        fetched = _kept(place, self.version)  # of a study that went on with another one meanwhile
        if (kept := _Record.of(fetched)) is None or kept.version != self.version:
            remote = _Remote(self.url, is_stopped)
            n_bytes = remote.size_bytes(self.version)
            _check_room(place, n_bytes)
            fetched = place.with_name(f".{place.name}.part")
            shutil.rmtree(fetched, ignore_errors=True)  # of a fetch that was killed
            on_line(f"fetching {display_path(place)} from {remote.display_url}: {size(n_bytes)}")
            try:
                files = _unpack(
                    remote.blocks(self.version, n_bytes, on_line), fetched, self.version
                )
                os.sync()  # a record is never ahead of the files after a power cut
                record = _Record(version=self.version, url=self.url, is_fetched=True, files=files)
                record.write(fetched)
            except BaseException:
                shutil.rmtree(fetched, ignore_errors=True)
                raise
        if (before := _Record.of(place)) is not None:
            place.rename(_kept(place, before.version))
            on_line(f"version {before.version} is in {_kept(place, before.version).name} now")
        fetched.rename(place)
        on_line(f"{display_path(place)} has version {self.version}")

    def _linked_cache(self, place: Path) -> Path:
        """A folder in the user's cache for this version, to which the place in a copy leads."""
        key = hashlib.sha256(self.url.encode()).hexdigest()[:8]
        cache = cache_folder("data") / f"{key}-{self.version}"
        place.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            place.symlink_to(cache)
        return cache

    # --- putting it there -------------------------------------------------------------------------

    def push(self, on_line: OnLine) -> tuple[str, int]:
        """Put what lies in the folder into the store, as its newest version.

        Returns:
            the version, and how many bytes were sent: 0 where it was there already.

        Raises:
            SettingsError: a package for such URLs is missing.
            DataError: there is no such folder, it is empty, or it cannot be read or sent.
        """
        remote = _Remote(self.url)
        place = self.place().resolve()
        names = _names(place)
        on_line(f"reading {len(names)} files in {display_path(place)}")
        try:
            files = {name: _look(place / name) for name in names}
            with tempfile.TemporaryFile(dir=place.parent) as packed:  # a kill leaves nothing
                _pack(place, names, packed)
                version, n_bytes = _version_of(packed), packed.tell()
                if is_new := version not in remote.versions():
                    on_line(f"pushing them to {remote.display_url}: {size(n_bytes)}")
                    remote.send(version, Path(f"/dev/fd/{packed.fileno()}"))
            remote.publish(version)
            before = _Record.of(place)
            if before is None or before.version != version:
                _Record(version=version, url=self.url, is_fetched=False, files=files).write(place)
        except OSError as error:
            raise DataError(f"data.path: {place}: {error}") from error
        return version, n_bytes if is_new else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """The hidden file in the folder that says which version it has.

    Attributes:
        is_fetched: whether it was fetched; False where the user has filled the folder.
        files: of each the size in bytes and the time of its last change in ns, as they were then.
    """

    version: str
    url: str
    is_fetched: bool
    files: dict[str, list[int]]

    @classmethod
    def of(cls, place: Path) -> _Record | None:
        """That of a folder; None where it has none that can be read."""
        try:
            return cls(**json.loads((place / _RECORD).read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, place: Path) -> None:
        write_atomically(place / _RECORD, json.dumps(asdict(self)))


class _Remote:
    """The archives in the store, and which of them was pushed last.

    Args:
        is_stopped: whether the user has stopped the fetch.
        patience_s: how long a store that does not answer is asked again.
    """

    def __init__(
        self,
        url: str,
        is_stopped: Callable[[], bool] = lambda: False,
        *,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._store = Store(url, key="data.from")
        self._is_stopped = is_stopped
        self._patience_s = patience_s
        self.display_url = self._store.display_url

    def versions(self) -> list[str]:
        """All versions in the store, in no order of time."""
        return [Path(it).stem for it in self._call(lambda: self._store.names(_ARCHIVES))]

    def version(self, wanted: str | None) -> str:
        """The version that begins with these digits; None for the one that was pushed last.

        Raises:
            DataError: there is no such version, or no data at all.
        """
        newest = (self._call(lambda: self._store.get(_NEWEST)) or b"").decode(errors="replace")
        if not newest:
            raise DataError(
                f"data.from: there is no data at {self.display_url}; put it there with: "
                "notebook_hpo.py data push -i NOTEBOOK -p PARAMETERS, or correct the URL"
            )
        found = [it for it in self.versions() if it.startswith(wanted or newest)]
        if len(found) != 1:
            raise DataError(
                f"data: {self.display_url} has {len(found) or 'no'} versions {wanted or newest}; "
                f"the newest is {newest}; correct data.version, or begin another study with --study"
            )
        return found[0]

    def size_bytes(self, version: str) -> int:
        return self._call(lambda: self._store.size(_archive(version)))

    def send(self, version: str, packed: Path) -> None:
        self._call(lambda: self._store.put_file(_archive(version), packed))

    def publish(self, version: str) -> None:
        """Make an archive that is there the newest."""
        self._call(lambda: self._store.put(_NEWEST, version.encode()))

    def blocks(self, version: str, n_bytes: int, on_line: OnLine) -> Iterator[bytes]:
        """The bytes of an archive in order.

        Raises:
            _StoppedError: the user has stopped the fetch.
        """
        next_line_s = time.monotonic() + _LINE_EVERY_S
        for start in range(0, n_bytes, _BLOCK_BYTES):
            if time.monotonic() >= next_line_s:
                next_line_s = time.monotonic() + _LINE_EVERY_S
                on_line(f"fetched {size(start)} of {size(n_bytes)}")
            end = min(start + _BLOCK_BYTES, n_bytes)
            yield self._call(partial(self._store.get_range, _archive(version), start, end))

    def _call(self, call: Callable[[], _T]) -> _T:
        until_s = time.monotonic() + self._patience_s
        while not self._is_stopped():
            try:
                return call()
            except StoreError as error:
                if error.is_refusal:
                    raise DataError(f"data.from: {error}; see the guide for credentials") from error
                if time.monotonic() >= until_s:
                    raise DataError(f"data.from: {error}; try again later") from error
            time.sleep(_LOOK_S)
        raise _StoppedError


def _archive(version: str) -> str:
    return f"{_ARCHIVES}/{version}.tar"


class _StoppedError(Exception):
    """The user has stopped a fetch."""


class _Arriving:
    """A stream of blocks that `tarfile` can read, hashed on its way."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = memoryview(b"")
        self.digest = hashlib.sha256()

    def read(self, n_bytes: int) -> bytes:
        self._rest = self._rest or memoryview(next(self._blocks, b""))
        found, self._rest = bytes(self._rest[:n_bytes]), self._rest[n_bytes:]
        self.digest.update(found)
        return found


def _pack(place: Path, names: list[str], packed: IO[bytes]) -> None:
    # PAX alone has names of any length in UTF-8.
    with tarfile.open(mode="w", fileobj=packed, format=tarfile.PAX_FORMAT) as tar:
        for name in names:
            with open(place / name, "rb") as opened:
                member = tarfile.TarInfo(name)
                member.size = os.fstat(opened.fileno()).st_size
                tar.addfile(member, opened)


def _version_of(packed: IO[bytes]) -> str:
    packed.seek(0)
    return hashlib.file_digest(packed, "sha256").hexdigest()[:_DIGITS]  # type: ignore[arg-type]


def _unpack(blocks: Iterator[bytes], part: Path, version: str) -> dict[str, list[int]]:
    """Unpack an archive into a new folder, and return its files as a record has them."""
    arriving = _Arriving(blocks)
    files = {}
    part.mkdir()
    with suppress(tarfile.TarError):
        with tarfile.open(mode="r|", fileobj=cast("IO[bytes]", arriving)) as tar:
            for member in tar:
                tar.extract(member, part, filter="data")
                os.utime(part / member.name)
                files[member.name] = _look(part / member.name)
        while arriving.read(_BLOCK_BYTES):
            pass  # the padding, which is part of the hash
    if arriving.digest.hexdigest()[:_DIGITS] != version:
        raise DataError(
            f"data.from: {_archive(version)} has other bytes than were pushed; remove it there and "
            "push the data again"
        )
    return files


def _names(place: Path) -> list[str]:
    """All files in a folder in order, without ours and without empty folders; links are followed.

    Raises:
        DataError: there is no such folder, it has no files, or a name is no text.
    """
    if not place.is_dir():
        raise DataError(
            f"data.path: there is no folder {display_path(place)}; a relative path begins in the "
            "notebook's folder, which -i names"
        )
    paths = (Path(below, name) for below, _, it in os.walk(place, followlinks=True) for name in it)
    names = sorted(path.relative_to(place).as_posix() for path in paths if path.is_file())
    names = [name for name in names if name != _RECORD]
    if bad := [it for it in names if it.encode(errors="ignore").decode() != it]:
        raise DataError(f"data.path: {bad[0]!a} in {place} is no text; rename it")
    if not names:
        raise DataError(f"data.path: {display_path(place)} has no files to push")
    return names


def _look(file: Path) -> list[int]:
    """Size and time of change; empty where there is no such file."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return []
    return [status.st_size, status.st_mtime_ns]


def _kept(place: Path, version: str) -> Path:
    """Where a folder with a version lies that is not the one in use."""
    return place.with_name(f"{place.name}.{version}")


def _free_bytes(place: Path) -> int:
    return shutil.disk_usage(next(it for it in (place, *place.parents) if it.exists())).free


def _check_room(place: Path, n_bytes: int) -> int:
    """Refuse a fetch that the disk has no room for; how many bytes are free, where it has."""
    free = _free_bytes(place)
    if n_bytes + _RESERVE_BYTES > free:
        raise DataError(
            f"data.path: {display_path(place)} needs {size(n_bytes)}, and {size(free)} are free "
            "there; make room, or set data.path to a larger disk"
        )
    return free


def _flock(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a network disk without locks: what is fetched is whole all the same
        return True
    return True
