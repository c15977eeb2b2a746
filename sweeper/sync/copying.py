"""The remote copy of a study, which a thread keeps up to date while the study is swept."""

from __future__ import annotations

import logging
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ..errors import OutputError, StudyError, SyncError, first_line
from ..files import write_atomically
from ..guard import mark_of
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
from .store import Store, StoreError

_log = logging.getLogger(__name__)

_MANIFEST = "manifest.json"
#: The pause between two copies when there is not much time, as at the sweep's end.
_HURRIED_S = 1.0
#: How long the end of a sweep waits until the lease is released.
_PATIENCE_S = 5.0
#: How long the end of a sweep waits for the copy, and how long before it reports the wait.
_END_S, _ANNOUNCED_AFTER_S = 60.0, 1.0


class RemoteCopy:
    """Copies at intervals what has changed; no trial waits for the copy.

    Objects are named by the hash of their content and never changed. The manifest, which lists the
    objects of the copy, is written last: an interrupted copy leaves the previous one in place.

    Args:
        url: the folder of all copies; the copy of this study lies in a subfolder.
        every_s: the pause after each copy.
        storage: as `Contents` has it; `tracking` likewise.

    Raises:
        SettingsError: fsspec cannot open such a URL here.
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
        self._lease = RemoteLease(self._store, every_s=every_s)
        self._copy_id = secrets.token_hex(8)
        self._generation = 0
        self._before: Manifest | None = None
        self._objects = Objects(self._store, mark=mark_of(paths.folder))
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
    def opened(self, on_restore: Callable[[], None]) -> Iterator[bool]:
        """Hold the lease of the copy while the study's folder is locked.

        Args:
            on_restore: called before a study is restored.

        Yields:
            whether the study was restored from the copy.

        Raises:
            SyncError: the copy cannot be used, or another process holds its lease.
            OutputError: a file of another origin is in the way of a restored one.
        """
        try:
            yield self._open(on_restore)
        finally:
            self._closing.set()
            self._abandoned.set()
            # On a thread, because a store that hangs must not delay the sweep's end for long.
            releasing = threading.Thread(target=self._lease.release, daemon=True)
            releasing.start()
            releasing.join(_HURRIED_S if self._is_hurried else _PATIENCE_S)

    def start(self) -> None:
        """Keep the copy up to date from now on."""
        self._as_of = time.monotonic()
        self._thread = threading.Thread(target=self._work, name="copy", daemon=True)
        self._thread.start()

    def when_lost(self, call: Callable[[SyncError], object]) -> None:
        """Call a function, perhaps from another thread, once the copy is another machine's."""
        self._on_loss = call
        if self._loss is not None:  # perhaps for the second time
            call(self._loss)

    def hurry(self) -> None:
        """From now on copy nearly without pauses, because there will not be much time at the end.

        Safe to call from a signal handler.
        """
        self._is_hurried = True

    def end(self, *, left_s: float | None, on_wait: Callable[[], None]) -> float:
        """Copy what has changed for the last time, after the study's last change.

        Args:
            left_s: how much time is left; None for the usual limit.
            on_wait: called when the copy takes so long that the wait should be reported.

        Returns:
            how many seconds the copy is behind; 0 when it is complete.
        """
        self._closing.set()
        if self._thread is not None:
            self._thread.join(_ANNOUNCED_AFTER_S)
            if self._thread.is_alive():
                on_wait()
                limit_s = _END_S if left_s is None else left_s
                self._thread.join(max(0.0, limit_s - _ANNOUNCED_AFTER_S))
        return 0.0 if self._is_complete else time.monotonic() - self._as_of

    # --- before the study is open -------------------------------------------------------------

    def _open(self, on_restore: Callable[[], None]) -> bool:
        here = self._study_here()
        try:
            manifest = self._admitted(here)
            if manifest is None or here is not None:
                return False
            on_restore()
            mark = LocalMarker(copy_id=self._copy_id, generation=manifest.generation)
            restore(self._store, manifest, self._contents, mark=mark)
            self._lease.check()
        except StoreError as error:
            remedy = "look at the URL and the credentials in the environment"
            if not error.is_refusal:
                remedy = "the copy may have more of this study than this machine; try again later"
            raise SyncError(f"sync: {error}; {remedy}, or leave sync out") from error
        except (OSError, sqlite3.Error) as error:
            raise OutputError(
                f"{display_path(self._paths.folder)}: the study cannot be brought back from "
                f"{self.display_url}: {first_line(error)}; make room or choose another folder, and "
                "give the same command again"
            ) from error
        return True

    def _study_here(self) -> str | None:
        """The id of the study on this machine, empty if unknown; None where there is no study."""
        if self._contents.storage is None:
            return "" if LocalMarker.at(self._paths.copied) is not None else None
        try:
            return study_id_in(self._contents.storage, self._paths.study)
        except StudyError:
            return ""  # opening the study will raise an error that names the problem

    def _admitted(self, here: str | None) -> Manifest | None:
        """Take the lease of the copy, unless the copy is another's; return the copy's manifest."""
        mark = LocalMarker.at(self._paths.copied)
        self._lease.refuse_if_alive(mark)
        data = self._store.get(_MANIFEST)
        try:
            manifest = None if data is None else Manifest.read(data)
        except ValueError as error:
            url = f"{self.display_url}/{_MANIFEST}"
            raise SyncError(f"sync: {url} is damaged: {first_line(error)}") from error
        if manifest is not None:
            if here is not None:
                self._refuse_other_history(manifest, here, mark)
            self._before, self._generation = manifest, manifest.generation
        if mark is not None and here is not None:
            self._copy_id = mark.copy_id
            self._generation = max(self._generation, mark.generation)
        self._lease.take(self._copy_id)
        return manifest

    def _refuse_other_history(
        self, manifest: Manifest, here: str, mark: LocalMarker | None
    ) -> None:
        if here and manifest.study_id != here:
            raise SyncError(
                f"sync: {self.display_url} is a copy of another study of this name; choose another "
                f"url, or begin another study with {self._paths.options_of_another}"
            )
        is_this_folders = mark is not None and mark.copy_id == manifest.copy_id
        if mark is None or not is_this_folders or manifest.generation > mark.generation:
            folder = display_path(self._paths.folder)
            raise SyncError(
                f"sync: {self.display_url} has what the study in {folder} has not: another machine "
                f"or folder has continued it; move {folder} away to go on from the copy, or begin "
                f"another study with {self._paths.options_of_another}"
            )

    # --- the thread ---------------------------------------------------------------------------

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
                    _log.warning("remote copy: %s; trials go on, and it is tried again", problem)
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
        # A running trial can go on from an older checkpoint, and an upload may never end.
        self._write({**settled, **selection.checkpoints_before})
        self._write({**settled, **selection.checkpoints_of_running()})

    def _look_into(self, study: Path) -> None:
        """Note the trials that a copied state of the study's database has."""
        stored = Study.load(Address.of_file(study), self._paths.study, is_known=True)
        try:
            self._begun = {record.number: record for record in stored.records()}
            self._study_id = stored.study_id
        finally:
            stored.close()

    def _write(self, entries: Mapping[str, Entry]) -> None:
        """Write a new manifest; remove the objects that neither it nor the previous one names."""
        before, generation = self._before, self._generation + 1
        if before is not None and (before.files, before.copy_id) == (entries, self._copy_id):
            return
        manifest = Manifest(
            study=self._paths.study,
            study_id=self._study_id,
            copy_id=self._copy_id,
            generation=generation,
            template=self._paths.template,
            artifacts=self._paths.artifacts.as_uri(),
            files=entries,
        )
        # The marker comes first: after a kill in between, the copy must not look newer than this
        # folder.
        mark = LocalMarker(copy_id=self._copy_id, generation=generation)
        if missing := self._objects.missing(manifest.objects):  # the next copy sends them again
            raise StoreError(f"{self.display_url}: {len(missing)} objects are not there any more")
        self._contents.check_study()  # the study may have been removed while it was read
        write_atomically(self._paths.copied, mark.text)
        self._lease.check()
        self._store.put(_MANIFEST, manifest.text.encode())
        self._before, self._generation = manifest, generation
        needed = manifest.objects | (before.objects if before else set())
        self._objects.keep(needed, check=self._lease.check)
