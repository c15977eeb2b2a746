"""Look up the ranges in which people tune values, in the table `spaces.yml`.

A range is found by the parameter of a library to which the notebook passes a value, or by the name
of a variable.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from ...settings.yaml_reader import read_yaml
from ...trials import is_number

_TABLE = Path(__file__).with_name("spaces.yml")
#: Numbers outside of these limits are no parameters that people vary (chosen, not measured).
_SMALLEST, _LARGEST = 1e-15, 1e15
#: A whole number up to this size varies by at most 2 either way. A larger one varies by a factor of
#: 4 (chosen).
_SMALL_COUNT = 10
#: A power of two that is at least this large is a size, for which only powers of two are tried.
_SMALL_SIZE = 8
#: A fraction within these limits, such as a dropout rate, varies on a linear scale.
_SHARE = (0.1, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """A parameter or a variable that gets a value of the notebook.

    Attributes:
        parameter: Name of the parameter, or of the variable where nothing else is known.
        callee: Library's function or class as imported, such as `torch.optim.Adam`; empty for a
            variable.
    """

    parameter: str
    callee: str = ""

    def __str__(self) -> str:
        return f"{self.callee}({self.parameter}=)" if self.callee else self.parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the table `spaces.yml`, which explains its keys. Each key is an attribute.

    Attributes:
        rank: Position of the row in the table. The first rows are the most important ones.
    """

    rank: int
    source: str
    names: Sequence[str] = ()
    of: Sequence[str] = ()
    range: Sequence[float] | None = None
    around: float | None = None
    most: float = math.inf
    plus_minus: int | None = None
    sizes: bool = False
    fraction: bool = False
    least: int = 0
    choices: Sequence[Any] = ()
    log: bool = False
    usual: str = ""
    not_swept: str = ""
    where_none: Sequence[Any] = ()

    def fits(self, receiver: Receiver) -> bool:
        """Return whether the row describes a parameter or variable that gets a value."""
        if self.of and not any(fnmatchcase(receiver.callee, pattern) for pattern in self.of):
            return False
        name = _snake_case(receiver.parameter)
        return not self.names or any(_is_last_word(known, name) for known in self.names)

    def space_around(self, own: Any) -> Any:
        """Return the values to search around the notebook's original value.

        Returns:
            A list of choices, or a mapping with `low`, `high` and perhaps `log`. None if the
            original value is not of the kind that the row describes.
        """
        if self.not_swept:
            return usual_space(own)
        if own is None:
            return [None, *self.where_none] if self.where_none else None
        if self.usual == "count":
            return usual_space(own) if isinstance(own, int) and own > 1 else None
        if self.usual == "fraction":
            return usual_space(own) if isinstance(own, float) else None
        if self.choices:
            return list(self.choices) if own in self.choices else None
        if not _is_varied(own) or own < self.least:
            return None
        if self.fraction and isinstance(own, int) and own > 1:
            return usual_space(own)
        if self.sizes:
            # A number with decimals is no size, but, for example, the width of a line in a plot.
            return _sizes(int(own)) if float(own).is_integer() else None
        if self.plus_minus is not None:
            return _span(own, max(1, own - self.plus_minus), own + self.plus_minus)
        if self.around is not None:
            return self._around(own, self.around)
        assert self.range is not None
        return self._widened(own, *self.range)

    def _around(self, own: float, factor: float) -> Any:
        """Return a range from `own / factor` to `own * factor`, limited by the row's `most`.

        Args:
            own: The notebook's original value. It is in the range, even if it is above `most`.
            factor: The row's `around`. A factor below 10 is for counts, which are whole numbers.

        Returns:
            None if rounding leaves a whole number only one value. The result of `usual_space` if
            the row describes a count and the original value has decimals.
        """
        low, high = own / factor, max(own, min(own * factor, self.most))
        if factor >= 10:
            return _span(own, low, high, log=self.log)
        if isinstance(own, int):
            low, high = max(1, round(low)), round(high)
            return _span(own, low, high, log=self.log) if low < high else None
        # If the value has decimals, it is a fraction where the row describes a count.
        return _span(own, low, high, log=self.log) if own.is_integer() else usual_space(own)

    def _widened(self, own: float, low: float, high: float) -> Any:
        """Return the row's range, widened to hold the original value.

        Args:
            own: The notebook's original value.
            low: Lower end of the row's range.
            high: Upper end of the row's range.

        Returns:
            None if the row describes a fraction and the original value is no fraction: it is above
            1, or it is the whole number 1 and the row ends at 1. The result of `usual_space` if the
            row describes a count and the original value has decimals.
        """
        is_count = own > 1 or (own == high and isinstance(own, int))
        if high <= 1.0 and is_count:
            # The row describes a fraction. A whole number is another quantity, such as a number of
            # features.
            return None
        if isinstance(low, int) and isinstance(own, float):
            if not own.is_integer():
                return usual_space(own)  # The value is a fraction where the row describes a count.
            low = float(low)  # The notebook has a float, such as 1.0 for `min_child_weight`.
        return _span(own, low, high, log=self.log)


@cache
def _table() -> Mapping[str, Any]:
    content: Mapping[str, Any] = read_yaml(_TABLE.read_text("utf-8"))
    return content


@cache
def rows() -> Sequence[Row]:
    """Return the rows of the table `spaces.yml`, the most important first."""
    return [Row(rank=rank, **row) for rank, row in enumerate(_table()["rows"])]


def row_for(receivers: Sequence[Receiver]) -> Row | None:
    """Return the first row of the table `spaces.yml` that fits a receiver of a value.

    The receivers are tried in their order. None if no row fits any of them.
    """
    for receiver in receivers:
        for row in rows():
            if row.fits(receiver):
                return row
    return None


def is_searched(name: str) -> bool:
    """Return whether people usually tune the value of a variable with this name."""
    row = row_for([Receiver(parameter=name)])
    return row is not None and not row.not_swept


def optimizers() -> Mapping[str, str]:
    """Return code such as `Adam(learning_rate=0.001)` for each name of an optimizer in Keras."""
    content: Mapping[str, str] = _table()["optimizers"]
    return content


def usual_space(own: Any) -> Any:
    """Return the values to search around a value that no row of the table describes.

    A number with decimals varies by a factor of ten either way on a logarithmic scale, and a
    fraction from 0.1 to below 1 on a linear scale. A whole number varies by a factor of four either
    way, and one up to 10 by 2. A power of two from 8 on gives a list of powers of two. None for a
    value that is neither a boolean nor a positive number of usual size.
    """
    if isinstance(own, bool):
        return [False, True]
    if not _is_varied(own):
        return None
    if isinstance(own, int):
        if own >= _SMALL_SIZE and own.bit_count() == 1:
            return _sizes(own)
        if own <= _SMALL_COUNT:
            return _span(own, max(1, own - 2), own + 2)
        return _span(own, own // 4, own * 4, log=True)
    if _SHARE[0] <= own < _SHARE[1]:
        distance = 0.75 * min(own, 1 - own)
        return _span(own, own - distance, own + distance)
    return _span(own, own / 10, own * 10, log=True)


def another_value(own: Any, space: Any) -> Any:
    """Return a value of a search space that is clearly different from the original value.

    In a list of choices, it is the next choice. In a range, it is halfway between the original
    value and the end that is farther away. If there is no other value, it is the original one.

    Args:
        own: The notebook's original value.
        space: Its choices or its range, as `usual_space` returns them.
    """
    if isinstance(space, list):
        return space[(space.index(own) + 1) % len(space)]
    low, high = space["low"], space["high"]
    if low == high:
        return own
    to, back = (math.log, math.exp) if space.get("log") else (float, float)
    # If both ends are about equally far away, take the high one.
    is_high_farther = to(high) - to(own) > 0.99 * (to(own) - to(low))
    end = high if is_high_farther else low
    halfway = back((to(own) + to(end)) / 2)
    if isinstance(low, int):
        if round(halfway) != own:
            return round(halfway)
        return own + 1 if is_high_farther else own - 1
    rounded = float(f"{halfway:.3g}")
    return rounded if low <= rounded <= high and rounded != own else halfway


def _sizes(own: int) -> list[int]:
    """Return powers of two around a size, and the size itself."""
    exponent = own.bit_length() - 1
    powers = [2**power for power in range(max(0, exponent - 2), exponent + 3)]
    return sorted({*powers, own})


def _span(own: float, low: float, high: float, *, log: bool = False) -> dict[str, Any]:
    """Return a range with rounded bounds, widened to hold the original value."""
    if not isinstance(low, int):
        low, high = float(f"{low:.4g}"), float(f"{high:.4g}")
    span = {"low": min(low, own), "high": max(high, own)}
    return {**span, "log": True} if log else span


def _is_varied(own: Any) -> bool:
    return is_number(own) and _SMALLEST < own < _LARGEST


def _is_last_word(known: str, name: str) -> bool:
    """Return whether a name in snake case is a known one, or ends with it, as `adam_lr` with `lr`.

    A known name of a single letter, such as `C`, has to be the whole name.
    """
    known = known.lower()
    return name == known or (len(known) > 1 and name.endswith(f"_{known}"))


def _snake_case(name: str) -> str:
    """Return the last part of a dotted name in snake case: `learning_rate` for `x.learningRate`."""
    last = name.rpartition(".")[2].strip("_")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", last).lower()
