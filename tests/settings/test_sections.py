"""Values of the sections that need more than their type."""

from __future__ import annotations

import pytest
from parameters_files import SMALLEST, Load
from pydantic import ValidationError

from sweeper.settings.machines import Cluster, is_exposed


@pytest.mark.parametrize("gpus", ["auto", "none"])
def test_gpus_may_be_all_or_none(load_settings: Load, gpus: str) -> None:
    assert load_settings(SMALLEST + f"resources: {{gpus: {gpus}}}").resources.gpus == gpus


@pytest.mark.parametrize(
    ("address", "is_refused"),
    [
        ("tcp://10.0.0.5:8786", True),
        ("tcp://scheduler:8786", True),
        ("ws://[2001:db8::1]:8786", True),
        ("tls://10.0.0.5:8786", False),
        ("tcp://127.0.0.1:8786", False),
        ("tcp://localhost:8786", False),
        ("tcp://[::1]:8786", False),
    ],
)
def test_only_this_machine_is_used_without_encryption_unless_that_is_stated(
    address: str, is_refused: bool
) -> None:
    assert is_exposed(address) is is_refused
    assert Cluster.model_validate({"url": address, "insecure": True}).url == address
    if is_refused:
        with pytest.raises(ValidationError, match=r"without encryption.*insecure: true"):
            Cluster.model_validate({"url": address})
