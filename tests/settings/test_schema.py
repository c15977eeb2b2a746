"""Test that the JSON Schema accepts valid files, and refuses wrong types and keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from parameters_files import EVERYTHING, SHORT_AND_LONG, SMALLEST, WRONG_TYPES, Load
from ruamel.yaml import YAML

from sweeper.settings import Settings
from sweeper.settings.sections import PRUNERS, SAMPLERS

SCHEMA = Settings.json_schema()


EDITOR = Draft202012Validator(SCHEMA)


ROOT = Path(__file__).parents[2]


def errors_in_editor(text: str) -> list[str]:
    """Return the errors in a file that an editor finds with the schema."""
    return [error.message for error in EDITOR.iter_errors(YAML(typ="safe", pure=True).load(text))]


def test_the_schema_is_valid() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert SCHEMA["title"]
    assert set(SCHEMA["properties"]) == {*Settings.model_fields}


@pytest.mark.parametrize(
    "text",
    [
        SMALLEST,
        EVERYTHING,
        SHORT_AND_LONG,
        *(path.read_text("utf-8") for path in sorted((ROOT / "parameters").glob("*.yml"))),
    ],
)
def test_the_schema_accepts_files_that_load(load_settings: Load, text: str) -> None:
    load_settings(text)
    assert errors_in_editor(text) == []


@pytest.mark.parametrize("text", [text for text, _ in WRONG_TYPES])
def test_the_schema_refuses_wrong_types_and_keys(text: str) -> None:
    assert errors_in_editor(text)


def test_the_schema_describes_each_key() -> None:
    records = {"": SCHEMA, **SCHEMA["$defs"]}
    undescribed = [
        f"{name}.{key}"
        for name, record in records.items()
        for key, described in record["properties"].items()
        if len(described.get("description", "")) < 12
        and "description" not in SCHEMA["$defs"].get(str(described.get("$ref"))[8:], {})
    ]
    assert undescribed == []


def test_the_schema_refuses_unknown_keys_everywhere() -> None:
    records = [SCHEMA, *SCHEMA["$defs"].values()]
    assert {record["additionalProperties"] for record in records} == {False}


def test_the_schema_lists_the_samplers_and_pruners() -> None:
    study = SCHEMA["$defs"]["StudySettings"]["properties"]
    for key, known in (("sampler", SAMPLERS), ("pruner", PRUNERS)):
        name, options = study[key]["anyOf"]
        assert name["enum"] == options["properties"]["name"]["enum"] == list(known)
