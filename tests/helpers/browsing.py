"""A browser for tests of pages. Modules that import this one are skipped without Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip(
    "playwright.sync_api", reason="needs Playwright: uv run --group dev pytest"
)
#: The programs by which systems know Chromium, in the order of preference.
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

#: The marks of every module with tests in a browser. The browser comes before all other fixtures,
#: so that nothing is prepared if there is no browser.
MARKS = [pytest.mark.browser, pytest.mark.slow, pytest.mark.usefixtures("browser")]


@contextmanager
def opened_browser() -> Iterator[Any]:
    """Open the system's Chromium, or else Playwright's. Skip the test if there is neither."""
    with playwright.sync_playwright() as started:
        path = next(filter(None, map(shutil.which, PROGRAMS)), started.chromium.executable_path)
        if not Path(path).exists():
            pytest.skip(f"needs Chromium: none of {', '.join(PROGRAMS)}, and none of Playwright's")
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened_page(browser: Any, *, width: int, height: int) -> Iterator[Any]:
    """Open an empty page that shares no cookies or storage with other pages."""
    page = browser.new_page(viewport={"width": width, "height": height})
    page.set_default_timeout(60_000)
    yield page
    page.close()
