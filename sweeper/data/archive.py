"""Push and fetch the data of trials: one archive for each version, unpacked once on each machine.

An archive is a plain tar file of the folder, with sorted names and without times or owners. So
equal data gives equal bytes, and the hash of the bytes is the version.

A machine unpacks the archive into a temporary folder next to the final one, compares the hash, and
renames the folder. So incomplete data is never used, and an existing folder is never replaced.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NoReturn, cast

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from ..errors import DataError, StoppedError
from ..files import PRIVATE, below, free_bytes, write_atomically
from ..notebooks.metadata import DataUse
from ..object_storage.store import Store, StoreError
from ..object_storage.stored import Stored
from ..settings.sections import Data
from ..settings.units import size
from ..trials import display_path

#: Names of the object with the version that was pushed last, and of the folder with the archives of
#: all versions.
_NEWEST, _ARCHIVES = "newest", "archives"
_RECORD = ".notebook-hpo-data.json"
_DIGITS = 16
_log = logging.getLogger(__name__)
_VERSION = re.compile(rf"[0-9a-f]{{{_DIGITS}}}")
#: An archive is fetched in blocks of this many bytes (chosen, not measured). After a lost
#: connection, only one block is fetched again.
_BLOCK_BYTES = 16 << 20
_LOOK_S = 0.5
_LINE_EVERY_S = 5.0

#: A function that is called with a line of text for people.
OnLine = Callable[[str], None]


class Dataset:
    """The data of one notebook's trials. It can be pickled and used on another machine.

    Args:
        settings: Section `data` of the parameters file.
        folder: Folder of the notebook. A relative path of the data begins there.

    Attributes:
        version: Version that the trials use. Empty before `settle` is called.
    """

    def __init__(self, settings: Data, *, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self.version = ""

    @property
    def url(self) -> str:
        """URL from which the data is fetched. It contains no secrets."""
        return self._settings.source

    @property
    def use(self) -> DataUse:
        """The version, URL and path that a trial's notebook records."""
        return DataUse(version=self.version, source=self.url, path=self._settings.path)

    def place(self) -> Path:
        """Return the absolute path of the data's folder."""
        return Path(os.path.abspath(self._folder / Path(self._settings.path).expanduser()))

    def settle(self, *, begun_with: str | None = None) -> None:
        """Set the version that the trials use.

        This is the version in the parameters file, if any. Otherwise, it is the version of the
        study's earlier trials, or the newest version for a new study.

        Args:
            begun_with: Version of the study's earlier trials. None for a new study.

        Raises:
            SettingsError: A package for this kind of URL is missing.
            DataError: The store has no data, or is unavailable.
        """
        self.version = self._settings.version or begun_with or self._newest()

    def bring(
        self,
        on_line: OnLine,
        is_stopped: Callable[[], bool] = lambda: False,
        *,
        copy: Path | None = None,
    ) -> None:
        """Fetch the version that the trials use into the data's folder, unless the folder has it.

        If several processes call this at once, one fetches, and the others wait.

        Args:
            on_line: Called with progress messages, from this thread.
            is_stopped: Called before each block. If it returns True, the call returns soon, without
                the data.
            copy: Folder of a copy of the notebook that exists for one sweep only. A relative path
                of the data then becomes a link in this folder to the user's cache, where later
                sweeps find the data again. None for the original folder.

        Raises:
            DataError: The folder has other data, or the version cannot be fetched.
        """
        with _in_words(self.place()):
            place = self.place().resolve() if copy is None else self._place_from(copy)
            if self._is_here(place):
                return
            place.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(place.with_name(f".{place.name}.notebook-hpo.lock"), mode=PRIVATE)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                on_line(f"waiting for another process that fetches {display_path(place)}")
                with suppress(Timeout):
                    lock.acquire(cancel_check=is_stopped, poll_interval=_LOOK_S)
            try:
                if lock.is_locked and not self._is_here(place):
                    self._fetch(place, on_line, is_stopped)
            finally:
                lock.release()

    def push(self, on_line: OnLine) -> tuple[str, int]:
        """Send the files in the data's folder to the store, as its newest version.

        Args:
            on_line: Called with progress messages.

        Returns:
            The version, and the number of bytes that were sent. This number is 0 if the store
            already had the version.

        Raises:
            SettingsError: A package for this kind of URL is missing.
            DataError: The folder does not exist, is empty, or cannot be read or sent.
        """
        store, place = self._store(), self.place().resolve()
        with _in_words(place):
            names = _names(place)
            on_line(f"reading {len(names)} files in {display_path(place)}")
            files = {name: _look(place / name) for name in names}
            with tempfile.TemporaryFile(dir=place.parent) as packed:
                # The temporary file has no name, so it vanishes if this process is killed.
                _pack(place, names, packed)
                n_bytes = packed.tell()
                packed.seek(0)
                digest = hashlib.file_digest(packed, "sha256")
                version = digest.hexdigest()[:_DIGITS]
                is_new = _archive(version) not in store.names(_ARCHIVES)
                if is_new:
                    on_line(f"pushing them to {store.url}: {size(n_bytes)}")
                    store.put_file(_archive(version), Path(f"/dev/fd/{packed.fileno()}"))
            store.put(_NEWEST, version.encode())
            write_atomically(place / _RECORD, _Record(version=version, files=files).text)
        return version, n_bytes if is_new else 0

    def _store(self) -> Store:
        return Store(self.url, key="data.from")

    def _newest(self) -> str:
        with _in_words(self.place()):
            newest = self._store().get(_NEWEST)
        if newest is None:
            raise DataError(
                f"data.from: there is no data at {self.url}; put it there with: "
                "notebook_hpo.py data push -i NOTEBOOK -p PARAMETERS, or correct the URL"
            )
        version = newest.decode(errors="replace")
        # The version becomes part of a path, and other texts could lead the path out of its folder.
        if not _VERSION.fullmatch(version):
            raise DataError(
                f"data.from: {self.url}/{_NEWEST} has {version[:_DIGITS]!r} instead of a version, "
                f"which has {_DIGITS} hexadecimal digits; push the data again"
            )
        return version

    def _is_here(self, place: Path) -> bool:
        """Return whether a folder has the version that the trials use.

        This is judged by the sizes and times of its files. False if the folder is missing or empty.

        Args:
            place: Folder of the data.

        Raises:
            DataError: The folder has other data.
        """
        record = _Record.at(place / _RECORD)
        if record is None and (not place.exists() or not any(place.iterdir())):
            return False
        problem = self._problem(place, record)
        if problem is None:
            return True
        raise DataError(
            f"data.path: {problem}, and the trials use version {self.version} of {self.url}. "
            "The folder stays as it is. Move it away to fetch that version, or push it as a new "
            "version: notebook_hpo.py data push -i NOTEBOOK -p PARAMETERS; a study that has begun "
            "uses the new version only if data.version names it"
        )

    def _problem(self, place: Path, record: _Record | None) -> str | None:
        """Return why a folder with files does not have the version that the trials use.

        If it has the version and also other files, a warning names one of them.

        Args:
            place: Folder of the data.
            record: Content of the folder's hidden file. None if it has no valid one.

        Returns:
            None if the folder has the version.
        """
        where = display_path(place)
        if record is None:
            return f"{where} has files that `data push` has not pushed"
        if record.version != self.version:
            return f"{where} has version {record.version}"
        for name, look in record.files.items():
            if _look(place / name) != look:
                return f"{where}/{name} has changed"
        self._warn_of_others(place, record)
        return None

    def _warn_of_others(self, place: Path, record: _Record) -> None:
        """Warn of one file that is not in the version, such as a cache that a notebook has made."""
        with suppress(DataError):  # `_names` refuses files that cannot be pushed: do not warn then.
            for name in _names(place):
                if name not in record.files:
                    _log.warning(
                        "data.path: %s/%s is not in version %s, which trials record; if trials use "
                        "this file, push the folder as a new version",
                        display_path(place),
                        name,
                        self.version,
                    )
                    return

    def _fetch(self, place: Path, on_line: OnLine, is_stopped: Callable[[], bool]) -> None:
        """Fetch the version that the trials use into the data's folder.

        The version is fetched into a temporary folder, which is renamed once it is complete.
        Nothing is renamed if `is_stopped` returns True meanwhile.

        Args:
            place: Path of the data's folder.
            on_line: Called with progress messages.
            is_stopped: Called before each block.

        Raises:
            DataError: The disk is too small, or the archive is damaged.
            StoreError: The store is unavailable.
        """
        store, archive = self._store(), _archive(self.version)
        n_bytes, free = store.size(archive), free_bytes(place)
        if n_bytes > free:
            raise DataError(
                f"data.path: {display_path(place)} needs {size(n_bytes)}, and {size(free)} are "
                "free there; make room, or set data.path to a larger disk"
            )
        part = place.with_name(f".{place.name}.part")
        # A process that was killed may have left this folder.
        shutil.rmtree(part, ignore_errors=True)
        on_line(f"fetching {display_path(place)} from {store.url}: {size(n_bytes)}")
        arriving = _Arriving(
            store=store, archive=archive, n_bytes=n_bytes, on_line=on_line, is_stopped=is_stopped
        )
        try:
            files = _unpack(arriving, part)
            if is_stopped():
                return
            if files is None or arriving.digest.hexdigest()[:_DIGITS] != self.version:
                raise DataError(
                    f"data.from: {store.url}/{archive} is damaged: it has other content than was "
                    "pushed; remove this object and push the data again"
                )
            os.sync()  # After a power cut, the record must not exist without the files.
            write_atomically(part / _RECORD, _Record(version=self.version, files=files).text)
            part.rename(place)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        on_line(f"{display_path(place)} has version {self.version}")

    def _place_from(self, copy: Path) -> Path:
        """Return the folder for the data of a sweep that runs a copy of the notebook.

        If `data.path` is absolute, it is this folder. Else the folder is in the user's cache, and a
        link to it is made at the relative path in `copy`, unless something exists there.

        Args:
            copy: Folder with the copy of the notebook, which exists for one sweep only.
        """
        stated = Path(self._settings.path).expanduser()
        if stated.is_absolute():
            return stated.resolve()
        key = hashlib.sha256(self.url.encode()).hexdigest()[:8]
        cache = user_cache_path("notebook-hpo").absolute() / "data" / f"{key}-{self.version}"
        link = copy / stated
        link.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            link.symlink_to(cache)
        return cache


@dataclass(frozen=True, kw_only=True)
class _Record(Stored):
    """A hidden file in the data's folder that states which version the folder has.

    Attributes:
        version: The version.
        files: Size in bytes and time of the last change in ns of each file, by its path in the
            folder, when this version was fetched or pushed.
    """

    version: str
    files: dict[str, list[int]]


def _archive(version: str) -> str:
    return f"{_ARCHIVES}/{version}.tar"


@dataclass(slots=True, kw_only=True)
class _Arriving:
    """A file object that reads an archive from the store, and hashes the bytes that it has read.

    Attributes:
        store: Store with the archive.
        archive: Name of the archive in the store.
        n_bytes: Size of the archive.
        on_line: Called with progress messages.
        is_stopped: Called before each block. If it returns True, no more bytes are read.
        digest: Hash of the bytes so far.
    """

    store: Store
    archive: str
    n_bytes: int
    on_line: OnLine
    is_stopped: Callable[[], bool]
    digest: Any = field(default_factory=hashlib.sha256)
    _n_arrived: int = 0
    _next_line_s: float = field(default_factory=lambda: time.monotonic() + _LINE_EVERY_S)

    def read(self, n_bytes: int) -> bytes:
        """Return the next bytes, or no bytes at the end or once the sweep was stopped.

        Raises:
            StoreError: The store refuses the request, or is unavailable for a minute.
        """
        start, end = self._n_arrived, min(self._n_arrived + n_bytes, self.n_bytes)
        if start == end or self.is_stopped():
            return b""
        try:
            block = self.store.patiently(
                lambda: self.store.get_range(self.archive, start, end), self.is_stopped
            )
        except StoppedError:
            return b""
        self._n_arrived = end
        self.digest.update(block)
        if time.monotonic() >= self._next_line_s:
            self._next_line_s = time.monotonic() + _LINE_EVERY_S
            self.on_line(f"fetched {size(end)} of {size(self.n_bytes)}")
        return block


def _pack(place: Path, names: list[str], packed: IO[bytes]) -> None:
    # Only the PAX format has file names of any length and of any bytes.
    with tarfile.open(mode="w", fileobj=packed, format=tarfile.PAX_FORMAT) as tar:
        for name in names:
            with open(place / name, "rb") as opened:
                member = tarfile.TarInfo(name)
                member.size = os.fstat(opened.fileno()).st_size
                tar.addfile(member, opened)


def _unpack(arriving: _Arriving, part: Path) -> dict[str, list[int]] | None:
    """Unpack an archive into a new folder.

    Args:
        arriving: The archive, which is read from the store meanwhile.
        part: Path of the new folder.

    Returns:
        Size and time of each file, as `_Record` has them. None if the archive is damaged, or has a
        member that `push` never makes: anything but a plain file, or a name that leads out of the
        folder.
    """
    files = {}
    part.mkdir()
    try:
        stream = cast("IO[bytes]", arriving)
        with tarfile.open(mode="r|", fileobj=stream, bufsize=_BLOCK_BYTES) as tar:
            for member in tar:
                file = below(part, member.name)
                if not member.isreg():
                    return None
                tar.extract(member, part, filter="data")
                os.utime(file)
                files[member.name] = _look(file)
    except (tarfile.TarError, ValueError):
        return None
    while arriving.read(_BLOCK_BYTES):
        pass  # Read the padding at the end, which is part of the hash.
    return files


def _names(place: Path) -> list[str]:
    """Return the sorted paths of all files in a folder, except `_RECORD`, which the sweep writes.

    Symbolic links are followed. Empty folders are left out.

    Raises:
        DataError: There is no such folder, it has no files, or it contains something that cannot be
            read or is neither a file nor a folder.
    """
    if not place.is_dir():
        raise DataError(
            f"data.path: there is no folder {display_path(place)}; a relative path begins in the "
            "folder of the notebook (-i)"
        )
    names = []
    for above, _, found in os.walk(place, onerror=_refuse, followlinks=True):
        for path in (Path(above, name) for name in found):
            if not path.is_file():
                raise DataError(
                    f"data.path: {display_path(path)} is neither a file nor a folder (perhaps a "
                    "broken link); remove it"
                )
            names.append(path.relative_to(place).as_posix())
    names = sorted(name for name in names if name != _RECORD)
    if not names:
        raise DataError(
            f"data.path: {display_path(place)} has no files to push; put the data there"
        )
    return names


def _refuse(error: OSError) -> NoReturn:
    raise DataError(f"data.path: {error.filename}: {error.strerror}; make it readable") from error


def _look(file: Path) -> list[int]:
    """Return the size in bytes and the time of the last change in ns.

    Returns:
        An empty list if there is no such file.
    """
    try:
        status = file.stat()
    except FileNotFoundError:
        return []
    return [status.st_size, status.st_mtime_ns]


@contextmanager
def _in_words(place: Path) -> Iterator[None]:
    """Convert errors of the store and of the disk in the block to one error with a remedy.

    Args:
        place: Folder of the data.

    Raises:
        DataError: The store failed, or the disk is full or cannot be written.
    """
    try:
        yield
    except StoreError as error:
        remedy = "try again later"
        if error.is_refusal:
            remedy = "correct data.from or data.version, or see the guide for credentials"
        raise DataError(f"data.from: {error}; {remedy}") from error
    except OSError as error:
        raise DataError(
            f"data.path: {error.filename or place}: {error.strerror or error}; "
            f"{size(free_bytes(place))} are free there; data.path may name another folder"
        ) from error
