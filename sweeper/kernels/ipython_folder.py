"""IPython's folder of a sweep's kernels: nothing of the user's, and no history on disk."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

#: Each kernel would have a database of its own, and a thread that writes to it. The name of the
#: database is the one that nbclient states.
_CONFIGURATION = {"HistoryManager": {"enabled": False, "hist_file": ":memory:"}}


def ipython_folder(runtime_folder: Path) -> Path:
    """The value of IPYTHONDIR in kernels."""
    return runtime_folder / "ipython"


def make_ipython_folder(runtime_folder: Path) -> None:
    """Make the folder with the kernels' configuration, unless it is there."""
    profile = ipython_folder(runtime_folder) / "profile_default"
    configuration = profile / "ipython_kernel_config.json"
    if not configuration.exists():
        profile.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Several threads may start kernels at once.
        with tempfile.NamedTemporaryFile("w", dir=profile, delete=False) as file:
            json.dump(_CONFIGURATION, file)
        os.replace(file.name, configuration)
