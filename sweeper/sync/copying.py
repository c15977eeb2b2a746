"""Keep the remote copy of a study up to date while the study is swept, on a thread."""

from __future__ import annotations

import logging
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import OutputError, StudyError, SyncError, first_line
from ..files import write_atomically
from ..guard import mark_of
from ..object_storage.store import Store, StoreError
from ..settings.addresses import Address
from ..study.files import study_id_in
from ..study.study import Study
from ..trials import StudyPaths, TrialRecord, display_path
from .contents import STUDY, Contents
from .lease import RemoteLease
from .manifest import Entry, LocalMarker, Manifest
from .objects import Objects
from .restoring import restore
from .selection import Selection

_log = logging.getLogger(__name__)

_MANIFEST = "manifest.json"
#: After a call of `hurry`, and at the end of a sweep, a pause between two copies takes at most this
#: many seconds. After a call of `hurry`, this also limits the wait for the release of the lease
#: (chosen, not measured).
_HURRIED_S = 1.0
#: Without a call of `hurry`, the end of a sweep waits at most this many seconds for the release of
#: the lease (chosen, not measured).
_PATIENCE_S = 5.0
#: The end of a sweep waits for the last copy for at most the first number of seconds. If the wait
#: takes longer than the second number of seconds, it is reported (chosen, not measured).
_END_S, _ANNOUNCED_AFTER_S = 60.0, 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _StudyHere:
    """The study on this machine.

    Attributes:
        study_id: Id of the study. None if the study is on a server, or if its file cannot be read.
    """

    study_id: str | None


class RemoteCopy:
    """Copies a study's changed files to an object storage at intervals. No trial waits for this.

    Objects are named by the hash of their content and never changed. The manifest, which lists the
    objects of the copy, is written last. So an interrupted copy leaves the previous copy intact.

    Args:
        url: URL of the folder of all copies. The copy of this study is in a subfolder with the
            study's name.
        every_s: Seconds between the end of a copy and the next one.
        paths: Paths of the study.
        storage: SQLite file of the study. None if the study is on a server.
        tracking: SQLite file of MLflow's store. None if MLflow's store is on a server.

    Raises:
        SettingsError: fsspec cannot open this kind of URL here.
    """

    def __init__(
        self,
        url: str,
        *,
        every_s: float,
        paths: StudyPaths,
        storage: Path | None,
        tracking: Path | None,
    ) -> None:
        self._store = Store(url, study=paths.study)
        self._every_s = every_s
        self._paths = paths
        self._contents = Contents(paths=paths, storage=storage, tracking=tracking)
        self._lease = RemoteLease(self._store, every_s=every_s, folder=mark_of(paths.folder))
        self._mark = LocalMarker(copy_id=secrets.token_hex(8), generation=0)
        self._before: Manifest | None = None
        #: Names of the objects that the last two manifests name. None before this process has
        #: written a manifest.
        self._needed: Set[str] | None = None
        self._objects = Objects(self._store, folder=paths.folder / ".sync")
        self._begun: Mapping[int, TrialRecord] | None = None
        self._study_id = ""
        self._thread: threading.Thread | None = None
        self._closing, self._abandoned = threading.Event(), threading.Event()
        self._as_of = time.monotonic()
        self._has_failed = False
        self._is_hurried = False
        self._is_complete = False
        self._loss: SyncError | None = None
        self._on_loss: Callable[[SyncError], object] = lambda _: None

    @property
    def display_url(self) -> str:
        """The URL of the copy, for messages."""
        return self._store.url

    @contextmanager
    def opened(
        self, on_restore: Callable[[], None], *, is_stopped: Callable[[], bool] = lambda: False
    ) -> Iterator[bool]:
        """Hold the lease of the copy, which lets this process write the copy, during the block.

        If there is a copy, and this machine does not have the study, restore the study first. The
        caller must have locked the study's folder.

        Args:
            on_restore: Called before the study is restored.
            is_stopped: Returns whether the sweep was stopped, which ends the wait for the lease and
                the download of the study.

        Yields:
            Whether the study was restored from the copy.

        Raises:
            SyncError: The copy cannot be used, or another process holds its lease.
            StoppedError: The sweep was stopped during the wait or the download.
            OutputError: The study cannot be written, or a file that this study did not write has
                the path of a restored file.
        """
        try:
            yield self._open(on_restore, is_stopped)
        finally:
            self._closing.set()
            self._abandoned.set()
            # The lease is released on a thread, because a store that hangs must not delay the
            # sweep's end.
            releasing = threading.Thread(target=self._lease.release, daemon=True)
            releasing.start()
            releasing.join(_HURRIED_S if self._is_hurried else _PATIENCE_S)

    def start(self) -> None:
        """Start the thread that keeps the copy up to date."""
        self._as_of = time.monotonic()
        self._thread = threading.Thread(target=self._work, name="copy", daemon=True)
        self._thread.start()

    def begin_anew(self) -> None:
        """Store in the folder's `LocalMarker` that a new study replaces the study in the copy.

        If there is no copy, this does nothing. Call this before the study in the folder is removed.
        Without the marker, if this sweep were killed before its first copy, the next sweep would
        refuse the copy as that of another study.

        Raises:
            OutputError: The marker cannot be written.
        """
        if self._before is None:
            return
        self._mark = replace(self._mark, replaced_id=self._before.study_id)
        try:
            write_atomically(self._paths.copied, self._mark.text)
        except OSError as error:
            raise OutputError(
                f"{display_path(self._paths.copied)}: cannot be written: {first_line(error)}; make "
                "room, and give the same command again"
            ) from error

    def when_lost(self, call: Callable[[SyncError], object]) -> None:
        """Set a function that is called if copying ends before the sweep does.

        Copying ends if another process has taken over the copy, or if the study on this machine
        was removed. The function may be called from another thread, and more than once.
        """
        self._on_loss = call
        if self._loss is not None:  # The copying thread may have called the function, too.
            call(self._loss)

    def hurry(self) -> None:
        """Copy nearly without pauses from now on, because there will be little time at the end.

        This can be called from a signal handler.
        """
        self._is_hurried = True

    def end(self, *, left_s: float | None, on_wait: Callable[[], None]) -> float:
        """Make the last copy, after the last change of the study.

        Args:
            left_s: Seconds that the sweep has left. None for the usual limit of 60 s.
            on_wait: Called if the copy takes more than 1 s, to tell the user about the wait.

        Returns:
            Age of the copy in seconds. 0 if the last copy is complete, so that nothing is missing.
        """
        self._closing.set()
        if self._thread is not None:
            self._thread.join(_ANNOUNCED_AFTER_S)
            if self._thread.is_alive():
                on_wait()
                limit_s = _END_S if left_s is None else left_s
                self._thread.join(max(0.0, limit_s - _ANNOUNCED_AFTER_S))
        return 0.0 if self._is_complete else time.monotonic() - self._as_of

    # --- work before the study is opened ------------------------------------------------------

    def _open(self, on_restore: Callable[[], None], is_stopped: Callable[[], bool]) -> bool:
        here = self._study_here()
        try:
            manifest = self._admitted(here, is_stopped)
            if manifest is None or here is not None:
                return False
            on_restore()
            self._mark = replace(
                self._mark,
                origin_id=manifest.copy_id,
                origin_generation=manifest.generation,
            )
            restore(self._store, manifest, self._contents, mark=self._mark, is_stopped=is_stopped)
            self._lease.check()
        except StoreError as error:
            remedy = "correct the URL, or the credentials in the environment"
            if not error.is_refusal:
                remedy = "the copy may have trials that this machine lacks, so try again later"
            raise SyncError(f"sync: {error}; {remedy}, or leave sync out") from error
        except (OSError, sqlite3.Error) as error:
            raise OutputError(
                f"{display_path(self._paths.folder)}: the study cannot be restored from "
                f"{self.display_url}: {first_line(error)}; make room or choose another folder, and "
                "give the same command again"
            ) from error
        return True

    def _study_here(self) -> _StudyHere | None:
        """Return the study on this machine. None if this machine does not have it."""
        if self._contents.storage is None:
            has_copied = LocalMarker.at(self._paths.copied) is not None
            return _StudyHere(study_id=None) if has_copied else None
        try:
            study_id = study_id_in(self._contents.storage, self._paths.study)
        except StudyError:
            # Opening the study will raise an error that names the problem.
            return _StudyHere(study_id=None)
        return None if study_id is None else _StudyHere(study_id=study_id)

    def _admitted(self, here: _StudyHere | None, is_stopped: Callable[[], bool]) -> Manifest | None:
        """Check that this process may write the copy, and take the lease of the copy.

        Args:
            here: The study on this machine. None if this machine does not have it.
            is_stopped: Returns whether the sweep was stopped.

        Returns:
            The manifest of the copy. None if there is no copy yet.

        Raises:
            SyncError: Another process writes the copy, the copy is damaged, or it does not belong
                to the study on this machine.
        """
        mark = LocalMarker.at(self._paths.copied)
        # Check this before the wait for the lease, too: nobody should wait for a refusal.
        self._continuable(here, mark)
        self._lease.wait_until_free(mark, is_stopped=is_stopped)
        manifest = self._continuable(here, mark)
        if manifest is not None:
            self._before = manifest
            self._mark = replace(self._mark, generation=manifest.generation)
        if mark is not None and here is not None:
            self._mark = replace(mark, generation=max(self._mark.generation, mark.generation))
        self._lease.take(self._mark.copy_id)
        return manifest

    def _continuable(self, here: _StudyHere | None, mark: LocalMarker | None) -> Manifest | None:
        """Check that this machine may continue the copy. Return the copy's manifest.

        Return None if there is no copy yet.

        Args:
            here: The study on this machine. None if this machine does not have it.
            mark: Marker in the study's folder. None if there is no marker.

        Raises:
            SyncError: The manifest is damaged, belongs to another study than the one on this
                machine, or is newer than that study.
        """
        data = self._store.get(_MANIFEST)
        try:
            manifest = None if data is None else Manifest.read(data)
        except ValueError as error:
            url = f"{self.display_url}/{_MANIFEST}"
            raise SyncError(
                f"sync: {url} is damaged: {first_line(error)}; choose another url"
            ) from error
        if manifest is not None and here is not None:
            self._refuse_other_history(manifest, here, mark)
        return manifest

    def _refuse_other_history(
        self, manifest: Manifest, here: _StudyHere, mark: LocalMarker | None
    ) -> None:
        replaced_id = None if mark is None else mark.replaced_id
        if here.study_id is not None and manifest.study_id not in (here.study_id, replaced_id):
            raise SyncError(
                f"sync: {self.display_url} is a copy of another study of this name; choose another "
                f"url, or begin another study with {self._paths.options_of_another}"
            )
        if mark is None or not mark.knows(manifest):
            folder = display_path(self._paths.folder)
            raise SyncError(
                f"sync: {self.display_url} is newer than the study in {folder}: another machine or "
                f"folder has continued it; move {folder} and "
                f"{display_path(self._paths.notebook('*'))} away to resume from the copy, or begin "
                f"another study with {self._paths.options_of_another}"
            )

    # --- the copying thread -------------------------------------------------------------------

    def _work(self) -> None:
        while not self._abandoned.is_set():
            is_last, began = self._closing.is_set(), time.monotonic()
            try:
                self._copy(is_last=is_last)
            except SyncError as error:
                _log.warning("%s; nothing more is copied", error)
                self._loss = error
                self._on_loss(error)
                return
            except Exception as error:  # noqa: BLE001  a defect here must not end the sweep
                _log.debug("copy", exc_info=True)
                if not self._has_failed:
                    self._has_failed, problem = True, first_line(error)
                    _log.warning(
                        "remote copy: %s; trials continue, and the copy is tried again", problem
                    )
            else:
                self._as_of = began
                if self._has_failed:
                    self._has_failed = False
                    _log.warning("remote copy: %s is up to date again", self.display_url)
                if is_last:
                    self._is_complete = True
                    return
            if not self._closing.is_set():
                self._pause()
            elif self._has_failed:
                self._abandoned.wait(_HURRIED_S)

    def _pause(self) -> None:
        end_s = time.monotonic() + self._every_s
        while (left_s := end_s - time.monotonic()) > 0:
            if self._closing.wait(min(left_s, _HURRIED_S)) or self._is_hurried:
                return

    def _copy(self, *, is_last: bool) -> None:
        self._contents.check_study()
        there = self._objects.look()
        before = {} if self._before is None else self._before.files
        databases = {
            name: self._objects.of_database(
                database, self._look_into if name == STUDY else lambda _: None
            )
            for name, database in self._contents.databases.items()
            if database.exists()
        }
        selection = Selection(
            contents=self._contents,
            objects=self._objects,
            begun=self._begun,
            before={name: entry for name, entry in before.items() if entry.object in there},
            is_last=is_last,
        )
        settled = {**databases, **selection.settled()}
        # Write a manifest before the new checkpoints of running trials are sent, because the sweep
        # may end while they are sent. Until then, the copy has their previous checkpoints, from
        # which trials can resume, too.
        self._write({**settled, **selection.checkpoints_before})
        self._write({**settled, **selection.checkpoints_of_running()})
        try:
            if self._needed is not None:
                self._objects.keep(self._needed, check=self._lease.check)
        except StoreError as error:
            # The credentials may allow writing objects, but not removing them.
            _log.info("remote copy: objects that are no longer needed remain: %s", error)

    def _look_into(self, study: Path) -> None:
        """Set `_begun` (the records of the study's trials, by number) and `_study_id`.

        Args:
            study: Snapshot of the study's database, from which they are read.
        """
        stored = Study.load(Address.of_file(study), self._paths.study, is_known=True)
        try:
            self._begun = {record.number: record for record in stored.records()}
            self._study_id = stored.study_id
        finally:
            stored.close()

    def _write(self, entries: Mapping[str, Entry]) -> None:
        """Write a new manifest, unless the previous one is of this folder and has the same files.

        Afterwards, `_needed` has the objects that must not be removed: those that the new or the
        previous manifest names.

        Args:
            entries: Files of the new manifest, by their names in the copy.
        """
        before, mark = self._before, replace(self._mark, generation=self._mark.generation + 1)
        if before is not None and (before.files, before.copy_id) == (entries, mark.copy_id):
            return
        manifest = Manifest(
            study=self._paths.study,
            study_id=self._study_id,
            copy_id=mark.copy_id,
            generation=mark.generation,
            template=self._paths.template,
            artifacts=self._paths.artifacts.as_uri(),
            files=entries,
        )
        if missing := self._objects.missing(manifest.objects):
            # The next copy sends these objects again.
            raise StoreError(f"{self.display_url}: {len(missing)} objects of the copy were removed")
        self._contents.check_study()  # The study may have been removed while it was read.
        # Write the marker before the manifest. If the process is killed between these two writes,
        # the copy must not seem newer than this folder.
        write_atomically(self._paths.copied, mark.text)
        self._lease.check()
        self._store.put(_MANIFEST, manifest.text.encode())
        self._before, self._mark = manifest, mark
        self._needed = manifest.objects | (before.objects if before else set())
