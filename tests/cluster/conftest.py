"""A Dask cluster on this machine, whose workers the tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dask_clusters import started


@pytest.fixture(scope="module")
def two_slots() -> Iterator[str]:
    """The address of a scheduler with one worker of two threads."""
    with started(workers=1, threads=2) as address:
        yield address
