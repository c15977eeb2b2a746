"""Print what the Python that runs this script is, and which packages it has.

The kernels' own interpreter runs it, so it imports the standard library only. The names of the
folders that pip makes have the versions already: `importlib.metadata` would read each file.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

_METADATA = re.compile(r"([^-]+)-([^-]+)(-[^-]+)*\.(dist|egg)-info")


def packages_in(folders: Sequence[str]) -> dict[str, str]:
    """The versions of the packages in folders, by their names as pip writes them.

    Args:
        folders: in the order in which modules are looked for.
    """
    found: dict[str, str] = {}
    for folder in folders:
        for path in sorted(Path(folder).glob("*-info")):
            if match := _METADATA.fullmatch(path.name):
                found.setdefault(re.sub(r"[-_.]+", "-", match[1]).lower(), match[2])
    return found


if __name__ == "__main__":
    del sys.path[0]  # of this script
    python = {
        "implementation": sys.implementation.name,
        "version": ".".join(map(str, sys.version_info[:3])),
        "executable": sys.executable,
        "packages": packages_in(sys.path),
    }
    json.dump(python, sys.stdout)
