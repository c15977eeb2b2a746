"""The values that YAML 1.2 stands for."""

from __future__ import annotations

from typing import Any

import pytest
from parameters_files import SMALLEST, Load

from sweeper.settings.yaml_reader import read_yaml, write_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E5", 100000.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("012", 12),
        ("0o14", 12),
        ("0x1f", 31),
        ("-7", -7),
        ("+3", 3),
        (".inf", float("inf")),
        ("true", True),
        ("null", None),
        ("~", None),
        ("on", "on"),
        ("yes", "yes"),
        ("no", "no"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("'1e-3'", "1e-3"),
        ("[1, 2.0]", [1, 2.0]),
    ],
)
def test_values_are_those_of_yaml_1_2(load_settings: Load, text: str, value: Any) -> None:
    read = load_settings(SMALLEST + f"fixed: {{x: {text}}}").fixed["x"]
    assert (read, type(read)) == (value, type(value))
    again = read_yaml(write_yaml([read]))[0]
    assert (again, type(again)) == (value, type(value))
