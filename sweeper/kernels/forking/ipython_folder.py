"""IPython's folder of a sweep's kernels: nothing of the user's, no history on disk, no debugger."""

from __future__ import annotations

from pathlib import Path

from ...files import copy_atomically, make_private_folder

_CONFIGURATION = Path(__file__).parent / "zygote" / "kernel_config.py"


def ipython_folder(runtime_folder: Path) -> str:
    """Return the value of IPYTHONDIR in kernels: a folder with their configuration.

    It is made if need be, and so is the sweep's private folder: a clean-up of /tmp may have removed
    that, and anybody may have made another in its place.

    Raises:
        OSError: The folders cannot be made, or the private one is not private.
    """
    make_private_folder(runtime_folder)
    profile = runtime_folder / "ipython" / "profile_default"
    configuration = profile / "ipython_kernel_config.py"
    if not configuration.exists():
        profile.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy_atomically(_CONFIGURATION, configuration)  # several threads may start kernels at once
    return str(profile.parent)
