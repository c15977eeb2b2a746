"""The data of a sweep: which version its trials use, and that this machine has all of it."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...errors import DataError
from ...settings.sections import Data
from ...settings.units import size
from ...study_folder.user_cache import cache_folder
from .fetching import Fetch, check_room
from .folder import DataFolder, Record, Standing, Verified
from .manifest import DataFile, Head, Manifest, version_of
from .progress import OnLine
from .pushing import never, send
from .remote import RemoteData

_log = logging.getLogger(__name__)

#: The most names that a message has.
_MOST_NAMES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """What a push has done.

    Attributes:
        sent_bytes: what the store lacked.
        is_new: whether the store had another version, or none, as its newest.
    """

    version: str
    n_files: int
    size_bytes: int
    sent_bytes: int
    is_new: bool


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

    # --- which version ----------------------------------------------------------------------------

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
        remote = RemoteData(self.url)
        record = DataFolder(self.place()).record()
        wanted = self._settings.version or begun_with
        if wanted and record is not None and record.version.startswith(wanted):
            self.version = record.version
            return
        try:
            head = remote.head()
            self.version = self._known(remote, wanted, head)
        except DataError as error:
            if wanted or record is None or record.url != self.url:
                raise
            _log.warning(
                "%s; the trials use version %s, which %s has", error, record.version, self.place()
            )
            self.version = record.version

    def _known(self, remote: RemoteData, wanted: str | None, head: Head | None) -> str:
        if head is None:
            raise DataError(
                f"data.from: there is no data at {remote.display_url}; put {self.place()} there "
                "with: notebook_hpo.py data push -i NOTEBOOK -p PARAMETERS, or correct the URL"
            )
        if not wanted or head.version.startswith(wanted):
            return head.version
        found = [it for it in remote.versions() if it.startswith(wanted)]
        if found and self._settings.version is None:
            _log.warning(
                "data: %s was pushed to %s since; this study goes on with %s, with which it began",
                head.version,
                remote.display_url,
                found[0],
            )
        if len(found) != 1:
            is_pinned = self._settings.version is not None
            key = "data.version" if is_pinned else "the study's trials used data"
            raise DataError(
                f"{key} {wanted}: {remote.display_url} has "
                f"{'no such version' if not found else f'{len(found)} such versions'}; the newest "
                f"is {head.version}" + ("" if is_pinned else ", begin another study with --study")
            )
        return found[0]

    # --- having it here ---------------------------------------------------------------------------

    def bring(
        self,
        on_line: OnLine,
        is_stopped: Callable[[], bool] = never,
        *,
        folder: Path | None = None,
        is_copy: bool = False,
        reads_all: bool = False,
    ) -> None:
        """Make sure that this machine has the version, and fetch what it lacks.

        What lies there already is verified: files that look as they did when they were verified
        are not read again. A file with other content is neither replaced nor removed.

        Args:
            on_line: called with each line for people, from this thread.
            is_stopped: asked twice a second; once it is True the call returns soon, and the next
                one goes on from there.
            folder: that of the notebook, where it is another one than at home.
            is_copy: whether that is a copy for one sweep: a relative path then leads to the user's
                cache on this machine, which later sweeps find again.
            reads_all: whether to hash every file, whatever was verified before.

        Raises:
            DataError: the data is not what it should be, or cannot be fetched.
        """
        place = self.place(folder)
        if is_copy and not Path(self._settings.path).expanduser().is_absolute():
            place = self._linked_cache(place)
        here = DataFolder(place)
        if not place.exists():  # a refused call leaves nothing behind
            check_room(here, RemoteData(self.url).manifest(self.version).size_bytes)
        with here.locked(on_line, is_stopped) as is_held:
            if is_stopped():
                return
            record = here.record()  # another process may have fetched meanwhile
            known = {} if record is None or reads_all else record.files
            is_same = record is not None and record.version == self.version
            remote = RemoteData(self.url)
            manifest: Manifest | None = None
            if record is not None and is_same:
                files = _files_of(record)
            else:
                manifest = remote.manifest(self.version)
                files = list(manifest.files)
            standing = here.standing(
                files, known, reads=True, on_line=on_line, is_stopped=is_stopped
            )
            if is_stopped():
                return
            self._refuse_others(here, files, standing, record)
            if standing.missing:
                if not is_held:
                    raise DataError(
                        f"data.path: {here} cannot be written and lacks {standing.missing[0].name}"
                        f"{_more(len(standing.missing) - 1)}; make it writable or set data.path to "
                        "another folder"
                    )
                manifest = manifest or remote.manifest(self.version)
                Fetch(here, remote, manifest, standing.missing).run(on_line, is_stopped)
                if is_stopped():
                    return
            if is_same and standing.is_as_recorded:
                return
            for file in standing.missing:
                standing.present[file.name] = here.look_of(file)
            here.write_record(Record(self.version, self.url, standing.present))
            if is_held:
                here.remove_parts()
            n_files = f"{len(files)} file{'s' if len(files) != 1 else ''}"
            total = size(sum(file.size_bytes for file in files))
            on_line(f"{here} has version {self.version}: {n_files}, {total}")

    def look(self) -> tuple[Standing, int]:
        """What of the version is here; nothing is hashed, fetched or written.

        Returns:
            what was found, and how many bytes are free there.

        Raises:
            DataError: a file has other content for sure, or the store cannot be read.
        """
        here = DataFolder(self.place())
        record = here.record()
        if record is not None and record.version == self.version:
            files: Sequence[DataFile] = _files_of(record)
        else:
            files = RemoteData(self.url).manifest(self.version).files
        known = {} if record is None else record.files
        standing = here.standing(
            files, known, reads=False, on_line=lambda _: None, is_stopped=never
        )
        self._refuse_others(here, files, standing, record)
        if standing.missing:
            check_room(here, standing.missing_bytes)
        return standing, here.free_bytes()

    def _refuse_others(
        self,
        here: DataFolder,
        files: Sequence[DataFile],
        standing: Standing,
        record: Record | None,
    ) -> None:
        """Refuse a folder that has another version, or files with other content.

        Raises:
            DataError: with what to do about it.
        """
        if record is not None and record.version != self.version:
            gone = record.files.keys() - {file.name for file in files}
            is_other = bool(standing.different or standing.missing) or any(
                here.path.joinpath(name).exists() for name in gone
            )
        else:
            is_other = False
        if record is not None and is_other:
            raise DataError(
                f"data.path: {here} has version {record.version} of the data, and the trials use "
                f"{self.version} of {self.url}. Nothing was changed there, because other trials "
                f"may be using it. Move {here} away or set data.path to another folder to fetch "
                f'the other version, or stay with this one by data.version: "{record.version}"'
            )
        if standing.different:
            names = ", ".join(sorted(file.name for file in standing.different)[:_MOST_NAMES])
            more = _more(len(standing.different) - _MOST_NAMES)
            raise DataError(
                f"data.path: {here} has other content than version {self.version} of {self.url}: "
                f"{names}{more}. Nothing was overwritten. "
                "Move these files away to have them fetched; or, if they are right, put them there "
                "as a new version: notebook_hpo.py data push -i NOTEBOOK -p PARAMETERS"
            )

    def _linked_cache(self, place: Path) -> Path:
        """A folder in the user's cache for this version, to which the place in a copy leads."""
        key = hashlib.sha256(self.url.encode()).hexdigest()[:8]
        cache = cache_folder("data") / f"{key}-{self.version}"
        cache.mkdir(parents=True, exist_ok=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            place.symlink_to(cache)
        return cache

    # --- putting it there -------------------------------------------------------------------------

    def push(self, on_line: OnLine) -> Pushed:
        """Put what lies in the folder into the store, as its newest version.

        Raises:
            SettingsError: a package for such URLs is missing.
            DataError: there is no such folder, it is empty, or it cannot be read or sent.
        """
        remote = RemoteData(self.url)
        here = DataFolder(self.place())
        names = here.names()
        if not names:
            raise DataError(f"data.path: {here} has no files to push")
        head = remote.head()
        with here.locked(on_line, never):
            record = here.record()
            present = self._hashed(here, names, {} if record is None else record.files, on_line)
            files = [DataFile(name, it.size_bytes, it.sha256) for name, it in present.items()]
            version = version_of(files)
            sent_bytes, is_new = 0, head is None or head.version != version
            if is_new:
                manifest, sent_bytes = send(here, remote, files, on_line)
                for name, verified in present.items():
                    if not verified.is_unchanged(here.status_of(name)):
                        raise DataError(
                            f"data: {here}/{name} has changed while it was pushed; push again"
                        )
                remote.publish(manifest)
            if record is None or record.version != version or record.url != self.url:
                here.write_record(Record(version, self.url, present))
        return Pushed(
            version=version,
            n_files=len(files),
            size_bytes=sum(file.size_bytes for file in files),
            sent_bytes=sent_bytes,
            is_new=is_new,
        )

    def _hashed(
        self, here: DataFolder, names: Sequence[str], known: Mapping[str, Verified], on_line: OnLine
    ) -> dict[str, Verified]:
        """All files by name, each read unless it looks as it did when it was verified."""
        present: dict[str, Verified] = {}
        to_read = []
        for name in names:
            status = here.status_of(name)
            earlier = known.get(name)
            if earlier is not None and earlier.is_unchanged(status):
                present[name] = earlier
            else:
                to_read.append((DataFile(name, status.st_size, ""), status))
        for file, now in here.hashed(to_read, "hashing", on_line, never):
            present[file.name] = now
        return {name: present[name] for name in names}


def _more(n_files: int) -> str:
    """How many files a message does not name."""
    return f" and {n_files} more file{'s' if n_files != 1 else ''}" if n_files > 0 else ""


def _files_of(record: Record) -> list[DataFile]:
    return [DataFile(name, it.size_bytes, it.sha256) for name, it in record.files.items()]
