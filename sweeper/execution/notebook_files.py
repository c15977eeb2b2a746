"""Find out which files next to the notebook every trial writes under the same name.

All trials of a sweep run in the notebook's folder. A notebook that saves its best model as
`best.pt` overwrites the file of an earlier trial, and may read the file of a trial that runs at the
same time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path


def named_in(code: str, paths: Sequence[str]) -> tuple[str, ...]:
    """Return the paths of the files whose names the code of the trials contains.

    The name must be the end of a string literal, alone or after a folder. So a file whose name is
    built from a trial's params or run id is left out: no other trial writes it. The language of the
    code does not matter.
    """
    return tuple(
        path
        for path in paths
        if re.search(rf"""['"/\\]{re.escape(Path(path).name)}['"]""", code) is not None
    )
