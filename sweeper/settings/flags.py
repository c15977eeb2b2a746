"""Read the values of command-line flags; an error becomes a message that names the flag."""

from __future__ import annotations

from typing import Any

from pydantic_core import PydanticCustomError

from ..errors import SettingsError
from .base import read_plain
from .units import parse_duration
from .yaml_reader import BadYaml, read_yaml

_WIDTH = 80


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
        raise SettingsError(f"{flag}{text}: expected NAME=VALUE, as in {flag}epochs=3")
    try:
        return name.strip(), read_plain(read_yaml(value))
    except (BadYaml, PydanticCustomError) as error:
        raise SettingsError(
            f"{flag}{name}={_brief(value)}: cannot read the value: {error}"
        ) from error


def _brief(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


def read_count_flag(flag: str, text: str | None, *, least: int = 1, why: str = "") -> int | None:
    """Read a whole number such as that of `--trials N`; None for None.

    Args:
        flag: its name, for the message.
        least: the smallest one that is right.
        why: what the message says of that.

    Raises:
        SettingsError: it is not a whole number of `least` or more.
    """
    if text is not None and not (text.isdecimal() and int(text) >= least):
        raise SettingsError(f"{flag} {text}: expected a whole number of {least} or more{why}")
    return None if text is None else int(text)


def read_duration_flag(flag: str, text: str | None) -> float | None:
    """Read a duration such as `90s` into seconds; None for None.

    Raises:
        SettingsError: it is not a duration.
    """
    try:
        return None if text is None else parse_duration(text)
    except PydanticCustomError as error:
        raise SettingsError(f"{flag}: {error}") from error
