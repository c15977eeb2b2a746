"""What lies beside the objects of a copy: the manifest, whose it is; and our own mark of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

_VERSION = 1


class _Written:
    """Written as JSON, and read again."""

    @classmethod
    def read(cls, text: bytes | str) -> Self:
        """Made of what `text` wrote; keys of later versions are passed over.

        Raises:
            ValueError: it is something else.
        """
        try:
            told = json.loads(text)
            known = {name: told[name] for name in cls.__dataclass_fields__ if name in told}  # type: ignore[attr-defined]
            return cls(**known)
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a {cls.__name__.lower()}: {error}") from error

    @property
    def text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self), indent=1)  # type: ignore[call-overload]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One file of the copy; its object is named by the content."""

    size: int
    hash: str
    mtime_s: float

    @property
    def object(self) -> str:
        """The name of its object."""
        return f"objects/{self.hash}"


@dataclass(frozen=True, kw_only=True)
class Manifest(_Written):
    """Which objects make up the copy. Written last: whatever it names is there, and whole.

    Attributes:
        study_id: of the study; empty where its storage is a server's.
        copy_id: which folder it is a copy of; another machine that goes on gives it its own.
        generation: one more with each manifest.
        template: where the executed notebooks lay.
        artifacts: URI of the folder of MLflow's artifacts.
        files: what there is, under names that say what it is and not where it lay.
    """

    study: str
    study_id: str
    copy_id: str
    generation: int
    at_s: float
    template: str
    artifacts: str
    files: Mapping[str, Entry] = field(default_factory=dict)
    version: int = _VERSION

    def __post_init__(self) -> None:
        if self.version > _VERSION:
            raise ValueError("written by a later version of notebook-hpo; update it here")
        entries: dict[str, Any] = dict(self.files)
        made = {k: e if isinstance(e, Entry) else Entry(**e) for k, e in entries.items()}
        object.__setattr__(self, "files", made)

    @property
    def objects(self) -> set[str]:
        """The names of all objects."""
        return {entry.object for entry in self.files.values()}


@dataclass(frozen=True, kw_only=True)
class Owner(_Written):
    """Which process writes the copy; written again and again while it does."""

    host: str
    pid: int
    token: str
    copy_id: str
    every_s: float
    at_s: float
    has_ended: bool = False

    @property
    def words(self) -> str:
        """As people say it."""
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True, kw_only=True)
class LocalMarker(_Written):
    """In the study's folder: which copy it goes with.

    Attributes:
        generation: of the last manifest that was written, or was about to be: one that is higher
            in the store than here means that this folder is older than the copy.
    """

    copy_id: str
    generation: int

    @classmethod
    def at(cls, path: Path) -> LocalMarker | None:
        """That of a folder; None when it was never copied."""
        try:
            return cls.read(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
