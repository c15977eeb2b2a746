"""Values whose type differs from the notebook's original value are refused before a trial runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from studies import small_settings, sweep_of

from sweeper.errors import SettingsError
from sweeper.notebooks.research import ResearchNotebook
from sweeper.sweep.planning.kinds import check_kinds, whole_ranges
from sweeper.testing import write_notebook


def notebook_with(folder: Path, own: str) -> ResearchNotebook:
    return ResearchNotebook(write_notebook(folder / "n.ipynb", f"p = {own}\nval = x = 1.0"))


@pytest.mark.parametrize(
    ("own", "value", "remedy"),
    [
        ("20", "eight", "write a number"),
        ("1e-3", "1e-4", "without quotes"),
        ("20", True, "write a number"),
        ("'adam'", 3, "write text"),
        ("'adam'", ["adam", "sgd"], "write text"),
        ("True", "no", "write true or false"),
        ("[64, 64]", "64 64", "write a list"),
        ("{'a': 1}", "a: 1", "write a mapping"),
    ],
)
@pytest.mark.parametrize("section", ["fixed", "smoke", "space"])
def test_a_value_of_another_type_than_the_notebooks_value_is_refused_with_a_remedy(
    tmp_path: Path, own: str, value: Any, remedy: str, section: str
) -> None:
    sections: dict[str, Any] = {section: {"p": [value] if section == "space" else value}}
    with pytest.raises(SettingsError) as raised:
        check_kinds(notebook_with(tmp_path, own), small_settings("kinds", **sections))
    message = str(raised.value)
    assert all(part in message for part in (section, "'p'", str(tmp_path / "n.ipynb"), remedy))
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize("choices", [["1e-4 1e-2"], [0.1, "1e-4 1e-2"], [0.1, "1e-4, 1e-2"]])
def test_a_text_of_several_numbers_is_refused_with_the_list_of_numbers_that_was_meant(
    tmp_path: Path, choices: list[Any]
) -> None:
    settings = small_settings("kinds", space={"p": choices})
    with pytest.raises(SettingsError, match=r"commas between them: \[0.0001, 0.01\]"):
        check_kinds(notebook_with(tmp_path, "0.1"), settings)


@pytest.mark.parametrize(
    ("own", "dimension"),
    [
        ("20", [5, 2.5, None]),
        ("0.5", [1, 2]),
        ("1", {"low": 0.1, "high": 10.0}),
        ("1", [True, False]),
        ("True", [0, 1]),
        ("None", ["a", 3]),
        ("'scale'", ["scale", 0.1]),
        ("0.1", ["scale", "auto", 0.1]),
        ("'0.1'", {"low": 0.0, "high": 1.0}),
        ("64", [[64], [64, 64]]),
        ("(64, 64)", [[64], [64, 64]]),
        ("20", [None]),
        ("work()", ["a", 3]),
    ],
)
def test_the_notebooks_value_may_be_replaced_by_one_of_a_compatible_type(
    tmp_path: Path, own: str, dimension: Any
) -> None:
    check_kinds(notebook_with(tmp_path, own), small_settings("kinds", space={"p": dimension}))


def test_a_range_of_numbers_is_refused_for_a_param_whose_value_in_the_notebook_is_a_word(
    tmp_path: Path,
) -> None:
    settings = small_settings("kinds", space={"p": {"low": 0.0, "high": 1.0}})
    with pytest.raises(SettingsError, match="or assign a number in the notebook"):
        check_kinds(notebook_with(tmp_path, "'scale'"), settings)


def test_a_sweep_with_a_value_of_a_wrong_type_is_refused_before_a_file_is_written(
    tmp_path: Path,
) -> None:
    notebook = notebook_with(tmp_path, "20").path
    with pytest.raises(SettingsError, match="'p'"):
        sweep_of(notebook, "kinds", space={"p": ["eight"]})
    assert [file.name for file in tmp_path.iterdir()] == ["n.ipynb"]


@pytest.mark.parametrize(
    ("own", "dimension", "leaves_out_own"),
    [
        ("0.25", {"low": 0, "high": 1}, True),
        ("1.0", {"low": 0, "high": 10}, False),
        ("0.25", {"low": 0.0, "high": 1}, None),
        ("0.25", [0, 1], None),
        ("3", {"low": 0, "high": 10}, None),
    ],
)
def test_an_integer_range_is_reported_only_if_the_notebooks_value_is_a_float(
    tmp_path: Path, own: str, dimension: Any, leaves_out_own: bool | None
) -> None:
    settings = small_settings("kinds", space={"p": dimension})
    found = whole_ranges(notebook_with(tmp_path, own), settings)
    assert [whole.leaves_out_own for whole in found] == [leaves_out_own] * len(found)
    assert len(found) == (leaves_out_own is not None)
    assert all(own in str(whole) and "low: 0.0" in whole.remedy for whole in found)
