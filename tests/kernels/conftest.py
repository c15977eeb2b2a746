"""Fixtures for the tests of kernels."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def kernels_are_started(started_kernels: None) -> None:
    """Let each kernel that jupyter_client starts in these tests be a new interpreter, as for users.

    In most other tests, `kernel_boots` forks it from a process that has imported ipykernel.
    """
