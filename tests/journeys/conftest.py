"""What several journeys need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser for all tests of a module, as its start takes longer than most of them."""
    from browsing import opened_browser  # skips where Playwright is missing

    with opened_browser() as browser:
        yield browser
