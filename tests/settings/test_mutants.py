"""Whatever is changed in a parameters file, it loads, or one line says what is wrong."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from sweeper import Settings
from sweeper.errors import SettingsError

EVERY_KEY = Path(__file__).parents[2] / "docs" / "every-key.yml"
VALUES = YAML(typ="safe").load(
    "[null, true, -1, 0, 1e308, .nan, '', '{run_id}', '1e-3', '-', [], {}, [[]], {a: 1}, [null], "
    "[1, a], {1: 2}, {low: 2, high: 1}, 's3://', '\\0', 999999999999999999999999]"
)
VALUES.append("x" * 5000)


def places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Each container of a file, with each of its keys or indices."""
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


def test_a_changed_file_loads_or_is_refused_with_short_lines() -> None:
    chance, file = random.Random(7), Path("p.yml")
    whole = YAML(typ="safe").load(EVERY_KEY)
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
