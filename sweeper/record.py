"""What is read from a parameters file: the records' base, and the plain values they may hold."""

from __future__ import annotations

import datetime
import keyword
import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator

from .complaints import nearest, problem, shown

Scalar = bool | int | float | str | None


def _read_plain(value: Any) -> Any:
    _no_date(value)
    if not isinstance(value, Scalar) or (isinstance(value, float) and not math.isfinite(value)):
        raise problem(f"expected a finite number, text, true, false or null; got {shown(value)}")
    return value


def _no_date(value: Any) -> None:
    if isinstance(value, datetime.date | datetime.time):
        raise problem(f"{value} is a date to YAML; put it in quotes to mean the text")


PlainValue = Annotated[Scalar, BeforeValidator(_read_plain)]


class Record(BaseModel):
    """Base of everything read from a parameters file: frozen, strict, no unknown keys."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,  # they are what an editor shows
    )

    #: Fields that no file may set.
    _ours: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _known_keys_only(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            keys = ", ".join(cls.model_fields)
            raise problem(f"expected a mapping with the keys {keys}; got {shown(data)}")
        for key in data:
            if key not in cls.model_fields:
                known = [name for name in cls.model_fields if name not in cls._ours]
                raise problem(f"unknown key {shown(key)}; {nearest(str(key), known)}")
        return data


def check_name(name: str, *, where: str = "") -> None:
    """Refuse what could not be assigned in a notebook."""
    if keyword.iskeyword(name):
        raise problem(
            f"{where}{name}: not a Python identifier but a word of Python's own; "
            "choose another name, in the notebook too"
        )
    if not name.isidentifier():
        raise problem(
            f"{where}{name or repr(name)}: not a Python identifier; "
            "use letters, digits and underscores"
        )


def check_plain(value: Any, depth: int = 0) -> Any:
    """Refuse what could not be written into a notebook and read again as the same."""
    _no_date(value)
    if depth > 32:
        raise problem("is nested too deep, or holds itself through an anchor; write it out")
    if isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            check_plain(part, depth + 1)
        if not isinstance(value, dict) or all(isinstance(key, str) for key in value):
            return value
    elif value is None or isinstance(value, bool | int | float | str):
        return value
    raise problem(
        "expected a number, text, true, false, null, or lists and mappings (by text) of these; "
        f"got {shown(value)}"
    )
