"""Define the base class of a parameters file's models, and check names and values in the file."""

from __future__ import annotations

import json
import keyword
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    ValidationError,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)

from .messages import as_yaml, nearest, problem
from .units import DURATION_SCHEMA, parse_duration

#: A plain value that is neither a list nor a mapping.
Scalar = bool | int | float | str | None
#: Lists and mappings may be nested in this many levels (chosen, not measured).
_DEPTH = 32


class SettingsModel(BaseModel):
    """Base class of all sections of a parameters file.

    Sections are frozen, and unknown keys are errors.
    """

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,  # Editors display these docstrings.
    )

    @classmethod
    def file_keys(cls) -> list[str]:
        """Return the keys of this section in the file.

        A key differs from its field's name if the field has an alias: the key `class` sets the
        field `class_`.
        """
        return [field.alias or name for name, field in cls.model_fields.items()]

    @model_validator(mode="before")
    @classmethod
    def _known_keys_only(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            keys = ", ".join(cls.file_keys())
            raise problem(f"expected a mapping with the keys {keys}; got {as_yaml(data)}")
        for key in data:
            if key not in cls.file_keys():
                raise problem(f"unknown key {as_yaml(key)}; {cls.hint_at(str(key), data[key])}")
        return data

    @classmethod
    def hint_at(cls, key: str, value: Any) -> str:
        """Return a hint for an unknown key: the section with this key, or the nearest known key.

        Args:
            key: Unknown key of this section.
            value: Value of the key. Only subclasses use it.
        """
        for name, field in cls.model_fields.items():
            kind: Any = field.annotation
            is_section = isinstance(kind, type) and issubclass(kind, SettingsModel)
            if is_section and key in kind.file_keys():
                return f"it belongs to {name}, as in {name}: {{{key}: …}}"
        return nearest(key, cls.file_keys())


def check_name(name: str, *, where: str = "") -> None:
    """Check that a notebook can assign a variable of this name.

    Args:
        name: Name of a variable.
        where: Keys before the name in the file, such as `space.`, for the message.

    Raises:
        PydanticCustomError: The name is not a Python identifier.
    """
    if keyword.iskeyword(name):
        raise problem(
            f"{where}{name}: a keyword of Python, so no variable of a notebook has this name; "
            "choose another name"
        )
    if not name.isidentifier():
        raise problem(
            f"{where}{name or repr(name)}: not a Python identifier; "
            "use letters, digits and underscores"
        )


def check_param_name(name: str, *, where: str = "") -> None:
    """Check the name of a param: one identifier, or two with a dot between them, as in `Adam.lr`.

    Args:
        name: Name of the param.
        where: Keys before the name in the file, such as `space.`, for the message.

    Raises:
        PydanticCustomError: The name is not valid.
    """
    owner, dot, own = name.rpartition(".")
    outer, _, inner = owner.rpartition(".")
    if outer and inner and own:
        raise problem(f"{where}{name}: a name has at most one dot; write {inner}.{own}")
    if owner:
        check_name(owner, where=where)
    check_name(own, where=f"{where}{owner}{dot}")


def read_plain(value: Any, depth: int = 0) -> Any:
    """Check that JSON can represent a value, and return it with lists in place of tuples.

    Args:
        value: Value to read.
        depth: Number of lists and mappings around the value.

    Raises:
        PydanticCustomError: JSON would change the value, or it is nested too deeply.
    """
    if depth > _DEPTH:
        raise problem(
            f"the value is nested too deeply; use at most {_DEPTH} levels of lists and mappings"
        )
    if isinstance(value, list | tuple):
        return [read_plain(part, depth + 1) for part in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: read_plain(part, depth + 1) for key, part in value.items()}
    if isinstance(value, float) and math.isnan(value):
        raise problem(f"expected a finite number; got {as_yaml(value)}")
    if isinstance(value, Scalar):
        return value
    raise problem(
        "expected a number, text, true, false, null, or lists and mappings of these; the keys of "
        f"mappings must be text; got {as_yaml(value)}"
    )


def _read_choice(value: Any) -> Any:
    read = read_plain(value)
    try:
        json.dumps(read, allow_nan=False)
    except ValueError as error:
        raise problem(f"numbers must be finite; got {as_yaml(value)}") from error
    return read


def expected(text: str) -> WrapValidator:
    """Return a validator that reports a single error for a value that may have several forms.

    Without it, pydantic would report an error for each form.

    Args:
        text: Description of a valid value, for the message.
    """

    def read(value: Any, validate: Callable[[Any], Any]) -> Any:
        try:
            return validate(value)
        except ValidationError as error:
            raise problem(f"expected {text}; got {as_yaml(value)}") from error

    return WrapValidator(read)


#: A duration in seconds, read from text with a unit, or from a number of seconds.
Duration = Annotated[float, BeforeValidator(parse_duration), WithJsonSchema(DURATION_SCHEMA)]
if TYPE_CHECKING:
    Size = int
else:
    #: A size in bytes, read from text with a unit, or from a number of bytes.
    Size = ByteSize
#: A plain value: a number (also infinity), text, true, false, null, a list or a mapping.
PlainValue = Annotated[Any, BeforeValidator(read_plain)]
#: A value that a trial can have: a finite number, text, true, false, null, a list or a mapping.
ChoiceValue = Annotated[
    Any,
    BeforeValidator(_read_choice),
    WithJsonSchema({"type": ["null", "boolean", "number", "string", "array", "object"]}),
]
