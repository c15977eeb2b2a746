"""Let tests import the programs in `infra/`, which are not part of the package."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "infra"))
