"""Read the values of command-line flags; an error becomes a message that names the flag."""

from __future__ import annotations

from typing import Any

from pydantic_core import PydanticCustomError

from ..errors import SettingsError, shortened
from .base import read_plain
from .yaml_reader import BadYaml, read_yaml

_WIDTH = 80
#: The most characters of a value (chosen); a longer one belongs into a file of the notebook.
_MOST_CHARACTERS = 10_000


def read_value(text: str, *, flag: str = "--set ") -> tuple[str, Any]:
    """Read `NAME=VALUE` into name and value; the value is YAML, as in a parameters file.

    Args:
        text: the text of one argument.
        flag: the flag before it, with a space; empty for a positional argument.

    Raises:
        SettingsError: there is no name or no `=`, or the value is not YAML.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        stated = shortened(f"{flag}{text}", _WIDTH)
        raise SettingsError(f"{stated}: expected NAME=VALUE, as in {flag}epochs=3")
    stated = shortened(f"{flag}{name}={value}", _WIDTH)
    if len(text) > _MOST_CHARACTERS:
        raise SettingsError(
            f"{stated}: {len(text):,} characters; expected {_MOST_CHARACTERS:,} at most"
        )
    try:
        return name.strip(), read_plain(read_yaml(value))
    except (BadYaml, PydanticCustomError) as error:
        raise SettingsError(f"{stated}: cannot read the value: {error}") from error
