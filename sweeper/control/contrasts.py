"""Choose the params of the runs of `check`: two sets that differ in every param at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..notebooks.research import ResearchNotebook
from ..settings import Settings
from ..settings.space import AnyDimension, ChoiceDimension, IntDimension, RangeDimension, as_scalar
from ..trials import Params

#: Where another value lies between the lower bound and a value: the golden section (chosen), as
#: functions are rarely symmetric about it.
_SECTION = 0.382
#: Below this share of a range, another value is greater; else it is smaller, because large learning
#: rates diverge (chosen).
_NEAR_LOW = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """Two sets of params, of which each param has another value in the other wherever it can.

    Attributes:
        largest: with the greatest whole numbers and numeric choices, which take most memory.
        typical: those of the first `start` trial, else the notebook's own, else the smallest.
        quick: `typical` without the names that `smoke` fixes.
    """

    largest: Params
    typical: Params
    quick: Params


def contrast_of(settings: Settings, notebook: ResearchNotebook) -> Contrast:
    """Choose the params with which `check` runs a notebook.

    Where the typical value of a size is the greatest already, the typical one is changed. The fold
    of a `repeat` is no param that a sampler chooses, and is the same in both.
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
    quick = settings.with_overrides(fixed=smoke).search_space
    return Contrast(
        largest=quick.sample(lambda name, _: largest[name]),
        typical=space.sample(lambda name, _: typical[name]),
        quick=quick.sample(lambda name, _: typical[name]),
    )


def _greatest(name: str, usual: Any, space: Mapping[str, AnyDimension]) -> Any:
    """The greatest value of a size; of other params another one than usual.

    Of choices that open branches, the one with most sizes in its branch.
    """
    dimension = space[name]
    if _is_size(dimension):
        if isinstance(dimension, ChoiceDimension):
            return max(dimension.choices, key=float)
        step = int(dimension.step or 1)
        return int(dimension.low) + int(dimension.high - dimension.low) // step * step
    if not isinstance(dimension, ChoiceDimension):
        return _another(dimension, usual)

    def n_sizes(choice: Any) -> int:
        branches = [d.when[name] for d in space.values() if _is_size(d) and name in d.when]
        return sum(any(_is_same(choice, value) for value in values) for values in branches)

    others = [choice for choice in dimension.choices if not _is_same(choice, usual)]
    return max([*others, usual], key=n_sizes)  # of equals the first


def _another(dimension: AnyDimension, value: Any) -> Any:
    """Another value of a dimension; the same if there is no other."""
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
    """The allowed value next to a wanted number that is not `value`, if there is such a value."""
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
    """Whether the values may be sizes; numbers with fractions are learning rates and the like."""
    if isinstance(dimension, ChoiceDimension):
        return all(map(_is_number, dimension.choices))
    return isinstance(dimension, IntDimension)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_same(first: Any, second: Any) -> bool:
    return as_scalar(first) == as_scalar(second)
