"""Test that values are read as YAML 1.2, and the rules of single sections of a parameters file."""

from __future__ import annotations

from typing import Any

import pytest
from parameters_files import BOTH, INPUT, SMALLEST, Load
from pydantic import ValidationError

from sweeper.settings.machines import Cluster, is_exposed
from sweeper.settings.yaml_reader import read_yaml, write_yaml


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
def test_the_address_of_a_scheduler_on_another_machine_needs_tls_or_the_key_insecure(
    address: str, is_refused: bool
) -> None:
    assert is_exposed(address) is is_refused
    assert Cluster.model_validate({"url": address, "insecure": True}).url == address
    if is_refused:
        with pytest.raises(ValidationError, match=r"without encryption.*insecure: true"):
            Cluster.model_validate({"url": address})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1d", 86400),
        ("1.5h", 5400),
        ("30", 30),
        ("250ms", 0.25),
    ],
)
def test_a_duration_in_the_parameters_file_is_read_in_its_unit_or_else_in_seconds(
    load_settings: Load, text: str, seconds: float
) -> None:
    assert load_settings(SMALLEST + f"limits: {{trial: {text}}}").limits.trial == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("10MB", 10_000_000), ("9GB", 9_000_000_000), ("512KiB", 524288), ("1.5k", 1500), ("7", 7)],
)
def test_a_size_in_the_parameters_file_is_read_in_its_unit_or_else_in_bytes(
    load_settings: Load, text: str, size: int
) -> None:
    assert load_settings(SMALLEST + f"limits: {{cell_output: {text}}}").limits.cell_output == size


@pytest.mark.parametrize(("take", "read"), [("best", "best"), ("'0007'", "0007"), ("7", "0007")])
def test_an_input_states_the_best_trial_or_a_run_id_as_its_source(
    load_settings: Load, take: str, read: str
) -> None:
    assert load_settings(BOTH + INPUT + take + "}}").inputs["e"].take == read


def test_fixing_a_parameter_on_the_command_line_removes_its_entry_in_inputs(
    load_settings: Load,
) -> None:
    settings = load_settings(BOTH + INPUT + "best}}").with_overrides(fixed={"e": "/mine.pt"})
    assert settings.inputs == {}
    assert set(settings.search_space) == {"lr", "opt"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        (".5", 0.5),
        ("012", 12),
        ("0o14", 12),
        ("0x1f", 31),
        (".inf", float("inf")),
        ("true", True),
        ("null", None),
        ("on", "on"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("'1e-3'", "1e-3"),
        ("[1, 2.0]", [1, 2.0]),
    ],
)
def test_fixed_values_are_read_by_the_rules_of_yaml_1_2(
    load_settings: Load, text: str, value: Any
) -> None:
    read = load_settings(SMALLEST + f"fixed: {{x: {text}}}").fixed["x"]
    assert (read, type(read)) == (value, type(value))
    again = read_yaml(write_yaml([read]))[0]
    assert (again, type(again)) == (value, type(value))
