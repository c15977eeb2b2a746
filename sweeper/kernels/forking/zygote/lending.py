"""Make this package importable in a kernel whose environment does not have it, and nothing else.

Also run as a text in kernels that are started, so it imports the standard library only.
"""

from __future__ import annotations

import os
import sys
from importlib.util import spec_from_file_location
from types import SimpleNamespace
from typing import Any

_NAME = "sweeper"


def lend(folder: str) -> None:
    """Find the package in a folder where no other finder has found it.

    Args:
        folder: of the package.
    """

    def find_spec(name: str, *_: object) -> Any:
        if name != _NAME:
            return None
        file = os.path.join(folder, "__init__.py")
        return spec_from_file_location(name, file, submodule_search_locations=[folder])

    # Last of all: a copy that the environment or the notebook's folder has comes first.
    sys.meta_path.append(SimpleNamespace(find_spec=find_spec))
