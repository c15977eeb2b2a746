"""A browser and a server for tests of pages; importing it skips a module without Playwright."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from studies import until

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

#: The marks of every module with tests in a browser.
MARKS = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]


@contextmanager
def opened_browser() -> Iterator[Any]:
    """A browser without a page."""
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened_page(browser: Any, *, width: int, height: int) -> Iterator[Any]:
    """An empty page, which shares cookies and storage with no other one."""
    page = browser.new_page(viewport={"width": width, "height": height})
    page.set_default_timeout(60_000)
    yield page
    page.close()


@contextmanager
def serving(
    command: Callable[[int], Sequence[str | Path]],
    *,
    folder: Path,
    path: str,
    env: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """The address of a server that runs meanwhile.

    Args:
        command: starts it at a port of this machine.
        folder: its working folder.
        path: answers when the server is ready.
        env: variables that it has besides ours.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            urllib.request.urlopen(f"{address}{path}", timeout=5).close()
        except OSError:
            return False
        return True

    process = subprocess.Popen(
        command(port),
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **(env or {})},
    )
    try:
        until(answers)
        yield address
    finally:
        process.terminate()
        process.wait()
