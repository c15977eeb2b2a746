"""Compare the values of a parameters file with those that the notebook has itself."""

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
    """The kind of a plain value, in words."""

    NUMBER = "a number"
    TRUTH = "true or false"
    TEXT = "text"
    LIST = "a list"
    MAPPING = "a mapping"


#: Kinds of the notebook's own value, with what takes its place in working code as well: a number
#: or a list of layer sizes, `1` for true.
_ALSO = {
    Kind.NUMBER: {Kind.LIST},
    Kind.TRUTH: {Kind.NUMBER},
    Kind.LIST: {Kind.NUMBER},
}


def check_kinds(notebook: ResearchNotebook, settings: Settings) -> None:
    """Refuse values of another kind than the notebook's own, such as text for a number.

    Of several choices one has to be of that kind: `[scale, 0.1]` is right for `gamma = 'scale'`.

    Raises:
        SettingsError: with key, value and remedy of each such name.
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
    """A range of whole numbers, where the notebook has a float.

    Attributes:
        own: what the notebook has.
    """

    name: str
    low: int
    high: int
    own: float

    @property
    def leaves_out_own(self) -> bool:
        """Whether no value of the range can be the notebook's own."""
        return not self.own.is_integer()

    @property
    def remedy(self) -> str:
        """How to write a range with fractions, or say that none are meant."""
        instead = f"write low: {float(self.low)!r} to try fractions"
        return f"{instead}, or give the notebook a whole number if none are meant"

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.low} to {self.high} has whole numbers only, the notebook has "
            f"{self.own!r}"
        )


def whole_ranges(notebook: ResearchNotebook, settings: Settings) -> list[WholeRange]:
    """The ranges that may lack their fractions by mistake, as `{low: 0, high: 1}` for a dropout."""
    found = []
    for name, dimension in settings.search_space.items():
        own = notebook.assignments.plain_value(name)
        if isinstance(dimension, IntDimension) and isinstance(own, float):
            low, high = dimension.low, dimension.high
            found.append(WholeRange(name=name, low=low, high=high, own=own))
    return found


def _fault(own: Any, values: Sequence[Any]) -> str | None:
    """Return what is wrong with the values that replace the notebook's; None if nothing is."""
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
            return f"has the text {as_yaml(value)}, the notebook has {own!r}; {remedy}"
    if any(_fits(own, kind, value) for value in stated):
        return None
    found = _kind_of(stated[0])
    return (
        f"has {found} ({as_yaml(stated[0])}), the notebook has {kind} ({as_yaml(own)}); write "
        f"{kind}, or give the notebook {found}"
    )


def _fits(own: Any, kind: Kind, value: Any) -> bool:
    found = _kind_of(value)
    if kind is Kind.TEXT and _numbers_in(own):  # argparse converts its text defaults
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
    """The numbers of a text that has nothing else; none for other values."""
    words = value.replace(",", " ").split() if isinstance(value, str) else []
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        return []
    return numbers if all(map(math.isfinite, numbers)) else []
