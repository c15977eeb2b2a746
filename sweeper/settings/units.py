"""Read durations from texts such as `90s`, and format durations and sizes for people."""

from __future__ import annotations

import re
from typing import Any

from ..trials import is_number
from .messages import as_yaml, problem

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_SECONDS = {
    "ms": 0.001,
    "s": 1.0,
    None: 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
#: Longest allowed duration in seconds. Timers overflow at much longer durations.
_LONGEST_S = 3650 * 86400.0

#: JSON Schema of a duration.
DURATION_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "string", "pattern": rf"^\s*{_DURATION.pattern}\s*$"},
    ]
}


def parse_duration(value: Any) -> float:
    """Return a duration in seconds: from `90s`, `15m`, `8h`, `1d`, or a number of seconds.

    Raises:
        PydanticCustomError: The value is not a positive duration, or is longer than 10 years.
    """
    seconds = 0.0
    if is_number(value):
        seconds = float(str(value))  # A whole number may be too large for a float.
    elif isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if match is not None:
            seconds = float(match[1]) * _SECONDS[match[2]]
    if not seconds > 0:
        raise problem(
            f"cannot read {as_yaml(value)} as a duration; expected something like 90s, 15m, 8h"
        )
    if seconds > _LONGEST_S:
        raise problem(f"{as_yaml(value)} is too long; expected 10 years (3650d) or less")
    return seconds


def duration(seconds: float) -> str:
    """Return a duration for people: `3.1s`, `4m05s`, `2h10m`."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s"


def size(n_bytes: int) -> str:
    """Return a size for people: `1.5 GB`, `20 MB`, `3 kB`."""
    if n_bytes >= 1e9:
        return f"{n_bytes / 1e9:.1f} GB"
    return f"{n_bytes / 1e6:.0f} MB" if n_bytes >= 500_000 else f"{n_bytes / 1e3:.0f} kB"
