"""Choose the params of the runs of `check`: two sets that differ in every param at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..notebooks.research import ResearchNotebook
from ..settings import Settings
from ..settings.space import AnyDimension, ChoiceDimension, IntDimension, RangeDimension, as_scalar
from ..trials import Params, is_number

#: `check` compares two values of each numeric param. The second value lies between the first value
#: and a bound of the range: at this share of the way from the smaller to the larger of these two.
#: Shares count on the scale of the param, which may be logarithmic. This is the share of the golden
#: section (chosen, not measured): few scores are symmetric about it, so the two values seldom have
#: equal scores by chance.
_SECTION = 0.382
#: If the first value is in the lowest tenth of its range, the second value is greater than the
#: first. Otherwise, it is smaller, because large learning rates diverge (chosen, not measured).
_NEAR_LOW = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """Sets of params that differ in every param that has more than one value.

    `smoke` and `start` are sections of the parameters file. `smoke` fixes names to values with
    which a run is short.

    Attributes:
        largest: Params with the greatest whole numbers and numeric choices, which use most memory.
            The names that `smoke` fixes are left out.
        typical: Params of the first entry of `start`. If it lacks a param, the param has the
            notebook's value. If the notebook has no value that the search space allows, the param
            has the smallest value of its range, or its first choice. If `largest` or `smoke` has
            the same value of a param, the param has another value here.
        quick: Like `typical`, without the names that `smoke` fixes.
    """

    largest: Params
    typical: Params
    quick: Params


def contrast_of(settings: Settings, notebook: ResearchNotebook) -> Contrast:
    """Choose the params with which `check` runs a notebook.

    The typical value of a param is replaced if it equals the value in `largest` or `smoke`, so that
    the runs differ. The fold of a `repeat` is the same in all sets, because no sampler chooses it.
    """
    space, smoke = settings.search_space, settings.smoke
    stated = settings.start_params[0] if settings.start_params else {}
    largest: dict[str, Any] = {}
    typical: dict[str, Any] = {}
    for name, dimension in space.items():
        own = notebook.assignments.plain_value(name)
        known = [stated[name], own] if name in stated else [own]
        usual = next(filter(dimension.allows, known), _least(dimension))
        if name not in settings.space:
            largest[name] = typical[name] = usual
            continue
        greatest = smoke[name] if name in smoke else _greatest(name, usual, space)
        largest[name] = greatest
        typical[name] = _another(dimension, usual) if _is_same(usual, greatest) else usual
    quick = space.without(smoke)
    return Contrast(
        largest=quick.sample(lambda name, _: largest[name]),
        typical=space.sample(lambda name, _: typical[name]),
        quick=quick.sample(lambda name, _: typical[name]),
    )


def _greatest(name: str, usual: Any, space: Mapping[str, AnyDimension]) -> Any:
    """Return the value of a param that probably needs most memory.

    For a param that may be a size (see `_is_size`), it is the greatest value. For other choices, it
    is the choice with which most params that may be sizes exist (see `when`), and of several such
    choices, the first that is not typical. For a range of floats, it is a value other than the
    typical one.

    Args:
        name: Name of the param.
        usual: Typical value of the param.
        space: All dimensions, by name.
    """
    dimension = space[name]
    if not isinstance(dimension, ChoiceDimension):
        if not isinstance(dimension, IntDimension):
            return _another(dimension, usual)
        return range(dimension.low, dimension.high + 1, dimension.step or 1)[-1]
    if _is_size(dimension):
        return max(dimension.choices, key=float)
    branches = [
        other.when[name] for other in space.values() if name in other.when and _is_size(other)
    ]

    def n_sizes(choice: Any) -> int:
        return sum(any(_is_same(choice, value) for value in values) for values in branches)

    others = [choice for choice in dimension.choices if not _is_same(choice, usual)]
    return max([*others, usual], key=n_sizes)  # The first choice wins a tie.


def _another(dimension: AnyDimension, value: Any) -> Any:
    """Return another value of a dimension, or the same value if there is no other."""
    if isinstance(dimension, ChoiceDimension):
        others = (choice for choice in dimension.choices if not _is_same(choice, value))
        return next(others, value)
    low, high = (_on_scale(dimension, bound) for bound in (dimension.low, dimension.high))
    share = (_on_scale(dimension, value) - low) / (high - low) if high > low else 0.0
    other_share = share * _SECTION if share >= _NEAR_LOW else share + _SECTION * (1 - share)
    other = low + other_share * (high - low)
    return _on_grid(dimension, math.exp(other) if dimension.log else other, value)


def _on_scale(dimension: RangeDimension, value: float) -> float:
    return math.log(value) if dimension.log else float(value)


def _on_grid(dimension: RangeDimension, wanted: float, value: Any) -> Any:
    """Return the allowed value that is nearest to a wanted number.

    Args:
        dimension: Range with or without a step.
        wanted: Number that need not be allowed.
        value: Value that is not returned, unless it is the only one.
    """
    low, high = dimension.low, dimension.high
    is_whole = isinstance(dimension, IntDimension)
    step = dimension.step or (1 if is_whole else None)
    if step is None:
        return min(max(wanted, low), high)
    n_steps = int((high - low) / step + 1e-9)
    index, at = round((wanted - low) / step), round((value - low) / step)
    if index == at:
        index = at - 1 if at else min(1, n_steps)
    return low + min(index, n_steps) * step


def _least(dimension: AnyDimension) -> Any:
    return dimension.choices[0] if isinstance(dimension, ChoiceDimension) else dimension.low


def _is_size(dimension: AnyDimension) -> bool:
    """Return whether the values may be sizes, such as widths, on which the memory of a run depends.

    A range of numbers with fractions has no sizes: it is for learning rates, dropouts and the like.
    """
    if isinstance(dimension, ChoiceDimension):
        return all(map(is_number, dimension.choices))
    return isinstance(dimension, IntDimension)


def _is_same(first: Any, second: Any) -> bool:
    return as_scalar(first) == as_scalar(second)
