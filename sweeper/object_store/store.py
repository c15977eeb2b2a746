"""A folder in an object storage. The only owner of fsspec."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fsspec

from ..errors import SettingsError, first_line

#: What has folders, which must be made; in an object storage making one would make a bucket.
_WITH_FOLDERS = {"file", "local", "sftp", "ssh", "ftp", "smb", "hdfs", "webhdfs"}
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs"}
#: We try again ourselves: below, a store that hangs would hold up a call for many minutes.
_BRIEF = {"connect_timeout": 5, "read_timeout": 20, "retries": {"total_max_attempts": 2}}
_OPTIONS: dict[str, dict[str, Any]] = {
    "s3": {"config_kwargs": _BRIEF},
    "s3a": {"config_kwargs": _BRIEF},
}
_SECRETS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
#: Shorter ones are made up, and stand in many a word.
_SECRET_CHARACTERS = 6
_CLOCK = "clock"


class StoreError(Exception):
    """The store did not do what it was asked.

    Attributes:
        is_refusal: whether waiting will not help: wrong credentials, no such bucket.
    """

    def __init__(self, message: str, *, is_refusal: bool = False) -> None:
        super().__init__(message)
        self.is_refusal = is_refusal


class Store:
    """Objects below one URL, by their names relative to it.

    Args:
        url: of the folder.

    Raises:
        SettingsError: fsspec does not know such URLs, or lacks a package for them.
    """

    def __init__(self, url: str) -> None:
        scheme = urlsplit(url).scheme
        try:
            fsspec.get_filesystem_class(scheme)
        except ValueError as error:
            raise SettingsError(
                f"sync: {redact_url(url)}: fsspec knows no {scheme}://; expected something like "
                "s3://bucket/prefix or file:///mnt/backup"
            ) from error
        except ImportError as error:
            package = _PACKAGES.get(scheme)
            remedy = f"pip install {package}" if package else str(error)
            raise SettingsError(
                f"sync: {redact_url(url)}: a package for {scheme}:// is missing: {remedy}"
            ) from error
        self.display_url = redact_url(url)
        self._url = url
        self._scheme = scheme
        self._has_folders = scheme in _WITH_FOLDERS
        self._opened: tuple[Any, str] | None = None

    # Opened when it is first used: then whatever goes wrong is the store's trouble.
    def _at(self, name: str) -> tuple[Any, str]:
        if self._opened is None:
            # Not the instance that others may have: it remembers listings and connections.
            options = {} if fsspec.config.conf.get(self._scheme) else _OPTIONS.get(self._scheme, {})
            self._opened = fsspec.core.url_to_fs(self._url, skip_instance_cache=True, **options)
            if hasattr(self._opened[0], "retries"):
                self._opened[0].retries = 1
        fs, root = self._opened
        return fs, f"{root.rstrip('/')}/{name}"

    def get(self, name: str) -> bytes | None:
        """An object; None when there is none."""
        with self._errors():
            fs, path = self._at(name)
            try:
                return bytes(fs.cat_file(path))
            except FileNotFoundError:
                return None

    def put(self, name: str, data: bytes) -> None:
        """Write an object, or write it anew; whoever reads it finds one or the other."""
        with self._errors():
            fs, path = self._at(name)
            if not self._has_folders:
                fs.pipe_file(path, data)
                return
            fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            fs.pipe_file(f"{path}.part", data)
            fs.mv(f"{path}.part", path)

    def put_file(self, name: str, file: Path) -> None:
        """Write an object from a file."""
        with self._errors():
            fs, path = self._at(name)
            if self._has_folders:
                fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            fs.put_file(str(file), path)

    def get_file(self, name: str, file: Path) -> None:
        """Write an object to a file, whose folder is there.

        Raises:
            StoreError: there is no such object, or the store is away.
        """
        with self._errors():
            fs, path = self._at(name)
            fs.get_file(path, str(file))

    def remove(self, name: str) -> None:
        """Remove an object, if it is there."""
        with self._errors():
            fs, path = self._at(name)
            try:
                fs.rm_file(path)
            except FileNotFoundError:
                pass

    def names(self, folder: str) -> list[str]:
        """The names of the objects in a folder."""
        with self._errors():
            fs, path = self._at(folder)
            fs.invalidate_cache()
            try:
                found = fs.ls(path, detail=False)
            except FileNotFoundError:
                return []
            return [f"{folder}/{str(entry).rpartition('/')[2]}" for entry in found]

    def age_s(self, name: str) -> float:
        """How long ago an object was written, by the store's own clock; writes one to know it."""
        self.put(_CLOCK, b"")
        with self._errors():
            fs, path = self._at(name)
            try:
                fs.invalidate_cache()
                now = fs.modified(self._at(_CLOCK)[1])
                return float((now - fs.modified(path)).total_seconds())
            except NotImplementedError:
                return 0.0  # by no clock at all: as if it were new

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
                scrubbed(f"{self.display_url}: {first_line(error)}"), is_refusal=refused
            ) from error


def redact_url(url: str) -> str:
    """A URL without what may be secret in it."""
    return re.sub(r"://[^/]*@", "://", url.partition("?")[0].partition("#")[0])


def scrubbed(text: str) -> str:
    """What a library says, without credentials."""
    for name in _SECRETS:
        secret = os.environ.get(name, "")
        if len(secret) >= _SECRET_CHARACTERS:
            text = text.replace(secret, "…")
    return re.sub(r"(\w://)[^/@\s]*@", r"\1", re.sub(r"(\w://[^\s?]*)\?[^\s'\"]*", r"\1", text))
