"""Start the zygote: the process that the kernels of a sweep are forked from."""

from __future__ import annotations

import importlib.util
import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))
if sys.path and sys.path[0] == _FOLDER:
    # Python adds the folder of this script to `sys.path`. A fresh kernel does not have it there.
    del sys.path[0]

# Load the files of this package from their folder, because the environment of the kernel may lack
# the package `sweeper`. The name is unusual, so that no notebook imports these files by accident.
_NAME = "_sweeper_zygote"
_spec = importlib.util.spec_from_file_location(
    _NAME, os.path.join(_FOLDER, "__init__.py"), submodule_search_locations=[_FOLDER]
)
assert _spec is not None and _spec.loader is not None
sys.modules[_NAME] = importlib.util.module_from_spec(_spec)

if __name__ == "__main__":
    ending = importlib.import_module(f"{_NAME}.exit").FastExit()
    importlib.import_module(f"{_NAME}.forked").serve_forks(
        sys.argv[1], owner=int(sys.argv[2]), ending=ending
    )
