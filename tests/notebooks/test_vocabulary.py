"""How a parameter is classified by its name."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from sweeper.notebooks import vocabulary


@pytest.mark.parametrize(
    "name", ["batch_size", "batchSize", "BatchSize", "BATCH_SIZE", "batch__size", "batch_size_"]
)
def test_the_words_of_a_name_do_not_depend_on_its_style(name: str) -> None:
    assert vocabulary.words_of(name) == ["batch", "size"]


@pytest.mark.parametrize(
    ("name", "entries", "expected"),
    [
        ("learning_rate", vocabulary.RATES, True),
        ("learningRate", vocabulary.RATES, True),
        ("rate_of_learning", vocabulary.RATES, False),
        ("init_lr", vocabulary.RATES, True),
        ("color", vocabulary.RATES, False),
        ("weight_decay", vocabulary.LOG_SCALES, True),
        ("n_epochs", vocabulary.BUDGETS, True),
        ("data_path", vocabulary.ENVIRONMENT, True),
        ("api_key", vocabulary.SECRETS, True),
    ],
)
def test_a_name_matches_whole_words_only(
    name: str, entries: Collection[str], expected: bool
) -> None:
    assert vocabulary.matches(name, entries) is expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("optimizer", "adam", ["sgd", "adam", "adamw", "rmsprop"]),
        ("optimizer", "Adam", ["SGD", "Adam", "AdamW", "RMSprop"]),
        ("optimizer", "ADAM", ["SGD", "ADAM", "ADAMW", "RMSPROP"]),
        ("optimizer", "my_own", []),
        ("colour", "adam", []),
    ],
)
def test_alternatives_are_spelled_like_the_value(
    name: str, value: str, expected: list[str]
) -> None:
    assert vocabulary.alternatives(name, value) == expected
