"""Print what the Python that runs this script is, and which packages it has.

The names of modules may follow it: those that cannot be imported are listed as missing. The
kernels' own interpreter runs it, so it imports the standard library only. The names of the
folders that pip makes have the versions already: `importlib.metadata` would read each file.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Sequence

_METADATA = re.compile(r"([^-]+)-([^-]+)(-[^-]+)*\.(dist|egg)-info")


def packages_in(folders: Sequence[str]) -> dict[str, str]:
    """The versions of the packages in folders, by their names as pip writes them.

    Args:
        folders: in the order in which modules are looked for.
    """
    found: dict[str, str] = {}
    for folder in folders:
        try:
            names = os.listdir(folder)
        except OSError:  # a zip file, or a folder that does not exist
            continue
        for match in filter(None, map(_METADATA.fullmatch, sorted(names))):
            found.setdefault(re.sub(r"[-_.]+", "-", match[1]).lower(), match[2])
    return found


def is_there(module: str) -> bool:
    """Whether a top-level module can be found."""
    try:
        return module in sys.modules or importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


if __name__ == "__main__":
    del sys.path[0]  # of this script
    python = {
        "implementation": sys.implementation.name,
        "version": ".".join(map(str, sys.version_info[:3])),
        "executable": sys.executable,
        "packages": packages_in(sys.path),
    }
    if modules := sys.argv[1:]:
        python["missing"] = [module for module in modules if not is_there(module)]
    json.dump(python, sys.stdout)
