"""Fixtures that several journeys (tests of whole sweeps) use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Open a browser for all tests of a module, because its start takes longer than most tests."""
    from browsing import opened_browser  # skips where Playwright is missing

    with opened_browser() as browser:
        yield browser
