"""The data in the store: the head that names the newest version, manifests, and objects."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import TypeVar

from ...errors import DataError
from ..object_store import Store, StoreError
from .manifest import DIGITS, DataObject, Head, Manifest

_HEAD = "data.json"
_MANIFESTS = "manifests"
#: How long to wait before each further try of a call, while the store does not answer.
_PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
_VERSION = re.compile(rf"[0-9a-f]{{{DIGITS}}}")

_T = TypeVar("_T")


class RemoteData:
    """The data below one URL. Safe to use from several threads after the first call.

    Args:
        url: of the folder with the data.

    Raises:
        SettingsError: fsspec does not know such URLs, or needs another package for them.
    """

    def __init__(self, url: str) -> None:
        self._store = Store(url, key="data.from")
        self.display_url = self._store.display_url

    def head(self) -> Head | None:
        """What was pushed last; None where nothing was.

        Raises:
            DataError: the store cannot be read, or has something else there.
            AwayError: it does not answer now.
        """
        content = self._call(lambda: self._store.get(_HEAD), threading.Event(), pauses=(1.0,))
        if content is None:
            return None
        try:
            return Head.decode(content)
        except ValueError as error:
            raise DataError(f"data.from: {self.display_url}/{_HEAD}: {error}") from error

    def manifest(self, version: str) -> Manifest:
        """The manifest of a version.

        Raises:
            DataError: there is none, or it is damaged.
        """
        name = _manifest_name(version)
        content = self._call(lambda: self._store.get(name), threading.Event())
        if content is None:
            raise DataError(f"data.from: {self.display_url} has no version {version} any more")
        try:
            return Manifest.decode(content, version=version)
        except ValueError as error:
            raise DataError(
                f"data.from: {self.display_url}/{name}: {error}; push the data again"
            ) from error

    def versions(self) -> list[str]:
        """All versions that were pushed, in no particular order."""
        found = self._call(lambda: self._store.names(_MANIFESTS), threading.Event())
        names = (name.rpartition("/")[2].partition(".")[0] for name in found)
        return sorted(name for name in names if _VERSION.fullmatch(name))

    def objects(self) -> set[str]:
        """The names of all objects; those of a push that was killed, too."""
        return set(self._call(lambda: self._store.names("objects"), threading.Event()))

    def get(self, wanted: DataObject, ending: threading.Event) -> bytes:
        """The bytes of an object.

        Args:
            ending: set when they are not wanted any more.

        Raises:
            DataError: the store lacks it, or it is damaged there.
        """
        content = self._call(lambda: self._store.get(wanted.name), ending)
        if content is None:
            raise DataError(
                f"data.from: {self.display_url} lacks {wanted.name}, which its manifest names; "
                "push the data again from a machine that has it"
            )
        return content

    def put(self, name: str, content: bytes, ending: threading.Event) -> None:
        """Write an object."""
        self._call(lambda: self._store.put(name, content), ending)

    def publish(self, manifest: Manifest) -> None:
        """Name a version whose objects are all there as the newest one: the head comes last."""
        ending = threading.Event()
        self.put(_manifest_name(manifest.version), manifest.encode(), ending)
        self.put(_HEAD, Head.of(manifest).encode(), ending)

    def _call(
        self,
        call: Callable[[], _T],
        ending: threading.Event,
        *,
        pauses: tuple[float, ...] = _PAUSES_S,
    ) -> _T:
        for pause_s in (*pauses, None):
            try:
                return call()
            except StoreError as error:
                if error.is_refusal:
                    raise DataError(f"data.from: {_in_words(error)}") from error
                if pause_s is None or ending.wait(pause_s):
                    raise AwayError(f"data.from: {_in_words(error)}; try again later") from error
        raise AssertionError("unreachable")


class AwayError(DataError):
    """The store does not answer."""


def _in_words(error: StoreError) -> str:
    text = str(error)
    lower = text.lower()
    if "credential" in lower or "forbidden" in lower or "access denied" in lower:
        return f"{text}; the credentials come from the environment, as AWS_ACCESS_KEY_ID and so on"
    if "bucket does not exist" in lower:
        return f"{text}; create it, or correct the URL"
    return text


def _manifest_name(version: str) -> str:
    return f"{_MANIFESTS}/{version}.json.gz"
