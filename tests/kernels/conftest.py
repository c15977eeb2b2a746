"""What the tests of kernels need."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def kernels_are_started(started_kernels: None) -> None:
    """Tests of how kernels come to be have such as users have."""
