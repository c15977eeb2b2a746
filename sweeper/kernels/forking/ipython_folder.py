"""Make a folder for IPython in a sweep's kernels, without the user's configuration and history."""

from __future__ import annotations

from pathlib import Path

from ...files import copy_atomically, make_private_folder

_CONFIGURATION = Path(__file__).parent / "zygote" / "kernel_config.py"


def ipython_folder(runtime_folder: Path) -> str:
    """Return the folder that kernels use as IPYTHONDIR. It contains their configuration.

    The folder and the sweep's private folder around it are made if they are missing. A clean-up of
    /tmp may have removed the private folder, and another user may have made a folder in its place.

    Raises:
        OSError: The folders cannot be made, or other users can enter the private folder.
    """
    make_private_folder(runtime_folder)
    profile = runtime_folder / "ipython" / "profile_default"
    configuration = profile / "ipython_kernel_config.py"
    if not configuration.exists():
        profile.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy_atomically(_CONFIGURATION, configuration)  # Several threads may copy at once.
    return str(profile.parent)
