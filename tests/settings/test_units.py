"""Durations and sizes with their units."""

from __future__ import annotations

import pytest
from parameters_files import SMALLEST, Load


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("8h", 28800),
        ("1d", 86400),
        ("1.5h", 5400),
        ("30", 30),
        ("250ms", 0.25),
    ],
)
def test_durations_have_units(load_settings: Load, text: str, seconds: float) -> None:
    assert load_settings(SMALLEST + f"limits: {{trial: {text}}}").limits.trial == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("10MB", 10_000_000), ("9GB", 9_000_000_000), ("512KiB", 524288), ("1.5k", 1500), ("7", 7)],
)
def test_sizes_have_units(load_settings: Load, text: str, size: int) -> None:
    assert load_settings(SMALLEST + f"limits: {{cell_output: {text}}}").limits.cell_output == size
