"""The values of command-line flags."""

from __future__ import annotations

from typing import Any

import pytest

from sweeper.errors import SettingsError
from sweeper.settings.flags import read_count_flag, read_duration_flag, read_value


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("lr=1e-3", "lr", 0.001),
        ("smoke=true", "smoke", True),
        ("name=a=b", "name", "a=b"),
        ("sizes=[1, 2]", "sizes", [1, 2]),
        ("note=", "note", None),
        (" x = 3", "x", 3),
    ],
)
def test_a_value_on_the_command_line_is_read_as_in_a_file(text: str, name: str, value: Any) -> None:
    assert read_value(text) == (name, value)


@pytest.mark.parametrize("text", ["lr", "=3", "x=[1", "x={a", "x=" + "[" * 600, "x=&a [*a]"])
def test_a_text_without_name_or_value_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="--set"):
        read_value(text)


def test_the_message_for_a_wrong_number_names_the_flag() -> None:
    assert (read_count_flag("--trials", "12"), read_count_flag("--trials", None)) == (12, None)
    assert (read_duration_flag("--timeout", "2m"), read_duration_flag("--timeout", None)) == (
        120.0,
        None,
    )
    for wrong in ("0", "-3", "many", "1.5", ""):
        with pytest.raises(SettingsError, match=r"--trials .*whole number of 1 or more"):
            read_count_flag("--trials", wrong)
    with pytest.raises(SettingsError, match=r"--seeds 1: .* 2 or more, as an interval needs two"):
        read_count_flag("--seeds", "1", least=2, why=", as an interval needs two")
    with pytest.raises(SettingsError, match="--timeout: cannot read 'soon' as a duration"):
        read_duration_flag("--timeout", "soon")
