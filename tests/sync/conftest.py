"""Stores of `memory://`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fsspec.implementations.memory import MemoryFileSystem


@pytest.fixture(autouse=True)
def empty_memory() -> Iterator[None]:
    """All stores of `memory://` in a process share their content."""
    MemoryFileSystem.store.clear()
    yield
    MemoryFileSystem.store.clear()
