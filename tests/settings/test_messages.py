"""Test the messages about wrong parameters files: one line with file, key, value and remedy."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from parameters_files import NOT_YAML, OBJECTIVE, WRONG_TYPES, WRONG_VALUES, Load
from ruamel.yaml import YAML

from sweeper import Settings
from sweeper.errors import SettingsError
from sweeper.settings.messages import as_yaml, nearest


@pytest.mark.parametrize(("text", "fragments"), [*NOT_YAML, *WRONG_TYPES, *WRONG_VALUES])
def test_the_message_for_a_wrong_file_has_file_key_value_and_remedy(
    load_settings: Load, tmp_path: Path, text: str, fragments: list[str]
) -> None:
    with pytest.raises(SettingsError) as raised:
        load_settings(text)
    message = str(raised.value)
    assert message.startswith(str(tmp_path / "digits.yml"))
    assert len(message.splitlines()) == 1
    for fragment in fragments:
        assert fragment in message


def test_all_mistakes_of_a_file_are_reported_at_once(load_settings: Load) -> None:
    with pytest.raises(SettingsError) as raised:
        load_settings(OBJECTIVE + "space: {lr: {low: 2, high: 1}, opt: []}\nlimits: {trial: soon}")
    keys = [line.split(": ")[1] for line in str(raised.value).splitlines()]
    assert keys == ["space.lr", "space.opt", "limits.trial"]


def test_the_first_20_mistakes_are_listed_and_further_ones_are_counted(
    load_settings: Load,
) -> None:
    with pytest.raises(SettingsError) as raised:
        load_settings(OBJECTIVE + "space: {" + "".join(f"x{n}: [], " for n in range(1000)) + "}")
    lines = str(raised.value).splitlines()
    assert len(lines) == 21
    assert lines[-1].endswith("and 980 more")


def test_the_hint_about_an_unknown_name_is_the_most_similar_known_name_or_all_names() -> None:
    assert nearest("learning_rte", ["learning_rate", "width"]) == "did you mean 'learning_rate'?"
    assert nearest("zzz", ["lr", "width"]) == "known: lr, width"
    assert nearest("zzz", []) == "none is known"
    assert nearest("bayes", ["tpe", "gp"]) == "use gp instead"
    assert nearest("min", ["low", "high"]) == "use low instead"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        ("a", "'a'"),
        (float("-inf"), "-.inf"),
        ([1, {"low": 1.5, "when": None}], "[1, {low: 1.5, when: null}]"),
        ([], "[]"),
        (b"x", "binary data"),
        ([[[[[[1]]]]]], "[[[[…]]]]"),
    ],
)
def test_a_value_in_a_message_is_written_as_yaml(value: Any, text: str) -> None:
    assert as_yaml(value) == text


def test_a_long_value_in_a_message_is_cut() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for value in ("x" * 999, list(range(999)), [endless] * 999):
        assert len(as_yaml(value)) == 80
        assert as_yaml(value).endswith("…")


EVERY_KEY = Path(__file__).parents[2] / "docs" / "every-key.yml"
VALUES = YAML(typ="safe", pure=True).load(
    "[null, true, -1, 0, 1e308, .nan, '', '{run_id}', '1e-3', '-', [], {}, [[]], {a: 1}, [null], "
    "[1, a], {1: 2}, {low: 2, high: 1}, 's3://', '\\0', 999999999999999999999999]"
)
VALUES.append("x" * 5000)


def places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each dict and list in a file's data, with each of its keys or indices."""
    for key in list(data) if isinstance(data, dict) else range(len(data)):
        yield data, key
        if isinstance(data[key], dict | list):
            yield from places(data[key])


def mutate(data: Any, chance: random.Random) -> None:
    container, key = chance.choice(list(places(data)))
    match chance.randrange(4):
        case 0:
            del container[key]
        case 1 if isinstance(container, dict):
            container[str(key)[1:] + "e"] = container.pop(key)
        case 2 if isinstance(container, list):
            container.append(chance.choice(VALUES))
        case _:
            container[key] = chance.choice(VALUES)


def test_a_randomly_changed_file_loads_or_is_refused_with_short_lines() -> None:
    chance, file = random.Random(7), Path("p.yml")
    whole = YAML(typ="safe", pure=True).load(EVERY_KEY)
    refused = 0
    for _ in range(500):
        data = copy.deepcopy(whole)
        mutate(data, chance)
        try:
            Settings.from_mapping(data, file=file)
        except SettingsError as error:
            refused += 1
            lines = str(error).splitlines()
            assert all(line.startswith("p.yml: ") for line in lines), data
            assert max(map(len, lines)) <= 400, data
    assert refused > 200
