"""Empty the stores of `memory://` for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fsspec.implementations.memory import MemoryFileSystem


@pytest.fixture(autouse=True)
def empty_memory() -> Iterator[None]:
    """Empty all stores of `memory://`, which share their content in a process."""
    MemoryFileSystem.store.clear()
    yield
    MemoryFileSystem.store.clear()
