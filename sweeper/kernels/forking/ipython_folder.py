"""Make IPython's folder for a sweep's kernels: without the user's configuration and history."""

from __future__ import annotations

from pathlib import Path

from ...files import copy_atomically, make_private_folder

_CONFIGURATION = Path(__file__).parent / "zygote" / "kernel_config.py"


def ipython_folder(runtime_folder: Path) -> str:
    """Return the value of IPYTHONDIR for kernels: a folder with their configuration.

    Make the folder and the sweep's private folder if they are missing. A clean-up of /tmp may have
    removed the private folder, and another user may have made one in its place.

    Raises:
        OSError: The folders cannot be made, or other users can enter the private folder.
    """
    make_private_folder(runtime_folder)
    profile = runtime_folder / "ipython" / "profile_default"
    configuration = profile / "ipython_kernel_config.py"
    if not configuration.exists():
        profile.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy_atomically(_CONFIGURATION, configuration)  # threads may copy at the same time
    return str(profile.parent)
