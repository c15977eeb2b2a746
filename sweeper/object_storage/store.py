"""Read and write the objects in a folder of an object storage. Only this module uses fsspec.

The folders `sync` and `data` decide which objects are stored, and when.
"""

from __future__ import annotations

import datetime
import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

import fsspec

from ..errors import SettingsError, StoppedError, first_line
from ..files import ABANDONED_S, PART
from ..settings.addresses import LOCAL_SCHEME

T = TypeVar("T")

#: URL schemes whose folders have to be made before a file is written. On an object storage, making
#: a folder would make a bucket.
_WITH_FOLDERS = {"file", "local", "sftp", "ssh", "ftp", "hdfs"}
#: URL schemes whose objects fsspec cannot replace atomically: its `mv` onto an existing name fails,
#: or does nothing without an error.
_WITHOUT_REPLACING = {"smb", "webhdfs"}
_PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs"}
#: Timeouts in seconds and number of attempts of botocore, which s3fs uses (chosen, not measured).
#: They are short, because this package repeats failed calls itself. With botocore's defaults, a
#: call to a store that hangs would block for minutes.
_BRIEF = {"connect_timeout": 5, "read_timeout": 20, "retries": {"total_max_attempts": 2}}
_SECRETS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
#: A secret has at least this many characters. Shorter values are placeholders, and may be parts of
#: ordinary words.
_SECRET_CHARACTERS = 6
#: Name of an empty object. `age_s` writes it to read the store's clock.
_CLOCK = "clock"
#: `Store.patiently` repeats a failed call for at most the first number of seconds, and pauses
#: between two calls for the second number of seconds (chosen, not measured).
_PATIENCE_S, _PAUSE_S = 60.0, 0.5
#: Errors of the local disk to which an object is downloaded: the disk is full or read-only.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
#: Pattern of the temporary names under which `Store` writes objects.
_PART_OF_OURS = re.compile(rf"\..+\.[0-9a-f]{{8}}{re.escape(PART)}")


class StoreError(Exception):
    """A call to the store failed.

    Attributes:
        is_refusal: Whether waiting does not help, as with wrong credentials or a missing bucket.
    """

    def __init__(self, message: str, *, is_refusal: bool = False) -> None:
        super().__init__(message)
        self.is_refusal = is_refusal


class Store:
    """Reads and writes the objects in one folder of an object storage.

    Methods take the names of objects relative to the folder. If a call to the storage fails, they
    raise a `StoreError`.

    Args:
        url: URL of the folder, without secrets.
        study: Name of the subfolder that is used. Empty for the folder itself.
        key: Key of the parameters file that has the URL, for messages.

    Raises:
        SettingsError: fsspec does not know this kind of URL, needs another package for it, or
            cannot replace its objects.
    """

    def __init__(self, url: str, *, study: str = "", key: str = "sync") -> None:
        scheme = url.partition("://")[0]
        if scheme.lower() in _WITHOUT_REPLACING:
            raise SettingsError(
                f"{key}: {url}: files cannot be replaced safely by {scheme}://; expected something "
                "like s3://bucket/prefix, or mount the folder and give its path as file:///mnt/…"
            )
        try:
            fsspec.get_filesystem_class(scheme)
        except ValueError as error:
            raise SettingsError(
                f"{key}: {url}: fsspec knows no {scheme}://; expected something like "
                "s3://bucket/prefix or file:///mnt/backup"
            ) from error
        except ImportError as error:
            package = _PACKAGES.get(scheme)
            remedy = f"pip install {package}" if package else str(error)
            message = f"{key}: {url}: a package for {scheme}:// is missing: {remedy}"
            raise SettingsError(message) from error
        self._stated, self._below = url, f"/{study}" if study else ""
        self.url = url + self._below
        self._scheme = scheme
        self._has_folders = scheme in _WITH_FOLDERS
        self._opened: tuple[Any, str] | None = None
        self._cleared: set[str] = set()

    # Open the file system at the first use and not in `__init__`: the methods that use it convert
    # every problem to a `StoreError`.
    def _at(self, name: str) -> tuple[Any, str]:
        if self._opened is None:
            # fsspec's shared instances cache listings and connections, so use a new instance.
            is_plain_s3 = self._scheme == "s3" and not fsspec.config.conf.get("s3")
            options: dict[str, Any] = {"config_kwargs": _BRIEF} if is_plain_s3 else {}
            options["skip_instance_cache"] = True
            if LOCAL_SCHEME.match(self._stated):  # fsspec would divide the path at `::`.
                path = LOCAL_SCHEME.sub("", self._stated)
                self._opened = fsspec.filesystem(self._scheme, **options), path
            else:
                self._opened = fsspec.core.url_to_fs(self._stated, **options)
            if hasattr(self._opened[0], "retries"):
                self._opened[0].retries = 1
        fs, root = self._opened
        return fs, f"{root.rstrip('/')}{self._below}/{name}"

    def get(self, name: str) -> bytes | None:
        """Return the content of an object. None if there is no such object."""
        with self._errors():
            fs, path = self._at(name)
            try:
                return bytes(fs.cat_file(path))
            except FileNotFoundError:
                return None

    def get_range(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes of an object from offset `start` to before offset `end`."""
        with self._errors():
            fs, path = self._at(name)
            return bytes(fs.cat_file(path, start=start, end=end))

    def size(self, name: str) -> int:
        """Return the size of an object in bytes."""
        with self._errors():
            fs, path = self._at(name)
            return int(fs.size(path))

    def put(self, name: str, data: bytes) -> None:
        """Write an object atomically. An object of this name is replaced."""
        self._write(name, lambda fs, path: fs.pipe_file(path, data))

    def put_file(self, name: str, file: Path) -> None:
        """Write an object atomically from a file. An object of this name is replaced."""
        self._write(name, lambda fs, path: fs.put_file(str(file), path))

    def _write(self, name: str, write: Callable[[Any, str], object]) -> None:
        with self._errors():
            fs, path = self._at(name)
            if not self._has_folders:
                write(fs, path)
                return
            folder, _, own_name = path.rpartition("/")
            fs.makedirs(folder, exist_ok=True)
            self._clear(fs, folder)
            # The temporary name is random, because two machines may write this object at once.
            part = f"{folder}/.{own_name}.{token_hex(4)}{PART}"
            try:
                write(fs, part)
                fs.mv(part, path)
            except BaseException:
                with suppress(Exception):  # The error of the write matters, and is raised below.
                    fs.rm_file(part)
                raise

    def _clear(self, fs: Any, folder: str) -> None:
        """Remove unfinished objects that killed processes have left in a folder.

        Objects that were written within `ABANDONED_S` seconds (a day) stay, because a process may
        still be writing them. All stay if the store does not know when they were written. Later
        calls for the same folder do nothing, because each call to a store takes time.
        """
        if folder in self._cleared:
            return
        self._cleared.add(folder)
        now = datetime.datetime.now(datetime.UTC)
        # Some stores do not know when an object was written. Ignore this and other errors, because
        # unfinished objects do no harm.
        with suppress(Exception):
            for path in fs.ls(folder, detail=False):
                name = str(path).rpartition("/")[2]
                if _PART_OF_OURS.fullmatch(name):
                    written = fs.modified(path)
                    if (now - written).total_seconds() > ABANDONED_S:
                        fs.rm_file(path)

    def get_file(self, name: str, file: Path) -> bool:
        """Download an object to a file in an existing folder.

        Returns:
            Whether there is such an object.

        Raises:
            StoreError: The store is unavailable.
            OSError: The disk of the file is full or cannot be written.
        """
        try:
            with self._errors():
                fs, path = self._at(name)
                fs.get_file(path, str(file))
                return True
        except StoreError as error:
            reason = error.__cause__
            if isinstance(reason, FileNotFoundError):
                return False
            if isinstance(reason, OSError) and reason.errno in _DISK_ERRORS:
                raise reason from None
            raise

    def remove(self, name: str) -> None:
        """Remove an object if it exists."""
        with self._errors(), suppress(FileNotFoundError):
            fs, path = self._at(name)
            fs.rm_file(path)

    def names(self, folder: str) -> list[str]:
        """Return the names of the objects in a folder, each with the folder's name in front."""
        with self._errors():
            fs, path = self._at(folder)
            fs.invalidate_cache()
            try:
                found = fs.ls(path, detail=False)
            except FileNotFoundError:
                return []
            return [f"{folder}/{str(entry).rpartition('/')[2]}" for entry in found]

    def age_s(self, name: str) -> float:
        """Return how many seconds ago an object was written, by the store's clock.

        This writes another object, to read the store's clock. If the store does not know when
        objects were written, the age is 0.
        """
        self.put(_CLOCK, b"")
        with self._errors():
            fs, path = self._at(name)
            try:
                fs.invalidate_cache()
                now = fs.modified(self._at(_CLOCK)[1])
                return float((now - fs.modified(path)).total_seconds())
            except NotImplementedError:
                return 0.0  # The time is unknown, so the object counts as new.

    @staticmethod
    def patiently(call: Callable[[], T], is_stopped: Callable[[], bool]) -> T:
        """Return the result of a function. Call it again while the store is unavailable.

        After a minute, a failed call is not repeated.

        Raises:
            StoreError: The store refuses the call, or is unavailable for longer.
            StoppedError: The store is unavailable, and the sweep was stopped.
        """
        until_s = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return call()
            except StoreError as error:
                if is_stopped():
                    raise StoppedError("sync: the sweep was stopped") from error
                if error.is_refusal or time.monotonic() > until_s:
                    raise
                time.sleep(_PAUSE_S)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            name = type(error).__name__
            refused = isinstance(error, PermissionError | FileNotFoundError) or (
                "Credentials" in name or "ProfileNotFound" in name
            )
            raise StoreError(
                scrubbed(f"{self.url}: {first_line(error)}"), is_refusal=refused
            ) from error


def scrubbed(text: str) -> str:
    """Remove credentials from a library's message."""
    for name in _SECRETS:
        secret = os.environ.get(name, "")
        if len(secret) >= _SECRET_CHARACTERS:
            text = text.replace(secret, "…")
    return re.sub(r"(\w://)[^/@\s]*@", r"\1", re.sub(r"(\w://[^\s?]*)\?[^\s'\"]*", r"\1", text))
