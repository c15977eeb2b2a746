"""The JSON files of a copy: its manifest and its lease in the store, and a marker on this disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, TypeAdapter

#: What `hashlib.blake2b` gives in hexadecimal.
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]
#: Seconds since 1970 of a file's last change, before the year 3000: `os.utime` takes no more.
ChangedAt = Annotated[float, Field(ge=0, le=32_503_680_000, allow_inf_nan=False)]
#: Seconds between two copies; `sync.every` has no more than a year.
Interval = Annotated[float, Field(gt=0, le=31_536_000, allow_inf_nan=False)]
_HOST_CHARACTERS = 64


class Stored:
    """A record that is stored as JSON."""

    @classmethod
    def read(cls, text: bytes | str) -> Self:
        """Read a record from its JSON.

        Raises:
            ValueError: the text is no such record.
        """
        try:
            # Not `validate_json`: pydantic's own parser refuses file names that are no Unicode.
            return TypeAdapter(cls).validate_python(json.loads(text))
        except RecursionError as error:
            raise ValueError("nested too deeply") from error

    @classmethod
    def at(cls, path: Path) -> Self | None:
        """The record in a file; None where there is no such file, or nothing of the kind in it."""
        try:
            return cls.read(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    @property
    def text(self) -> str:
        """The record as JSON."""
        return json.dumps(asdict(self), indent=1)  # type: ignore[call-overload]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One file of the copy, whose object is named by the hash of its content."""

    hash: Hash
    mtime_s: ChangedAt

    @property
    def object(self) -> str:
        """The name of its object."""
        return f"objects/{self.hash}"


@dataclass(frozen=True, kw_only=True)
class Manifest(Stored):
    """The objects that make up the copy. It is written last, so all of them exist and are whole.

    Attributes:
        study_id: the study's id; empty where the study's storage is a server.
        copy_id: an id of the folder that is copied; a machine that restores the copy makes a new
            one.
        generation: increases by one with each manifest.
        template: the paths of the executed notebooks on the machine that was copied.
        artifacts: URI of the folder of MLflow's artifacts on that machine.
        files: by names that say what a file is, not where it is.
    """

    study: str
    study_id: str
    copy_id: str
    generation: int
    template: str
    artifacts: str
    files: Mapping[str, Entry] = field(default_factory=dict)

    @property
    def objects(self) -> set[str]:
        """The names of all objects."""
        return {entry.object for entry in self.files.values()}


@dataclass(frozen=True, kw_only=True)
class Owner(Stored):
    """The process that writes the copy; stored again at every interval while it does."""

    host: str
    pid: int
    token: str
    copy_id: str
    every_s: Interval
    has_ended: bool = False

    @property
    def words(self) -> str:
        """The process, for messages."""
        host = "".join(c for c in self.host if c.isprintable())[:_HOST_CHARACTERS]
        return f"process {self.pid} on {host}"


@dataclass(frozen=True, kw_only=True)
class LocalMarker(Stored):
    """A file in the study's folder that says which copy belongs to the folder.

    Attributes:
        generation: the generation of the last manifest that was written, or was about to be. If
            the manifest in the store has a higher one, this folder is older than the copy.
    """

    copy_id: str
    generation: int
