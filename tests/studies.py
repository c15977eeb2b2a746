"""Settings of small studies, and waiting for other threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sweeper.settings import Settings


def small_settings(name: str, **changes: Any) -> Settings:
    """Settings of a study with one objective and one dimension, of which a test states the rest."""
    usual = {"objective": {"val": "maximize"}, "space": {"x": {"low": 0.0, "high": 1.0}}}
    study = {"name": name, "trials": 9, "sampler": "random", **changes.get("study", {})}
    return Settings.from_mapping({**usual, **changes, "study": study})


def until(holds: Callable[[], object], limit_s: float = 20.0) -> None:
    """Return when something holds."""
    deadline_s = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline_s, "it has not happened"
        time.sleep(0.002)
