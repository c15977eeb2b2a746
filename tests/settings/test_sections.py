"""Values of the sections that need more than their type."""

from __future__ import annotations

import pytest
from parameters_files import SMALLEST, Load


@pytest.mark.parametrize("gpus", ["auto", "none"])
def test_gpus_may_be_all_or_none(load_settings: Load, gpus: str) -> None:
    assert load_settings(SMALLEST + f"resources: {{gpus: {gpus}}}").resources.gpus == gpus
