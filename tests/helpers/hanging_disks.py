"""A disk that never answers, on machines where this process may mount one."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

#: Maximum size of one message from the kernel's FUSE driver, in bytes.
_MOST_BYTES = 200_000
#: The answer to the driver's first message (INIT of FUSE 7.31): the protocol's version and sizes.
_WELCOME = struct.pack("IIIIHHI", 7, 31, 0, 0, 12, 10, 4096).ljust(64, b"\0")


@contextmanager
def hanging_disk(folder: Path) -> Iterator[Path]:
    """Mount a disk at a new folder while the block runs. Skip the test if this is impossible.

    The system blocks the first process that looks for a file there (state D). While the request is
    not answered, not even SIGKILL ends this process.
    """
    folder.mkdir()
    served = os.open("/dev/fuse", os.O_RDWR) if Path("/dev/fuse").exists() else -1
    options = f"fd={served},rootmode=40000,user_id=0,group_id=0".encode()
    if ctypes.CDLL(None).mount(b"none", bytes(folder), b"fuse", 0, options) != 0:
        pytest.skip("this process may not mount a disk of its own")
    try:
        _, _, unique = struct.unpack_from("IIQ", os.read(served, _MOST_BYTES))
        os.write(served, struct.pack("IiQ", 16 + len(_WELCOME), 0, unique) + _WELCOME)
        threading.Thread(target=_take_one, args=[served], daemon=True).start()
        yield folder
    finally:
        # This makes waiting calls fail.
        subprocess.run(["umount", "-f", "-l", str(folder)], check=True)
        os.close(served)


def _take_one(served: int) -> None:
    with suppress(OSError):  # the disk was unmounted
        os.read(served, _MOST_BYTES)
