"""Fetch the files of a version that a folder lacks, and go on where a killed fetch was.

Each file is put together under another name and renamed when all of it has arrived and its bytes
have the hash of the manifest. A fetch that was killed leaves whole files, which are verified and
not fetched again, and parts of large ones, of which the pieces with the right hash are kept.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from ...errors import DataError
from ...settings.units import size
from .folder import DataFolder, disk_error
from .manifest import DataFile, DataObject, Manifest, Piece
from .parallel import in_parallel
from .progress import OnLine, Progress
from .remote import RemoteData

#: With 16 MB each they fill a fast line and take some 400 MB of memory.
_AT_ONCE = 12
#: What stays free on the disk.
_RESERVE_BYTES = 100_000_000
_TRIES = 3


class Fetch:
    """One fetch of the files that a folder lacks, made for it and run once.

    Args:
        missing: files of the manifest that the folder lacks.
    """

    def __init__(
        self,
        folder: DataFolder,
        remote: RemoteData,
        manifest: Manifest,
        missing: Sequence[DataFile],
    ) -> None:
        self._folder = folder
        self._remote = remote
        self._missing = {file.name: file for file in missing}
        pieces = zip(manifest.objects, manifest.pieces(), strict=True)
        self._needed = [
            (it, found)
            for it, all_pieces in pieces
            if (found := [piece for piece in all_pieces if piece.file.name in self._missing])
        ]
        self._left = Counter(piece.file.name for _, found in self._needed for piece in found)
        self._lock = threading.Lock()

    def run(self, on_line: OnLine, is_stopped: Callable[[], bool]) -> None:
        """Fetch until all is there or the user stops.

        Raises:
            DataError: the disk or the store fails for good.
        """
        try:
            self._check_room()
            for file in self._missing.values():
                if file.size_bytes == 0:
                    self._folder.part(file).touch()
                    self._folder.put_in_place(file)
            self._keep_parts(on_line, is_stopped)
            total = sum(it.size_bytes for it, _ in self._needed)
            on_line(
                f"fetching {self._folder} from {self._remote.display_url}: {len(self._missing)} "
                f"file{'s' if len(self._missing) != 1 else ''}, {size(total)}"
            )
            progress = Progress(f"fetching {self._folder}", total, on_line)

            def fetch(item: tuple[DataObject, list[Piece]], ending: threading.Event) -> None:
                self._fetch(*item, ending)
                progress.add(item[0].size_bytes)

            for _ in in_parallel(
                self._needed, fetch, at_once=_AT_ONCE, tick=progress.tick, is_stopped=is_stopped
            ):
                pass
        except OSError as error:
            raise disk_error(self._folder, error) from error

    def _check_room(self) -> None:
        needed = sum(file.size_bytes for file in self._missing.values())
        for file in self._missing.values():
            part = self._folder.part(file)
            if self._left[file.name] > 1 and part.exists():
                needed -= min(needed, part.stat().st_blocks * 512)
        check_room(self._folder, needed)

    def _keep_parts(self, on_line: OnLine, is_stopped: Callable[[], bool]) -> None:
        """Leave out the objects whose bytes a killed fetch has put into a part already."""
        begun = [
            item
            for item in self._needed
            if not item[1][0].is_whole and self._part_of(item).exists()
        ]
        progress = Progress(
            f"verifying what has arrived in {self._folder}",
            sum(it.size_bytes for it, _ in begun),
            on_line,
        )

        def check(item: tuple[DataObject, list[Piece]], _ending: threading.Event) -> Piece | None:
            wanted, (piece,) = item
            with open(self._part_of(item), "rb") as part:
                data = os.pread(part.fileno(), wanted.size_bytes, piece.offset)
            progress.add(wanted.size_bytes)
            return piece if hashlib.sha256(data).hexdigest() == wanted.sha256 else None

        checked = in_parallel(
            begun, check, at_once=_AT_ONCE, tick=progress.tick, is_stopped=is_stopped
        )
        there = {piece for piece in checked if piece is not None}
        self._needed = [item for item in self._needed if item[1][0] not in there]
        for piece in there:
            self._end_piece(piece)

    def _part_of(self, item: tuple[DataObject, list[Piece]]) -> Path:
        return self._folder.part(item[1][0].file)

    def _fetch(self, wanted: DataObject, pieces: list[Piece], ending: threading.Event) -> None:
        for _ in range(_TRIES):
            if ending.is_set():
                return
            data = self._remote.get(wanted, ending)
            if hashlib.sha256(data).hexdigest() == wanted.sha256:
                break
        else:
            raise DataError(
                f"data.from: {self._remote.display_url}/{wanted.name} has other bytes than were "
                "pushed; remove that object there and push the data again"
            )
        view = memoryview(data)
        for piece in pieces:
            self._write(piece, view[piece.start : piece.start + piece.size_bytes])

    def _write(self, piece: Piece, data: memoryview) -> None:
        part = os.open(self._folder.part(piece.file), os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            offset = piece.offset
            while data:
                written = os.pwrite(part, data, offset)
                offset, data = offset + written, data[written:]
        finally:
            os.close(part)
        self._end_piece(piece)

    def _end_piece(self, piece: Piece) -> None:
        with self._lock:
            self._left[piece.file.name] -= 1
            is_whole = self._left[piece.file.name] == 0
        if is_whole:
            self._folder.put_in_place(piece.file)


def check_room(folder: DataFolder, needed_bytes: int) -> None:
    """Refuse a fetch that the disk has no room for.

    Raises:
        DataError: with both sizes.
    """
    free = folder.free_bytes()
    if needed_bytes + _RESERVE_BYTES > free:
        raise DataError(
            f"data.path: {size(needed_bytes)} are missing in {folder}, and {size(free)} are free "
            "there; make room, or set data.path to a larger disk"
        )
