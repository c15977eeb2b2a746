"""What becomes of a kernel that cannot be reached any more before it has answered."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sweeper.kernels.manager import PrivateKernelManager

pytestmark = pytest.mark.kernel


def removed(file: Path) -> None:
    file.unlink()


def made_again(file: Path) -> None:
    """What ipykernel does that finds none: it makes one with a key of its own."""
    stated = json.loads(file.read_text())
    file.unlink()
    file.write_text(json.dumps({**stated, "key": "another"}))


@pytest.mark.parametrize("lose", [removed, made_again])
def test_a_kernel_whose_connection_file_was_lost_is_not_waited_for(
    lose: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tmp_path / "kernels" / "silent"
    spec.mkdir(parents=True)
    argv = ["sleep", "600"]
    kernel = {"argv": argv, "display_name": "silent", "language": "none"}
    (spec / "kernel.json").write_text(json.dumps(kernel))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))

    async def wait() -> None:
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            manager = PrivateKernelManager(folder=Path(folder), is_local=True, kernel_name="silent")
            await manager._async_start_kernel()
            client = manager.client()
            client.start_channels()
            lose(Path(manager.connection_file))
            try:
                await client.wait_for_ready(timeout=60)
            finally:
                client.stop_channels()
                await manager._async_shutdown_kernel(now=True)

    began_s = time.monotonic()
    with pytest.raises(RuntimeError, match="the folder with its sockets was removed"):
        asyncio.run(wait())
    assert time.monotonic() - began_s < 50
