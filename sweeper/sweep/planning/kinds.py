"""Compare the types of values in a parameters file with those of the notebook's original values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ...errors import SettingsError, listed
from ...notebooks.research import ResearchNotebook
from ...settings import Settings
from ...settings.messages import as_yaml
from ...settings.space import ChoiceDimension, IntDimension


class Kind(StrEnum):
    """Type of a value in the notebook or the parameters file, in the words of messages."""

    NUMBER = "a number"
    TRUTH = "true or false"
    TEXT = "text"
    LIST = "a list"
    MAPPING = "a mapping"


#: Other types that work in place of the notebook's original value in most code: a list of layer
#: sizes for one number, a number for a list, `1` for `True`.
_ALSO = {
    Kind.NUMBER: {Kind.LIST},
    Kind.TRUTH: {Kind.NUMBER},
    Kind.LIST: {Kind.NUMBER},
}


def check_kinds(notebook: ResearchNotebook, settings: Settings) -> None:
    """Refuse values in `space`, `fixed` and `smoke` of another type than the notebook's original.

    An example is text for a number. Types that work in most code are accepted, such as a list for a
    number. If there are several choices, one value of the right type suffices: `[scale, 0.1]` is
    right for `gamma = 'scale'`. But a number written as text is always refused for a number.

    Raises:
        SettingsError: At least one type differs. The message names the key, the value and the
            remedy.
    """
    sources, file = settings.sources, settings.file or "settings"
    stated: list[tuple[str, str, Sequence[Any]]] = []
    for name, dimension in settings.space.items():
        tried: Sequence[Any] = (
            dimension.choices if isinstance(dimension, ChoiceDimension) else (dimension.low,)
        )
        stated.append((f"{file}: space", name, tried))
    stated += [(sources[name], name, [value]) for name, value in settings.fixed.items()]
    stated += [(f"{file}: smoke", name, [value]) for name, value in settings.smoke.items()]
    faults = []
    for source, name, values in stated:
        own = notebook.assignments.plain_value(name)
        fault = None if own is None else _fault(own, values)
        if fault is not None:
            faults.append(f"{source}: {name!r} {fault} ({notebook.display_name})")
    if faults:
        raise SettingsError(listed(faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeRange:
    """A range of integers for a name whose original value in the notebook is a float.

    Attributes:
        name: Name of the swept variable.
        low: Lower bound of the range.
        high: Upper bound of the range.
        own: Original value in the notebook.
    """

    name: str
    low: int
    high: int
    own: float

    @property
    def leaves_out_own(self) -> bool:
        """Whether the original value is no whole number, so that the range cannot contain it."""
        return not self.own.is_integer()

    @property
    def remedy(self) -> str:
        """Remedy in words: write a range of floats, or assign an integer in the notebook."""
        instead = f"write low: {float(self.low)!r} to try fractions"
        return f"{instead}, or assign a whole number in the notebook"

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.low} to {self.high} tries whole numbers only, but the notebook "
            f"has {self.own!r}"
        )


def whole_ranges(notebook: ResearchNotebook, settings: Settings) -> list[WholeRange]:
    """Return the integer ranges that the user may have meant as float ranges.

    An example is `{low: 0, high: 1}` for a dropout whose original value is 0.1.
    """
    found = []
    for name, dimension in settings.search_space.items():
        own = notebook.assignments.plain_value(name)
        if isinstance(dimension, IntDimension) and isinstance(own, float):
            low, high = dimension.low, dimension.high
            found.append(WholeRange(name=name, low=low, high=high, own=own))
    return found


def _fault(own: Any, values: Sequence[Any]) -> str | None:
    """Return what is wrong with the values that replace a notebook's original value, or None.

    Args:
        own: Original value in the notebook.
        values: Values in the parameters file.
    """
    kind = _kind_of(own)
    stated = [value for value in values if value is not None]
    if kind is None or not stated:
        return None
    for value in stated:
        numbers = _numbers_in(value)
        if kind is Kind.NUMBER and numbers:
            remedy = "write the number without quotes"
            if len(numbers) > 1:
                remedy = f"write numbers with commas between them: {as_yaml(numbers)}"
            return f"has the text {as_yaml(value)}, but the notebook has {own!r}; {remedy}"
    if any(_fits(own, kind, value) for value in stated):
        return None
    found = _kind_of(stated[0])
    return (
        f"has {found} ({as_yaml(stated[0])}), but the notebook has {kind} ({as_yaml(own)}); write "
        f"{kind}, or assign {found} in the notebook"
    )


def _fits(own: Any, kind: Kind, value: Any) -> bool:
    found = _kind_of(value)
    # A default of argparse may be a text that argparse converts, so a number is right as well.
    if kind is Kind.TEXT and _numbers_in(own):
        return found in (Kind.TEXT, Kind.NUMBER)
    if kind is Kind.NUMBER and found is Kind.TRUTH:
        return own in (0, 1)
    return found is kind or found in _ALSO.get(kind, ())


def _kind_of(value: Any) -> Kind | None:
    match value:
        case bool():
            return Kind.TRUTH
        case int() | float():
            return Kind.NUMBER
        case str():
            return Kind.TEXT
        case list() | tuple():
            return Kind.LIST
        case dict():
            return Kind.MAPPING
    return None


def _numbers_in(value: Any) -> list[float]:
    """Return the numbers of a text that consists of numbers only, else an empty list."""
    words = value.replace(",", " ").split() if isinstance(value, str) else []
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        return []
    return numbers if all(map(math.isfinite, numbers)) else []
