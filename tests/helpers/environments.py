"""Virtual environments whose packages are those of this environment."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path


def environment(folder: Path, *, with_ipykernel: bool = True) -> str:
    """Make a virtual environment, and return the path of its interpreter.

    Args:
        with_ipykernel: Whether it has this environment's packages, such as ipykernel, or none.
    """
    command = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(command, check=True)
    if with_ipykernel:
        packages = sysconfig.get_path("purelib", vars={"base": str(folder)})
        Path(packages, "others.pth").write_text(sysconfig.get_path("purelib"))
    return str(folder / "bin" / "python")
