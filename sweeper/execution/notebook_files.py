"""Choose the files next to the notebook that each trial writes under the same name.

All trials of a sweep run in the notebook's folder. A notebook that saves its best model as
`best.pt` overwrites the file of the trial before, and may read that of a trial beside it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path


def named_in(code: str, paths: Sequence[str]) -> tuple[str, ...]:
    """Return the paths of files whose names stand in the code of the trials.

    A text in the code must end with the name, alone or behind a folder. So a file whose name is
    made of a trial's params or run id is not one of them. The language of the code does not matter.
    """
    return tuple(
        path
        for path in paths
        if re.search(rf"""['"/\\]{re.escape(Path(path).name)}['"]""", code) is not None
    )
