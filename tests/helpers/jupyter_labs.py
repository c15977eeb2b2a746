"""JupyterLab for tests. Tests are skipped without it, because it is no development dependency."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from studies import until

#: The folder with the programs of this environment.
_PROGRAMS = Path(sys.executable).parent
#: A server that has not ended this many seconds after SIGTERM is killed (chosen).
_END_S = 20.0


class Lab:
    """A JupyterLab that serves a folder, and a browser.

    Args:
        url: Address of the server.
        browser: Browser.
    """

    def __init__(self, url: str, browser: Any) -> None:
        self._url, self._browser = url, browser

    @contextmanager
    def opened(self, notebook: str, *, width: int = 1280, dark: bool = False) -> Iterator[Any]:
        """Open a notebook of the folder. Yield the browser's page."""
        scheme = "dark" if dark else "light"
        page = self._browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.set_default_timeout(60_000)
        page.goto(f"{self._url}/lab/tree/{notebook}?reset")
        page.locator(".jp-NotebookPanel .jp-Cell").first.wait_for()
        yield page
        page.close()

    def run(self, page: Any) -> None:
        """Run all cells of the open notebook, wait until they have ended, and save it."""
        page.get_by_text("| Idle").wait_for()
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        code = page.locator(".jp-CodeCell .jp-InputPrompt")
        until(lambda: all(text.strip("[]:").isdigit() for text in code.all_inner_texts()))
        page.keyboard.press("Control+s")
        page.locator(".jp-DirtyIndicator, .jp-mod-dirty").first.wait_for(state="detached")


@contextmanager
def opened_lab(folder: Path, browser: Any, settings: Path) -> Iterator[Lab]:
    """Serve a folder with JupyterLab, whose kernels have this environment.

    Args:
        folder: Folder with notebooks.
        browser: Browser.
        settings: Folder for the server's own files.
    """
    program = _PROGRAMS / "jupyter-lab"
    if not program.exists():
        pytest.skip("needs JupyterLab: uv run --group dev --group jupyter pytest")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {f"JUPYTER_{name}_DIR": str(settings / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    own |= {f"JUPYTERLAB_{name}_DIR": str(settings / name) for name in ("SETTINGS", "WORKSPACES")}
    options = [
        *("--no-browser", "--allow-root", f"--port={port}", "--ServerApp.port_retries=0"),
        *("--IdentityProvider.token=", f"--ServerApp.root_dir={folder}"),
        "--LabApp.news_url=None",
    ]
    log = (settings / "log").open("wb")
    with (
        log,
        subprocess.Popen(
            [program, *options], env={**os.environ, **own}, stdout=log, stderr=log
        ) as server,
    ):
        url = f"http://127.0.0.1:{port}"
        try:
            until(lambda: _answers(f"{url}/api"))
            yield Lab(url, browser)
        finally:
            server.terminate()
            try:
                server.wait(_END_S)
            except subprocess.TimeoutExpired:  # An idle thread of anyio can keep the server alive.
                server.kill()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url):
            return True
    except (urllib.error.URLError, ConnectionError):
        return False
