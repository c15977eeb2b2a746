"""Read the values of command-line flags. Messages of errors name the flag."""

from __future__ import annotations

from typing import Any

from pydantic_core import PydanticCustomError

from ..errors import SettingsError, shortened
from .base import read_plain
from .yaml_reader import BadYaml, read_yaml

#: A message repeats at most this many characters of an argument, including its flag.
_WIDTH = 80
#: A value has at most this many characters (chosen, not measured). The notebook should read longer
#: values from a file.
_MOST_CHARACTERS = 10_000


def read_value(text: str, *, flag: str = "--set ") -> tuple[str, Any]:
    """Split `NAME=VALUE` into the name and the value, which is YAML as in a parameters file.

    Args:
        text: Text of one argument.
        flag: Flag before the argument, with a space, for messages. Empty for a positional argument.

    Raises:
        SettingsError: There is no name or no `=`, the argument is too long, or the value is not a
            plain value in YAML.
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
