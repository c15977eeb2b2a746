"""A Dask cluster on this machine, whose workers the tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dask_clusters import started


@pytest.fixture(scope="module")
def two_slots() -> Iterator[str]:
    """Start a scheduler with one worker of two threads. Yield the scheduler's address."""
    with started(workers=1, threads=2) as address:
        yield address
