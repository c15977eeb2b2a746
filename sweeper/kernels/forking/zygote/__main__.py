"""Start the zygote."""

from __future__ import annotations

import importlib.util
import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))
if sys.path and sys.path[0] == _FOLDER:
    # Python adds this script's folder, and a started kernel does not have the folder in its path.
    del sys.path[0]

# The files of this package are loaded from their folder, because the kernel's interpreter may lack
# the package. The name is an unusual one, so that no notebook imports these files by accident.
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
