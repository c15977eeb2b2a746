"""Empty the stores of `memory://` for each test."""

from __future__ import annotations

from memory_stores import empty_memory  # noqa: F401
