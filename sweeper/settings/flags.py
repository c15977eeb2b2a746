"""The values of the command line's flags; every mistake becomes one message."""

from __future__ import annotations

from typing import Any

from pydantic_core import PydanticCustomError

from ..errors import SettingsError
from .units import parse_duration
from .yaml_reader import BadYaml, read_yaml

_WIDTH = 80


def read_value(text: str, *, flag: str = "--set ") -> tuple[str, Any]:
    """Name and value of a `NAME=VALUE`; the value is read as in a parameters file.

    Args:
        flag: what stands before it on the command line.

    Raises:
        SettingsError: it has no `=`, or the value is not one.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise SettingsError(f"{flag}{text}: expected NAME=VALUE, as in {flag}epochs=3")
    try:
        return name.strip(), read_yaml(value)
    except BadYaml as error:
        raise SettingsError(
            f"{flag}{name}={_brief(value)}: cannot read the value: {error}"
        ) from error


def _brief(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


def read_trials_flag(text: str | None) -> int | None:
    """The number of `--trials N`.

    Raises:
        SettingsError: it is no whole number of 1 or more.
    """
    if text is not None and not (text.isdigit() and int(text) >= 1):
        raise SettingsError(f"--trials {text}: expected a whole number of 1 or more")
    return None if text is None else int(text)


def read_duration_flag(flag: str, text: str | None) -> float | None:
    """Seconds of a duration on the command line.

    Raises:
        SettingsError: it is no duration.
    """
    try:
        return None if text is None else parse_duration(text)
    except PydanticCustomError as error:
        raise SettingsError(f"{flag}: {error}") from error
