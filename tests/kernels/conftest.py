"""Fixtures for the tests of kernels."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def kernels_are_started(started_kernels: None) -> None:
    """Use the default `kernels` setting of users in tests of how kernels are made."""
