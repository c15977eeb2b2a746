"""The data of trials: one archive per version in a store, unpacked once on each machine.

An archive is a plain tar file of the folder, with names in order and no times or owners, so equal
data gives equal bytes; their hash names the version. It is written before the index that lists it,
unpacked beside the folder, compared with its hash and renamed: half of it is never used.
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
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from ..errors import DataError
from ..files import write_atomically
from ..settings.sections import Data
from ..settings.units import size
from ..study_folder.user_cache import cache_folder
from ..trials import display_path
from .store import ConflictError, Store, StoreError

_log = logging.getLogger(__name__)

_INDEX = "data.json"
_RECORD = ".notebook-hpo-data.json"
#: PAX alone has names of any length in UTF-8.
_FORMAT = tarfile.PAX_FORMAT
_DIGITS = 16
_CHUNK_BYTES = 1 << 20
#: Twelve blocks of 16 MB at once fill a fast line and take some 200 MB of memory.
_BLOCK_BYTES, _AT_ONCE = 16_000_000, 12
#: A fetch leaves so much of the disk free.
_RESERVE_BYTES = 100_000_000
#: A call waits so long before each further try while the store does not answer.
_PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
_LOOK_S = 0.5
_LINE_EVERY_S = 5.0

#: Called with a line for people.
OnLine = Callable[[str], None]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """One version of the data in the store.

    Attributes:
        version: the first 16 digits of the SHA-256 of the archive.
        size_bytes: of the archive.
    """

    version: str
    n_files: int
    size_bytes: int

    @property
    def name(self) -> str:
        """Its name in the store."""
        return f"archives/{self.version}.tar"

    def __str__(self) -> str:
        return f"{self.n_files} file{'s' if self.n_files != 1 else ''}, {size(self.size_bytes)}"


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
        remote = _Remote(self.url)
        record = _Record.of(self.place())
        wanted = self._settings.version or begun_with
        if wanted and record is not None and record.version.startswith(wanted):
            self.version = record.version
            return
        try:
            self.version = self._found(remote, wanted).version
        except DataError as error:
            if wanted or record is None or record.url != self.url:
                raise
            _log.warning("%s; the trials use version %s, which is here", error, record.version)
            self.version = record.version

    def _found(self, remote: _Remote, wanted: str | None) -> Archive:
        archives = remote.archives(pauses=_PAUSES_S[:1])
        if not archives:
            raise DataError(
                f"data.from: there is no data at {remote.display_url}; put {self.place()} there "
                "with: notebook_hpo.py data push -i NOTEBOOK -p PARAMETERS, or correct the URL"
            )
        newest = archives[-1]
        found = [it for it in archives if it.version.startswith(wanted or newest.version)]
        if len(found) != 1:
            is_pinned = self._settings.version is not None
            key = "data.version" if is_pinned else "the study's trials used data"
            raise DataError(
                f"{key} {wanted}: {remote.display_url} has "
                f"{'no such version' if not found else f'{len(found)} such versions'}; the newest "
                f"is {newest.version}" + ("" if is_pinned else ", begin another study with --study")
            )
        return found[0]

    def look(self) -> str:
        """What `bring` would do, in words; nothing is fetched or written.

        Raises:
            DataError: the folder has other data, the disk is too small, or the store is away.
        """
        place = self.place().resolve()
        if self._is_here(place):
            return f"it is in {display_path(place)}, nothing will be fetched"
        archive = self._found(_Remote(self.url), self.version)
        free = _check_room(place, archive)
        return f"{archive} will be fetched to {display_path(place)}, where {size(free)} are free"

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
            is_stopped: asked twice a second; once it is True the call returns soon.
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
            next_line_s = 0.0
            while not is_stopped() and not self._holds(lock, place, on_line, is_stopped):
                if time.monotonic() >= next_line_s:
                    next_line_s = time.monotonic() + 6 * _LINE_EVERY_S
                    on_line(f"waiting for another process that fetches {display_path(place)}")
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
        push = "put it there as a new version: notebook_hpo.py data push -i NOTEBOOK -p PARAMETERS"
        if record is None or (record.version != self.version and not record.is_fetched):
            what = f"version {record.version}, pushed from it" if record else "files of its own"
            raise DataError(
                f"data.path: {display_path(place)} has {what}, and the trials use version "
                f"{self.version} of {self.url}. Nothing was changed. Move the folder away, or set "
                f"data.path to another one, to have that fetched; or, if what is here is right, "
                f"{push}"
            )
        if record.version != self.version:
            return False
        changed = next((it for it, look in record.files.items() if _look(place / it) != look), None)
        if changed is not None:
            raise DataError(
                f"data.path: {display_path(place)}/{changed} is not as it was in version "
                f"{self.version}. Nothing was overwritten. Move the folder away to have it "
                f"fetched, or {push}"
            )
        return True

    def _fetch(self, place: Path, on_line: OnLine, is_stopped: Callable[[], bool]) -> None:
        """Unpack the version beside its place, and exchange the two folders."""
        fetched = _kept(place, self.version)  # of a study that went on with another one meanwhile
        if (kept := _Record.of(fetched)) is None or kept.version != self.version:
            remote = _Remote(self.url)
            archive = self._found(remote, self.version)
            _check_room(place, archive)
            fetched = place.with_name(f".{place.name}.part")
            shutil.rmtree(fetched, ignore_errors=True)  # of a fetch that was killed
            on_line(f"fetching {display_path(place)} from {remote.display_url}: {archive}")
            try:
                with closing(remote.blocks(archive, on_line, is_stopped)) as blocks:
                    files = _unpack(blocks, fetched, archive)
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

    def push(self, on_line: OnLine) -> tuple[Archive, bool]:
        """Put what lies in the folder into the store, as its newest version.

        Returns:
            the version, and whether it had to be sent.

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
            version, n_bytes = _pack(place, names)
            archive = Archive(version=version, n_files=len(names), size_bytes=n_bytes)
            is_new = archive not in remote.archives()
            if is_new:
                on_line(f"pushing them to {remote.display_url}: {archive}")
                with tempfile.TemporaryFile(dir=place.parent) as packed:  # a kill leaves nothing
                    if _pack(place, names, packed)[0] != version:
                        raise DataError(f"data: {place} has changed while it was pushed; again")
                    packed.flush()
                    remote.send(archive, Path(f"/dev/fd/{packed.fileno()}"))
            remote.publish(archive)
            before = _Record.of(place)
            if before is None or before.version != version:
                _Record(version=version, url=self.url, is_fetched=False, files=files).write(place)
        except OSError as error:
            raise DataError(f"data.path: {place}: {error}") from error
        return archive, is_new


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
    """The archives in the store, and the index that lists them, the newest last."""

    def __init__(self, url: str) -> None:
        self._store = Store(url, key="data.from")
        self.display_url = self._store.display_url

    def archives(self, *, pauses: Sequence[float] = _PAUSES_S) -> list[Archive]:
        content = self._call(lambda: self._store.get(_INDEX), pauses)
        try:
            return [] if content is None else [Archive(**it) for it in json.loads(content)]
        except (ValueError, TypeError) as error:
            raise DataError(
                f"data.from: {self.display_url}/{_INDEX} is damaged, or of another program"
            ) from error

    def send(self, archive: Archive, packed: Path) -> None:
        self._call(lambda: self._store.put_file(archive.name, packed))

    def publish(self, archive: Archive) -> None:
        """List an archive that is there as the newest."""
        known = self._call(lambda: self._store.version(_INDEX))
        listed = [asdict(it) for it in self.archives() if it != archive]
        index = json.dumps([*listed, asdict(archive)]).encode()
        try:
            self._call(lambda: self._store.put_if_unchanged(_INDEX, index, known))
        except ConflictError as error:
            raise DataError("data push: another push has just ended there; push again") from error

    def blocks(
        self, archive: Archive, on_line: OnLine, is_stopped: Callable[[], bool]
    ) -> Generator[bytes, None, None]:
        """The bytes of an archive in order, while further ones are on their way.

        Raises:
            _StoppedError: the user has stopped the fetch.
        """
        ending = threading.Event()

        def fetch(start: int) -> bytes:
            end = min(start + _BLOCK_BYTES, archive.size_bytes)
            return self._call(
                lambda: self._store.get_range(archive.name, start, end), ending=ending
            )

        starts = iter(range(0, archive.size_bytes, _BLOCK_BYTES))
        done_bytes, next_line_s = 0, time.monotonic() + _LINE_EVERY_S
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="data") as pool:
            coming = deque(pool.submit(fetch, start) for start in islice(starts, _AT_ONCE))
            try:
                while coming:
                    if is_stopped():
                        raise _StoppedError
                    if not wait([coming[0]], timeout=_LOOK_S).done:
                        continue
                    block = coming.popleft().result()
                    coming.extend(pool.submit(fetch, start) for start in islice(starts, 1))
                    done_bytes += len(block)
                    if time.monotonic() >= next_line_s:
                        next_line_s = time.monotonic() + _LINE_EVERY_S
                        on_line(f"fetched {size(done_bytes)} of {size(archive.size_bytes)}")
                    yield block
            finally:
                ending.set()
                pool.shutdown(cancel_futures=True)

    def _call(
        self,
        call: Callable[[], _T],
        pauses: Sequence[float] = _PAUSES_S,
        ending: threading.Event | None = None,
    ) -> _T:
        ending = ending or threading.Event()
        for pause_s in (*pauses, None):
            try:
                return call()
            except StoreError as error:
                if error.is_refusal:
                    raise DataError(f"data.from: {error}; see the guide for credentials") from error
                if pause_s is None or ending.wait(pause_s):
                    raise DataError(f"data.from: {error}; try again later") from error
        raise AssertionError("unreachable")


class _StoppedError(Exception):
    """The user has stopped a fetch."""


class _Hashed:
    """What `tarfile` reads from or writes to, counted and hashed on its way.

    Args:
        blocks: that are read.
        file: that is written; None to hash only.
    """

    def __init__(
        self, *, blocks: Iterator[bytes] | None = None, file: IO[bytes] | None = None
    ) -> None:
        self._blocks = blocks or iter(())
        self._file = file
        self._rest = memoryview(b"")
        self._digest = hashlib.sha256()
        self.n_bytes = 0

    @property
    def version(self) -> str:
        return self._digest.hexdigest()[:_DIGITS]

    def read(self, n_bytes: int) -> bytes:
        self._rest = self._rest or memoryview(next(self._blocks, b""))
        found, self._rest = bytes(self._rest[:n_bytes]), self._rest[n_bytes:]
        self._digest.update(found)
        return found

    def write(self, content: bytes) -> None:
        self._digest.update(content)
        self.n_bytes += len(content)
        if self._file is not None:
            self._file.write(content)


def _pack(place: Path, names: Sequence[str], file: IO[bytes] | None = None) -> tuple[str, int]:
    """The version and the size of the archive of some files, which is written if asked for."""
    out = _Hashed(file=file)
    stream = cast("IO[bytes]", out)
    with tarfile.open(mode="w|", fileobj=stream, bufsize=_CHUNK_BYTES, format=_FORMAT) as tar:
        for name in names:
            with open(place / name, "rb") as opened:
                member = tarfile.TarInfo(name)
                member.size = os.fstat(opened.fileno()).st_size
                tar.addfile(member, opened)
    return out.version, out.n_bytes


def _unpack(blocks: Iterator[bytes], part: Path, archive: Archive) -> dict[str, list[int]]:
    """Unpack an archive into a new folder, and return its files as a record has them."""
    arriving = _Hashed(blocks=blocks)
    files = {}
    part.mkdir()
    with suppress(tarfile.TarError):
        stream = cast("IO[bytes]", arriving)
        with tarfile.open(mode="r|", fileobj=stream, bufsize=_CHUNK_BYTES) as tar:
            for member in tar:
                tar.extract(member, part, filter="data")
                os.utime(part / member.name)
                files[member.name] = _look(part / member.name)
        while arriving.read(_CHUNK_BYTES):
            pass  # the padding, which is part of the hash
    if arriving.version != archive.version:
        raise DataError(
            f"data.from: {archive.name} has other bytes than were pushed; remove it there and push "
            "the data again"
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


def _check_room(place: Path, archive: Archive) -> int:
    """Refuse a fetch that the disk has no room for; how many bytes are free, where it has."""
    free = _free_bytes(place)
    if archive.size_bytes + _RESERVE_BYTES > free:
        raise DataError(
            f"data.path: {size(archive.size_bytes)} are missing in {display_path(place)}, and "
            f"{size(free)} are free there; make room, or set data.path to a larger disk"
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
