"""Define the JSON files of a remote copy.

The store has the manifest and the lease. The study's folder on this machine has a marker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field

from ..object_storage.stored import Stored

#: Hexadecimal digest of `hashlib.blake2b`.
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]
#: The year 3000 in seconds since 1970. `os.utime` refuses much larger values.
_LATEST_S = 32_503_680_000
#: Time of a file's last change in seconds since 1970.
ChangedAt = Annotated[float, Field(ge=0, le=_LATEST_S, allow_inf_nan=False)]
#: Seconds between two renewals of a lease: the value of `sync.every`, which is at most one year.
Interval = Annotated[float, Field(gt=0, le=31_536_000, allow_inf_nan=False)]
_HOST_CHARACTERS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file in the copy. Its object in the store is named by the hash of its content.

    Attributes:
        hash: Hash of the content.
        mtime_s: Time of the file's last change, in seconds since 1970.
    """

    hash: Hash
    mtime_s: ChangedAt

    @classmethod
    def of(cls, file: Path, *, hash: str) -> Self:
        """Return the entry of a file.

        A time before 1970, which files from old archives may have, is stored as 1970.

        Args:
            file: The file.
            hash: Hash of its content.
        """
        mtime_s = max(0.0, file.stat().st_mtime)
        return cls(hash=hash, mtime_s=min(mtime_s, _LATEST_S))

    @property
    def object(self) -> str:
        """Name of the file's object in the store."""
        return f"objects/{self.hash}"


@dataclass(frozen=True, kw_only=True)
class Manifest(Stored):
    """The list of the files in a copy. It is written after all objects that it names.

    Attributes:
        study: Name of the study.
        study_id: Id of the study. Empty if the study is on a server.
        copy_id: Random id of the study's folder that is copied. A machine that restores the copy
            makes a new id for its own folder.
        generation: Number of the manifest. Each new manifest has the next number.
        template: Path of the executed notebooks on the machine that wrote the copy, with
            `{run_id}` in place of each trial's run id.
        artifacts: URI of MLflow's artifact folder on that machine.
        files: Files by their names in the copy. A name states what a file is, not its path on a
            machine.
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
        """Names of the objects of all files in the copy."""
        return {entry.object for entry in self.files.values()}


@dataclass(frozen=True, kw_only=True)
class Owner(Stored):
    """The lease of a copy: an object that names the process which alone may write the copy.

    That process renews the lease regularly, by writing the object again.

    Attributes:
        host: Machine of the process.
        pid: Id of the process.
        token: Random text that distinguishes this lease from all others.
        copy_id: Id of the study's folder that is copied.
        folder: Hash of this folder's path. It distinguishes the folder from a duplicate on the same
            machine, which has the same `copy_id`.
        every_s: Seconds between two renewals.
        n_renewals: How often the process has renewed the lease.
        has_ended: Whether the lease was released.
    """

    host: str
    pid: int
    token: str
    copy_id: str
    folder: str
    every_s: Interval
    n_renewals: int = 0
    has_ended: bool = False

    @property
    def words(self) -> str:
        """Process id and machine of the process, as text for messages."""
        host = "".join(c for c in self.host if c.isprintable())[:_HOST_CHARACTERS]
        return f"process {self.pid} on {host}"


@dataclass(frozen=True, kw_only=True)
class LocalMarker(Stored):
    """A file in the study's folder that states which copy belongs to the folder.

    Attributes:
        copy_id: Id of the folder, as in the manifests that are written from it.
        generation: Number of the last manifest that was written, or was about to be written. If the
            manifest in the store has a higher number, the copy is newer than this folder.
        origin_id: `copy_id` of the manifest that the folder was restored from. None if it was not
            restored.
        origin_generation: Number of that manifest.
        replaced_id: Id of an earlier study in the copy, which a new study in this folder may
            replace. None if no study was begun anew here.
    """

    copy_id: str
    generation: int
    origin_id: str | None = None
    origin_generation: int | None = None
    replaced_id: str | None = None

    def knows(self, manifest: Manifest) -> bool:
        """Return whether the folder contains everything that a manifest lists.

        It does if the manifest was written from the folder, or if the folder was restored from the
        manifest.
        """
        if (manifest.copy_id, manifest.generation) == (self.origin_id, self.origin_generation):
            return True
        return manifest.copy_id == self.copy_id and manifest.generation <= self.generation
