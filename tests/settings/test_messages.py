"""The message for each wrong file: one line with file, key, value and remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from parameters_files import NOT_YAML, OBJECTIVE, WRONG_TYPES, WRONG_VALUES, Load

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


def test_of_many_mistakes_the_first_20_are_listed_and_the_others_counted(
    load_settings: Load,
) -> None:
    with pytest.raises(SettingsError) as raised:
        load_settings(OBJECTIVE + "space: {" + "".join(f"x{n}: [], " for n in range(1000)) + "}")
    lines = str(raised.value).splitlines()
    assert len(lines) == 21
    assert lines[-1].endswith("digits.yml: and 980 mistakes more")


def test_the_hint_names_the_nearest_known_word_or_all() -> None:
    assert nearest("learning_rte", ["learning_rate", "width"]) == "did you mean 'learning_rate'?"
    assert nearest("zzz", ["lr", "width"]) == "known: lr, width"
    assert nearest("zzz", []) == "none is known"
    assert nearest("bayes", ["tpe", "gp"]) == "it is gp here"
    assert nearest("min", ["low", "high"]) == "it is low here"


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
def test_a_value_in_a_message_is_yaml(value: Any, text: str) -> None:
    assert as_yaml(value) == text


def test_a_long_value_in_a_message_is_cut() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for value in ("x" * 999, list(range(999)), [endless] * 999):
        assert len(as_yaml(value)) == 80
        assert as_yaml(value).endswith("…")
