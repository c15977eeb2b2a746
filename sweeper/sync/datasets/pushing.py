"""Put a folder into a store: its objects first, then the manifest, and last the head.

A push that is killed leaves the head as it was, so no machine ever uses half of it. The next one
sends only what the store lacks.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Sequence

from ...errors import DataError
from .folder import DataFolder, disk_error
from .manifest import DataFile, DataObject, Manifest, Piece, cut
from .parallel import in_parallel
from .progress import OnLine, Progress
from .remote import RemoteData

_AT_ONCE = 12


def never() -> bool:
    """Nobody stops it but by ending the process."""
    return False


def send(
    folder: DataFolder,
    remote: RemoteData,
    files: Sequence[DataFile],
    on_line: OnLine,
    is_stopped: Callable[[], bool] = never,
) -> tuple[Manifest, int]:
    """Send what the store lacks of some files, and publish them as the newest version.

    Returns:
        the manifest, and how many bytes were sent.

    Raises:
        DataError: a file has changed meanwhile, or disk or store fail for good.
    """
    there = remote.objects()
    packs = list(enumerate(cut(files)))
    progress = Progress(
        f"pushing {folder} to {remote.display_url}", sum(it.size_bytes for it in files), on_line
    )

    def send_one(
        item: tuple[int, list[Piece]], ending: threading.Event
    ) -> tuple[int, DataObject, int]:
        index, pieces = item
        content = b"".join(_read(folder, piece) for piece in pieces)
        made = DataObject(hashlib.sha256(content).hexdigest(), len(content))
        n_sent = 0
        if made.name not in there:
            remote.put(made.name, content, ending)
            n_sent = len(content)
        progress.add(len(content))
        return index, made, n_sent

    objects: dict[int, DataObject] = {}
    sent_bytes = 0
    try:
        for index, made, n_sent in in_parallel(
            packs, send_one, at_once=_AT_ONCE, tick=progress.tick, is_stopped=is_stopped
        ):
            objects[index] = made
            sent_bytes += n_sent
    except OSError as error:
        raise disk_error(folder, error) from error
    return Manifest(files, [objects[index] for index, _ in packs]), sent_bytes


def _read(folder: DataFolder, piece: Piece) -> bytes:
    with open(folder.path / piece.file.name, "rb") as opened:
        content = os.pread(opened.fileno(), piece.size_bytes, piece.offset)
    is_same = piece.offset > 0 or not piece.is_whole
    if len(content) != piece.size_bytes or not (
        is_same or hashlib.sha256(content).hexdigest() == piece.file.sha256
    ):
        raise DataError(f"data: {folder}/{piece.file.name} has changed while it was pushed; again")
    return content
