"""Settings of small studies, an MLflow store for them, and waiting for other threads."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from sweeper.settings import Settings
from sweeper.tracking.files import make_store


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


def put_mlflow_store(folder: Path) -> Path:
    """Put an empty MLflow store where sweeps with outputs in a folder have theirs.

    MLflow needs seconds to make the tables of one, so that they are made once for all tests.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(Path(_store_folder().name, "mlflow.db"), folder / "mlflow.db"))


@cache
def _store_folder() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory()  # removed when the tests end
    make_store(Path(folder.name, "mlflow.db"))
    return folder
