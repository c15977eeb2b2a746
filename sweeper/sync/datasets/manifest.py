"""Which files a version of the data has, and the objects in which the store holds their bytes.

The files in the order of the manifest make one stream of bytes, and so do the objects, so no table
is needed of what lies where. A file of more than `OBJECT_BYTES` has objects of its own, which are
fetched beside each other; smaller files share one, because 50,000 requests take longer than the
bytes of 50,000 pictures.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

#: A request for so much is long enough to fill the line, and several fit into memory.
OBJECT_BYTES = 16_000_000
#: Between these sizes an object of several files ends after a file whose name has a certain hash,
#: so that a new file changes the objects beside it, and not all that follow.
_LEAST_BYTES = 4_000_000
_ENDS_ONE_IN = 32
_FORMAT = 1
_DAMAGED = "it is damaged"
#: The hexadecimal digits of a version.
DIGITS = 16


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of the data.

    Attributes:
        name: its path relative to the folder, with `/`.
        sha256: of its bytes, hexadecimal.
    """

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class DataObject:
    """An object in the store, whose name is the hash of its bytes."""

    sha256: str
    size_bytes: int

    @property
    def name(self) -> str:
        """Its name in the store."""
        return f"objects/{self.sha256}"


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a file that lie in one object.

    Attributes:
        offset: of these bytes in the file.
        start: of these bytes in the object.
    """

    file: DataFile
    offset: int
    size_bytes: int
    start: int

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the file."""
        return self.size_bytes == self.file.size_bytes


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of the data: its files by name, and the objects with their bytes."""

    files: Sequence[DataFile]
    objects: Sequence[DataObject]

    @property
    def version(self) -> str:
        """The hash of all names, sizes and contents; equal data has equal versions."""
        return version_of(self.files)

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(file.size_bytes for file in self.files)

    def pieces(self) -> list[list[Piece]]:
        """What lies in each object, whatever the sizes by which it was cut.

        Raises:
            ValueError: objects and files have not the same bytes, or an object has a part of a file
                beside something else.
        """
        found: list[list[Piece]] = []
        files = iter(file for file in self.files if file.size_bytes)
        file, offset = next(files, None), 0
        for wanted in self.objects:
            pieces: list[Piece] = []
            start = 0
            while start < wanted.size_bytes and file is not None:
                n_bytes = min(file.size_bytes - offset, wanted.size_bytes - start)
                pieces.append(Piece(file, offset, n_bytes, start))
                start, offset = start + n_bytes, offset + n_bytes
                if offset == file.size_bytes:
                    file, offset = next(files, None), 0
            has_part = any(not piece.is_whole for piece in pieces)
            if start != wanted.size_bytes or (has_part and len(pieces) > 1):
                raise ValueError(_DAMAGED)
            found.append(pieces)
        if file is not None:
            raise ValueError(_DAMAGED)
        return found

    def encode(self) -> bytes:
        """Encode as compressed JSON."""
        data = {
            "format": _FORMAT,
            "files": [[it.name, it.size_bytes, it.sha256] for it in self.files],
            "objects": [[it.sha256, it.size_bytes] for it in self.objects],
        }
        return gzip.compress(json.dumps(data).encode(), mtime=0)

    @classmethod
    def decode(cls, content: bytes, *, version: str) -> Manifest:
        """Decode what `encode` has made.

        Raises:
            ValueError: it is no manifest, not that of this version, or names a file outside.
        """
        try:
            data = json.loads(gzip.decompress(content))
        except (OSError, EOFError, ValueError) as error:
            raise ValueError(_DAMAGED) from error
        try:
            if data["format"] != _FORMAT:
                raise ValueError("it was pushed by a later notebook-hpo; update it here")
            files = [DataFile(str(n), int(s), str(h)) for n, s, h in data["files"]]
            objects = [DataObject(str(h), int(s)) for h, s in data["objects"]]
        except (KeyError, TypeError) as error:
            raise ValueError(_DAMAGED) from error
        manifest = cls(files=files, objects=objects)
        if manifest.version != version:
            raise ValueError(_DAMAGED)
        manifest.pieces()
        for file in files:
            if not _is_inside(file.name):
                raise ValueError(f"it has a file {file.name!r}, which leads out of its folder")
        return manifest


@dataclass(frozen=True, slots=True)
class Head:
    """The small object that names the newest version; it is written last."""

    version: str
    n_files: int
    size_bytes: int

    @classmethod
    def of(cls, manifest: Manifest) -> Head:
        """The head of a version."""
        return cls(manifest.version, len(manifest.files), manifest.size_bytes)

    def encode(self) -> bytes:
        """Encode as JSON."""
        return json.dumps(
            {
                "format": _FORMAT,
                "version": self.version,
                "files": self.n_files,
                "size_bytes": self.size_bytes,
            }
        ).encode()

    @classmethod
    def decode(cls, content: bytes) -> Head:
        """Decode what `encode` has made.

        Raises:
            ValueError: it is something else.
        """
        try:
            data = json.loads(content)
            if data["format"] != _FORMAT:
                raise ValueError("it was pushed by a later notebook-hpo; update it here")
            return cls(str(data["version"]), int(data["files"]), int(data["size_bytes"]))
        except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError("it is damaged, or of another program") from error


def version_of(files: Sequence[DataFile]) -> str:
    """The hash of the names, sizes and contents of files, in whatever order they come."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda it: it.name):
        digest.update(f"{file.name}\0{file.size_bytes}\0{file.sha256}\n".encode())
    return digest.hexdigest()[:DIGITS]


def cut(files: Sequence[DataFile]) -> Iterator[list[Piece]]:
    """Distribute the bytes of files over objects; a file without bytes is in none."""
    pack: list[Piece] = []
    packed = 0
    for file in files:
        if file.size_bytes == 0:
            continue
        if file.size_bytes > OBJECT_BYTES:
            if pack:
                yield pack
                pack, packed = [], 0
            for offset in range(0, file.size_bytes, OBJECT_BYTES):
                n_bytes = min(OBJECT_BYTES, file.size_bytes - offset)
                yield [Piece(file, offset, n_bytes, start=0)]
            continue
        if packed + file.size_bytes > OBJECT_BYTES:
            yield pack
            pack, packed = [], 0
        pack.append(Piece(file, 0, file.size_bytes, start=packed))
        packed += file.size_bytes
        if packed >= _LEAST_BYTES and _may_end_after(file.name):
            yield pack
            pack, packed = [], 0
    if pack:
        yield pack


def _may_end_after(name: str) -> bool:
    return hashlib.sha256(name.encode()).digest()[0] % _ENDS_ONE_IN == 0


def _is_inside(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and not {"..", "/"} & set(parts) and "\0" not in name
