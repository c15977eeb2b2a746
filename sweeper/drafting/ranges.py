"""Suggest a range or choices for a parameter from its annotation, comment, name and value."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..notebooks import vocabulary
from ..notebooks.vocabulary import matches
from .cells import Assignment
from .hints import Bounds, bounds_in, choices_in

_LOOKS_LIKE_A_PLACE = re.compile(r"[/\\:]|\.\w{1,5}$|\s")


@dataclass(frozen=True, slots=True)
class Range:
    """Sweep the numbers from low to high; whole numbers where both bounds are int."""

    low: int | float
    high: int | float
    log: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Choices:
    """Sweep over several values."""

    values: Sequence[Any]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Put the notebook's own value under `fixed`."""

    note: str


@dataclass(frozen=True, slots=True)
class Omitted:
    """Leave the parameter out of the file, so that the notebook's own value stays."""

    reason: str


Suggestion = Range | Choices | Fixed | Omitted


def suggest(assignment: Assignment, compared: Sequence[str] = ()) -> Suggestion:
    """Suggest what to do with one parameter.

    Args:
        assignment: the parameter as the parameters cell assigns it.
        compared: the words with which the notebook compares it.
    """
    name, value = assignment.name, assignment.value
    if name in vocabulary.INJECTED:
        return Omitted("each trial is given its own")
    if not assignment.is_plain:
        return Omitted("worked out by code, not a plain value")
    if isinstance(value, list | dict):
        return _of_collection(name, value)
    if matches(name, vocabulary.SECRETS):
        return Omitted("a secret")
    stated = _stated_by_author(assignment)
    if stated is not None:
        return stated
    if matches(name, vocabulary.BUDGETS) and not matches(name, {"warmup"}):
        return Fixed("a budget, not swept: small while you try things, the full one at the end")
    if matches(name, vocabulary.ENVIRONMENT):
        return Omitted("not about the model")
    if matches(name, vocabulary.DATA):
        return Fixed("decides what is measured: scores would not compare")
    if value is None:
        return (
            Choices([None, 4, 8, 16])
            if matches(name, vocabulary.DEPTHS)
            else Omitted("has no value")
        )
    if isinstance(value, bool):
        return Choices([True, False])
    if isinstance(value, str):
        return _of_text(name, value, compared)
    return _of_number(name, value)


def _stated_by_author(assignment: Assignment) -> Suggestion | None:
    """Take the choices or the range of the annotation or the comment; None without any."""
    value, literals = assignment.value, assignment.literals
    same = [v for v in literals if v == value and type(v) is type(value)]
    if same and len(set(literals)) == len(literals) > 1:
        return Choices(literals)
    if isinstance(value, bool):
        return None
    choices = choices_in(assignment.comment, value)
    if choices:
        return Choices(choices, "from the notebook's comment")
    number = isinstance(value, int | float)
    bounds = bounds_in(assignment.comment, value) if number else None
    return None if bounds is None else _from_comment(bounds, value)


def _from_comment(bounds: Bounds, value: int | float) -> Range:
    low, high = bounds.low, bounds.high
    note = "from the notebook's comment"
    if isinstance(value, int) and low.is_integer() and high.is_integer():
        return Range(int(low), int(high), bounds.log, note)
    return Range(low, high, bounds.log, note)


def _of_collection(name: str, value: list[Any] | dict[str, Any]) -> Suggestion:
    """Sweep a list of layer sizes as a whole: half, equal and double sizes."""
    sizes = [v for v in value if type(v) is int and v > 1]
    if not sizes or sizes != value or not matches(name, vocabulary.SIZES | vocabulary.DEPTHS):
        return Omitted("a list or mapping; to sweep it, give a list of such under space")
    halves, doubles = [size // 2 for size in sizes], [size * 2 for size in sizes]
    return Choices([halves, sizes, doubles], "more or fewer layers: add lists of them")


def _of_text(name: str, value: str, compared: Sequence[str]) -> Suggestion:
    if _LOOKS_LIKE_A_PLACE.search(value) or not value:
        return Omitted("not about the model")
    known = list(dict.fromkeys(compared))
    if matches(name, vocabulary.MODELS):
        return Fixed("to sweep it, give a list of models under space")
    if len(known) > 1 and value in known:
        return Choices(known, "words that the notebook knows")
    alternatives = vocabulary.alternatives(name, value)
    if alternatives:
        return Choices(alternatives, "keep those that the notebook understands")
    return Fixed("to sweep it, give a list of words under space")


def _of_number(name: str, value: int | float) -> Suggestion:
    fraction = _of_fraction(name, float(value)) if 0 <= value <= 1 else None
    if fraction is not None:
        return fraction
    scaled = matches(name, vocabulary.RATES | vocabulary.LOG_SCALES)
    whole = isinstance(value, int) and not (scaled and not _is_size(name))
    return _of_int(name, int(value)) if whole else _of_float(name, float(value), scaled)


def _is_size(name: str) -> bool:
    return matches(
        name, vocabulary.BATCHES | vocabulary.SIZES | vocabulary.DEPTHS | vocabulary.ENSEMBLES
    )


def _of_fraction(name: str, value: float) -> Range | None:
    """Suggest a range for a name whose values are known to be in [0, 1]; None for other names."""
    if matches(name, vocabulary.DROPOUTS):
        return Range(0.0, 0.5 if value <= 0.5 else 0.95 if value <= 0.95 else 1.0)
    if matches(name, vocabulary.SMOOTHING):
        return Range(0.0, 0.2 if value <= 0.2 else 1.0)
    if matches(name, vocabulary.MOMENTA):
        return Range(0.8 if value >= 0.8 else 0.0, 0.99 if value <= 0.99 else 1.0)
    if matches(name, vocabulary.AVERAGES):
        return Range(0.9 if value >= 0.9 else 0.0, 0.9999 if value <= 0.9999 else 1.0)
    if matches(name, vocabulary.DISCOUNTS) and value >= 0.9:
        return Range(0.9, 0.999 if value <= 0.999 else 1.0)
    if matches(name, vocabulary.FRACTIONS):
        return Range(0.0 if value < 0.5 else 0.1, 0.9) if value <= 0.9 else Range(0.5, 1.0)
    return None


def _of_float(name: str, value: float, scaled: bool) -> Suggestion:
    if value == 0:
        if scaled and not matches(name, vocabulary.RATES):
            return Choices([0.0, 1e-5, 1e-4, 1e-3, 1e-2], "0.0 is off")
        return Omitted("0.0 tells nothing of its scale")
    if not math.isfinite(value) or not 1e-30 < abs(value) < 1e12:
        return Omitted("too far out to guess a range")
    if value < 0:
        return Range(_rounded(2 * value), 0.0)
    if matches(name, vocabulary.NARROW_SCALES):
        return Range(_rounded(value / 4), _rounded(value * 4), log=True)
    if scaled or value < 0.1:
        high = _decade(value * 10, math.ceil)
        if matches(name, vocabulary.RATES) and value <= 1:
            high = min(high, 1.0)  # greater rates diverge, also at the peak of a schedule
        return Range(_decade(value / 10, math.floor), high, log=True)
    if value < 1:
        far = 1 - (1 - value) / 10 if value > 0.5 else 2 * value
        near = max(value / 2, 1 - 5 * (1 - value)) if value > 0.5 else value / 4
        return _around(near, value, far)
    return _around(value / 2, value, value * 2)


def _around(low: float, own: float, high: float) -> Range:
    low, high = _rounded(low), _rounded(high)
    return Range(min(low, own), max(high, own))


def _decade(value: float, towards: Any) -> float:
    # 10 * 1e-3 is not exactly 1e-2, so the logarithm is rounded first.
    return float(f"1e{towards(round(math.log10(value), 9))}")


def _rounded(value: float) -> float:
    """Round to two digits, above 0.9 to three, where 0.95 and 0.995 differ much."""
    return float(f"{value:.3g}" if 0.9 < value < 1 else f"{value:.2g}")


def _of_int(name: str, value: int) -> Suggestion:
    if value < 1:
        return Omitted(f"{value} tells nothing of its scale")
    if value == 1 and matches(name, {"use", "with", "is", "has", "enable"}):
        return Choices([0, 1])
    power = value & (value - 1) == 0
    if matches(name, vocabulary.DEPTHS):
        return Range(max(1, value - 2), value + 2) if value <= 8 else Range(value // 2, 2 * value)
    if matches(name, vocabulary.ENSEMBLES):
        return Range(max(1, value // 2), 4 * value, log=True)
    if matches(name, vocabulary.BATCHES) and power:
        return Choices([value // 2, value, value * 2] if value > 1 else [1, 2, 4])
    if matches(name, vocabulary.BATCHES | vocabulary.SIZES):
        if power and value > 1:
            return Choices([value // 2, value, value * 2])
        return Range(max(1, value // 2), 2 * value, log=True)
    if power and value >= 8:
        return Choices([value // 2, value, value * 2])
    return Range(max(1, value // 2), 2 * value)
