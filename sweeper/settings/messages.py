"""Format the errors of a parameters file: file, key, value and remedy."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..errors import listed, shortened

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import PydanticCustomError


#: Names from W&B's sweeps and from everyday use, each with this package's name for the same thing.
_ELSEWHERE = dict(
    pair.split(":")
    for pair in (
        "bayes:gp bayesian:gp values:choices min:low max:high parameters:space metric:objective "
        "best:status list:status show:status compare:export kill:stop "
        "tpesampler:tpe gpsampler:gp cmaessampler:cmaes nsgaiisampler:nsga2 "
        "successivehalvingpruner:asha goal:direction mode:direction"
    ).split()
)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: the known name that means the same or is most similar.

    If no known name is similar, the hint lists all of them.
    """
    names = [str(n) for n in known]
    if (here := _ELSEWHERE.get(name.lower())) in names:
        return f"use {here} instead"
    small = {n.lower(): n for n in reversed(names)}
    close = difflib.get_close_matches(name.lower(), small, n=1, cutoff=0.6)
    if close:
        return f"did you mean {small[close[0]]!r}?"
    return f"known: {', '.join(names)}" if names else "none is known"


def as_yaml(value: Any) -> str:
    """Return a value as YAML text on one line, such as `{low: 1}`. Cut it after 80 characters."""
    # A value may contain itself through a YAML anchor. So only the beginning of its text is made.
    text = "".join(islice(_written(value, depth=4), _WIDTH + 2))
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


#: A message repeats at most this many characters of a value (chosen, not measured).
_WIDTH = 80


def _written(value: Any, depth: int) -> Iterator[str]:
    """Yield the parts of a value's text.

    Args:
        value: Value to write.
        depth: Number of levels of lists and mappings to write. Those below become `…`.
    """
    if not isinstance(value, Mapping | list | tuple):
        yield _scalar(value)
    elif not depth:
        yield "…"
    elif isinstance(value, Mapping):
        yield "{"
        for index, (key, part) in enumerate(value.items()):
            if index:
                yield ", "
            yield key if isinstance(key, str) else as_yaml(key)
            yield ": "
            yield from _written(part, depth - 1)
        yield "}"
    else:
        yield "["
        for index, part in enumerate(value):
            if index:
                yield ", "
            yield from _written(part, depth - 1)
        yield "]"


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return "binary data"
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}[str(value)]
    return repr(value)


def problem(text: str) -> PydanticCustomError:
    """Return an error about one value, for a validator to raise.

    pydantic adds the key of the value, and `validation_message` adds the file.
    """
    from pydantic_core import PydanticCustomError

    # pydantic uses a message as a template, in which braces would have to be doubled. So the
    # template is only `{text}`.
    return PydanticCustomError("sweeper", "{text}", {"text": text})


def validation_message(error: ValidationError, *, where: str, data: Mapping[str, Any]) -> str:
    """Return pydantic's error as one line for each mistake, with its key, value and remedy.

    Args:
        error: pydantic's error.
        where: File or flags with which each line begins.
        data: Content of the parameters file.
    """
    lines: dict[str, None] = {}
    for detail in error.errors():
        key = ".".join(str(part) for part in _keys_in_file(detail["loc"], data))
        text = _TEXTS.get(detail["type"], detail["msg"])
        if detail["type"] == "sweeper":
            fault = detail["msg"]
        elif detail["type"] == "too_short" and detail["input"]:
            # pydantic counts only valid entries, so a list with wrong entries may seem too short.
            # But each wrong entry has an error of its own.
            continue
        elif detail["loc"][-1:] == ("[key]",):
            fault = f"a name must be text; got {as_yaml(detail['input'])}"
        elif detail["type"] == "missing":
            fault = f"this key is missing{_EXAMPLES.get(key, '')}"
        else:
            limits = detail.get("ctx", {}).values()
            texts = [f"{limit:g}" if isinstance(limit, float) else str(limit) for limit in limits]
            expected = ", ".join(texts)
            fault = f"{text.format(expected=expected)}; got {as_yaml(detail['input'])}"
        if key:
            fault = f"{key}: {fault}"
        lines[f"{where}: {shortened(fault, _LINE)}"] = None
    return listed([*lines])


#: Examples of the required keys, for the message about a missing key.
_EXAMPLES = {
    "objective": ", as in objective: {val_acc: maximize}",
    "space": ", as in space: {lr: {low: 1e-4, high: 1e-1, log: true}}",
}
#: The message about one mistake has at most this many characters (chosen, not measured).
_LINE = 360


_TEXTS = {
    "literal_error": "expected {expected}",
    "int_type": "expected a whole number",
    "float_type": "expected a number",
    "bool_type": "expected true or false",
    "string_type": "expected text",
    "greater_than_equal": "must be {expected} or more",
    "greater_than": "must be more than {expected}",
    "less_than": "must be less than {expected}",
    "less_than_equal": "must be {expected} or less",
    "dict_type": "expected a mapping",
    "tuple_type": "expected a list",
    "too_short": "must not be empty",
    "finite_number": "expected a finite number",
    "byte_size": "expected a size such as 10MB or 9GB",
    "byte_size_unit": "expected a size such as 10MB or 9GB",
}


def _keys_in_file(loc: tuple[int | str, ...], data: Any) -> list[int | str]:
    """Return the keys in the file that belong to pydantic's location of an error.

    pydantic's location also has names that are not in the file: those of the members of a union,
    such as `float` in `space.lr.float.low`. These names are left out.
    """
    path: list[int | str] = []
    for part in loc:
        is_mapping = isinstance(data, Mapping)
        if isinstance(data, list):
            is_inside = isinstance(part, int) and part < len(data)
        else:
            is_inside = is_mapping and part in data
        if is_inside:
            data = data[part]
            path.append(part)
        elif is_mapping and str(part).isidentifier() and part not in ("float", "int", "choice"):
            path.append(part)
    return path
