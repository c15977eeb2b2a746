"""The section `inputs`: which trial it takes."""

from __future__ import annotations

from typing import Any

import pytest

from sweeper.errors import SettingsError
from sweeper.settings import Settings

FILE: dict[str, Any] = {
    "study": {"name": "finetune"},
    "objective": {"acc": "maximize"},
    "space": {"lr": {"low": 0.1, "high": 1.0}},
}


def settings_with(take: Any = None, **changes: Any) -> Settings:
    source = {"study": "pretrain", "artifact": "model.pt"} | (
        {} if take is None else {"take": take}
    )
    return Settings.from_mapping({**FILE, "inputs": {"encoder": source}, **changes})


@pytest.mark.parametrize(
    ("take", "read"),
    [
        (None, "best"),
        ("best", "best"),
        ("0007", "0007"),
        (7, "0007"),
    ],
)
def test_a_trial_is_taken_by_its_run_id_or_for_being_the_best(take: Any, read: Any) -> None:
    assert settings_with(take).inputs["encoder"].take == read


@pytest.mark.parametrize("take", ["best", "0007"])
def test_stored_settings_are_read_back_the_same(take: Any) -> None:
    settings = settings_with(take)
    assert Settings.from_mapping(settings.as_mapping).inputs == settings.inputs


def test_a_flag_that_fixes_the_parameter_takes_the_place_of_the_input() -> None:
    settings = settings_with().with_overrides(fixed={"encoder": "/models/mine.pt"})
    assert settings.inputs == {}
    assert list(settings.search_space) == ["lr"]


@pytest.mark.parametrize("section", ["space", "fixed", "smoke"])
def test_a_name_stands_in_one_section_only(section: str) -> None:
    other = {**FILE["space"], "encoder": ["a"]} if section == "space" else {"encoder": "a"}
    with pytest.raises(SettingsError, match=f"'encoder' stands in both inputs and {section}"):
        settings_with(**{section: other})
