"""The folder with the data on this machine: what is in it, and what was verified before.

Three kinds of hidden files in it are ours: a lock, the record of what was verified, and parts of
files that are being fetched. A hidden folder would be a class to torchvision's `ImageFolder`.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import DataError
from ...files import write_atomically
from ...settings.units import size
from ...trials import display_path
from .manifest import DataFile
from .parallel import in_parallel
from .progress import OnLine, Progress

_OURS = ".notebook-hpo-data"
_RECORD, _LOCK, _PART = f"{_OURS}.json", f"{_OURS}.lock", ".part"
_FORMAT = 1
_CHUNK_BYTES = 1 << 20
#: Files that are hashed beside each other.
_AT_ONCE = 8
_LOOK_S = 0.5
#: How often a wait for another process has a line.
_LINE_EVERY_S = 30.0
#: Disks that cannot be written at all; data that is there may be used nevertheless.
_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}


@dataclass(frozen=True, slots=True)
class Verified:
    """A file whose content was hashed, and how it looked then."""

    size_bytes: int
    mtime_ns: int
    sha256: str

    def is_unchanged(self, status: os.stat_result | None) -> bool:
        """Whether the file looks as it did."""
        now = None if status is None else (status.st_size, status.st_mtime_ns)
        return now == (self.size_bytes, self.mtime_ns)


@dataclass(frozen=True, slots=True)
class Record:
    """What was verified last: a whole version."""

    version: str
    url: str
    files: Mapping[str, Verified]


@dataclass(slots=True)
class Standing:
    """What of a version is in the folder.

    Attributes:
        present: what was verified, by name.
        missing: files that are not there.
        different: files that are there with another content.
        unread: files of the right size that were not hashed, because only a look was asked for.
    """

    present: dict[str, Verified] = field(default_factory=dict)
    missing: list[DataFile] = field(default_factory=list)
    different: list[DataFile] = field(default_factory=list)
    unread: list[DataFile] = field(default_factory=list)
    is_as_recorded: bool = True

    @property
    def missing_bytes(self) -> int:
        """The size of the files that are not there."""
        return sum(file.size_bytes for file in self.missing)


class DataFolder:
    """The folder that trials read their data from.

    Args:
        path: need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return display_path(self.path)

    def record(self) -> Record | None:
        """What was verified last; None where nothing was, or where it cannot be read."""
        try:
            data = json.loads((self.path / _RECORD).read_text("utf-8"))
            if data["format"] != _FORMAT:
                return None
            files = {str(n): Verified(int(s), int(t), str(h)) for n, s, t, h in data["files"]}
            return Record(str(data["version"]), str(data["url"]), files)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write_record(self, record: Record) -> None:
        """Note what was verified, where the folder can be written.

        The disk has all of it by then: a record is never ahead of the files after a power cut.
        """
        files = [[n, it.size_bytes, it.mtime_ns, it.sha256] for n, it in record.files.items()]
        data = {"format": _FORMAT, "version": record.version, "url": record.url, "files": files}
        os.sync()
        try:
            write_atomically(self.path / _RECORD, json.dumps(data))
        except OSError as error:
            if error.errno not in _READ_ONLY:
                raise disk_error(self, error) from error

    @contextmanager
    def locked(self, on_line: OnLine, is_stopped: Callable[[], bool]) -> Iterator[bool]:
        """Keep other processes on this machine from fetching into the folder meanwhile.

        The system releases the lock when the process dies. A folder that cannot be written has no
        lock, because nothing is fetched into it.

        Yields:
            whether the folder is held; False where the user has stopped the wait, or it cannot be
            written.

        Raises:
            DataError: there is no such folder and it cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            if error.errno in _READ_ONLY and self.path.is_dir():
                yield False
                return
            raise disk_error(self, error) from error
        try:
            yield self._wait(descriptor, on_line, is_stopped)
        finally:
            os.close(descriptor)

    def _wait(self, descriptor: int, on_line: OnLine, is_stopped: Callable[[], bool]) -> bool:
        next_line_s = 0.0
        while not is_stopped():
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= next_line_s:
                    next_line_s = time.monotonic() + _LINE_EVERY_S
                    on_line(f"waiting for another process that fetches or verifies {self}")
                time.sleep(_LOOK_S)
            except OSError:  # a network disk without locks: what is fetched is whole all the same
                return True
            else:
                return True
        return False

    # --- what is there ----------------------------------------------------------------------------

    def standing(
        self,
        files: Sequence[DataFile],
        known: Mapping[str, Verified],
        *,
        reads: bool,
        on_line: OnLine,
        is_stopped: Callable[[], bool],
    ) -> Standing:
        """Compare the folder with a version.

        Args:
            files: of the version.
            known: what was verified before; such files are not read again while they look the same.
            reads: whether to hash what is not known.

        Raises:
            DataError: a file cannot be read.
        """
        found = Standing()
        to_read: list[tuple[DataFile, os.stat_result]] = []
        for file in files:
            status = self._status(file.name)
            earlier = known.get(file.name)
            if status is None:
                found.missing.append(file)
            elif status.st_size != file.size_bytes:
                found.different.append(file)
            elif earlier is not None and earlier.is_unchanged(status):
                same = earlier.sha256 == file.sha256
                if same:
                    found.present[file.name] = earlier
                else:
                    found.different.append(file)
            else:
                to_read.append((file, status))
        found.is_as_recorded = not to_read and not found.missing and not found.different
        if not reads:
            found.unread = [file for file, _ in to_read]
            return found
        for file, now in self.hashed(to_read, "verifying", on_line, is_stopped):
            if now.sha256 == file.sha256:
                found.present[file.name] = now
            else:
                found.different.append(file)
        return found

    def hashed(
        self,
        files: Sequence[tuple[DataFile, os.stat_result]],
        doing: str,
        on_line: OnLine,
        is_stopped: Callable[[], bool],
    ) -> Iterator[tuple[DataFile, Verified]]:
        """Hash files on several threads.

        Raises:
            DataError: one cannot be read.
        """
        total = sum(status.st_size for _, status in files)
        progress = Progress(f"{doing} {self}", total, on_line)

        def read(
            item: tuple[DataFile, os.stat_result], ending: threading.Event
        ) -> tuple[DataFile, Verified]:
            file, status = item
            sha256 = self._hash(file.name, progress, ending)
            return file, Verified(status.st_size, status.st_mtime_ns, sha256)

        try:
            yield from in_parallel(
                files, read, at_once=_AT_ONCE, tick=progress.tick, is_stopped=is_stopped
            )
        except OSError as error:
            raise disk_error(self, error) from error

    def names(self) -> list[str]:
        """All files in the folder by name, without ours and without empty folders.

        Raises:
            DataError: there is no such folder, or a name is no text.
        """
        if not self.path.is_dir():
            raise DataError(
                f"data.path: there is no folder {self}; a relative path begins in the notebook's "
                "folder, which -i names"
            )
        found = []
        for below, folders, names in os.walk(self.path, followlinks=True):
            folders.sort()
            for name in names:
                path = Path(below, name)
                if is_ours(name) or not path.is_file():
                    continue
                relative = path.relative_to(self.path).as_posix()
                try:
                    relative.encode()
                except UnicodeEncodeError as error:
                    raise DataError(
                        f"data.path: {relative!a} in {self} is no text; rename it"
                    ) from (error)
                found.append(relative)
        return sorted(found)

    def status_of(self, name: str) -> os.stat_result:
        """How a file looks now.

        Raises:
            DataError: it is gone.
        """
        status = self._status(name)
        if status is None:
            raise DataError(f"data: {self}/{name} was removed meanwhile; try again")
        return status

    def look_of(self, file: DataFile) -> Verified:
        """A file whose content is known, as it looks now."""
        return Verified(file.size_bytes, self.status_of(file.name).st_mtime_ns, file.sha256)

    def free_bytes(self) -> int:
        """How much can be written there; the folder need not exist."""
        place = next(it for it in (self.path, *self.path.parents) if it.exists())
        status = os.statvfs(place)
        return status.f_bavail * status.f_frsize

    # --- files on their way -----------------------------------------------------------------------

    def part(self, file: DataFile) -> Path:
        """Where a file is put together until it is whole."""
        key = hashlib.sha256(f"{file.name}\0{file.sha256}".encode()).hexdigest()[:24]
        return self.path / f"{_OURS}-{key}{_PART}"

    def put_in_place(self, file: DataFile) -> None:
        """Give a whole file its name. What the user has put there meanwhile stays.

        Raises:
            FileExistsError: there is a file by now.
            OSError: it cannot be renamed.
        """
        place = self.path / file.name
        if os.path.lexists(place):
            raise FileExistsError(errno.EEXIST, "was put there while it was fetched", str(place))
        place.parent.mkdir(parents=True, exist_ok=True)
        self.part(file).rename(place)

    def remove_parts(self) -> None:
        """Remove parts that no fetch goes on with."""
        for path in self.path.glob(f"{_OURS}-*{_PART}"):
            path.unlink(missing_ok=True)

    def _status(self, name: str) -> os.stat_result | None:
        try:
            return (self.path / name).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise disk_error(self, error) from error

    def _hash(self, name: str, progress: Progress, ending: threading.Event) -> str:
        digest = hashlib.sha256()
        with open(self.path / name, "rb") as opened:
            while not ending.is_set() and (chunk := opened.read(_CHUNK_BYTES)):
                digest.update(chunk)
                progress.add(len(chunk))
        return digest.hexdigest()


def is_ours(name: str) -> bool:
    """Whether a file in the folder is a lock, a record or a part."""
    return name.removeprefix(".").startswith(_OURS[1:]) and name.startswith(".")


def disk_error(folder: DataFolder, error: OSError) -> DataError:
    """The message for a disk that refuses."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DataError(
            f"data.path: the disk of {folder} is full, {size(folder.free_bytes())} are free; make "
            "room, and the same command goes on from what has arrived, or set data.path to another "
            "disk"
        )
    where = error.filename or folder.path
    return DataError(f"data.path: {where}: {error.strerror or error}")
