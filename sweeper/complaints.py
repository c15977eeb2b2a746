"""What is wrong with a parameters file, told to its author: file, key, value, remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticCustomError


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint that names the known word closest to a wrong one, or all of them if few."""
    names = [str(n) for n in known]
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(names)}" if names else "none is known"


def problem(text: str) -> PydanticCustomError:
    """A complaint about the value at hand; where it stands in the file is added by the reader."""
    # The text is a template, filled only when it has values; so it gets one and quotes itself.
    return PydanticCustomError("sweeper", "{text}", {"text": text})


def told(error: ValidationError, *, file: Path | None, data: Mapping[str, Any]) -> str:
    """One line per mistake: file, key, value, remedy."""
    lines = []
    for detail in error.errors():
        # Which member of a union was tried says nothing to the reader of a file.
        key = ".".join(str(part) for part in _path(detail["loc"], data))
        text = _TEXTS.get(detail["type"], detail["msg"])
        if detail["type"] == "sweeper":
            said = detail["msg"]
        elif detail["type"] == "missing":
            said = "this key is missing"
        else:
            expected = ", ".join(str(v) for v in detail.get("ctx", {}).values())
            said = f"{text.format(expected=expected)}; got {detail['input']!r:.80}"
        line = f"{file or 'settings'}: {key + ': ' if key else ''}{said}"
        if line not in lines:
            lines.append(line)
    return "\n".join(lines)


_TEXTS = {
    "literal_error": "expected {expected}",
    "int_type": "expected a whole number",
    "float_type": "expected a number",
    "bool_type": "expected true or false",
    "string_type": "expected text",
    "greater_than_equal": "must be {expected} or more",
    "greater_than": "must be more than {expected}",
    "less_than": "must be less than {expected}",
    "dict_type": "expected a mapping",
    "tuple_type": "expected a list",
    "too_short": "must not be empty",
    "finite_number": "expected a finite number",
}


def _path(loc: tuple[int | str, ...], data: Any) -> list[int | str]:
    path: list[int | str] = []
    for part in loc:
        inside = isinstance(data, Mapping) and part in data
        if inside or (isinstance(data, list) and isinstance(part, int) and part < len(data)):
            data = data[part]
            path.append(part)
        elif isinstance(data, Mapping) and isinstance(part, str) and part.isidentifier():
            if part in ("FloatDimension", "IntDimension", "ChoiceDimension", "int", "float"):
                continue
            path.append(part)
    return path
