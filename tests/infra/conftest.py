"""The programs of `infra/` are no part of the package: tests import them from their folder."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "infra"))
