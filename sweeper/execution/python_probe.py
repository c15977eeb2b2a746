"""Print the version of the Python that runs this script, and its packages, as JSON.

The interpreter of the kernels runs this script, so it imports only the standard library. It reads
versions from the names of the folders that pip makes. `importlib.metadata` is slower, because it
reads a file of each package.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

_METADATA = re.compile(r"([^-]+)-([^-]+)(-[^-]+)*\.(dist|egg)-info")


def packages_in(folders: Sequence[str]) -> dict[str, str]:
    """Return the versions of the packages in folders, by normalized name.

    Args:
        folders: Folders in the order of `sys.path`. The first version of a package counts.
    """
    found: dict[str, str] = {}
    for folder in folders:
        for path in sorted(Path(folder).glob("*-info")):
            if match := _METADATA.fullmatch(path.name):
                found.setdefault(re.sub(r"[-_.]+", "-", match[1]).lower(), match[2])
    return found


if __name__ == "__main__":
    del sys.path[0]  # The first entry is the folder of this script, which kernels do not search.
    python = {
        "implementation": sys.implementation.name,
        "version": ".".join(map(str, sys.version_info[:3])),
        "executable": sys.executable,
        "packages": packages_in(sys.path),
    }
    json.dump(python, sys.stdout)
