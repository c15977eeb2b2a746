"""The user's cache on this machine, for what several studies use."""

from __future__ import annotations

import tempfile
from pathlib import Path

from platformdirs import user_cache_path


def cache_folder(name: str) -> Path:
    """A folder of ours in the user's cache, which need not exist; without a home, in /tmp."""
    folder = user_cache_path("notebook-hpo") / name
    return folder if folder.is_absolute() else Path(tempfile.gettempdir(), "notebook-hpo", name)
