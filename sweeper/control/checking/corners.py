"""Params for probes: what a trial usually has, the largest one, and some between."""

from __future__ import annotations

import ast
import math
import random
from collections.abc import Mapping
from typing import Any

from ...notebooks.cell_code import parse_or_none, plain_python
from ...settings import Settings
from ...settings.space import AnyDimension, ChoiceDimension, FloatDimension, IntDimension


def typical_params(settings: Settings, parameters_source: str) -> dict[str, Any]:
    """The params of the first `start` trial, else the notebook's own, else the middle.

    Args:
        parameters_source: the source of the parameters cell.
    """
    stated = settings.start_params[0] if settings.start_params else {}
    own = _assigned_values(parameters_source)

    def pick(name: str, dimension: AnyDimension) -> Any:
        for values in (stated, own):
            if name in values and dimension.allows(values[name]):
                return values[name]
        return _middle(dimension)

    return settings.search_space.sample(pick)


def largest_params(settings: Settings, typical: Mapping[str, Any]) -> dict[str, Any]:
    """Those with the largest sizes: whole numbers and numeric choices at their greatest.

    Numbers with fractions are learning rates and the like; they stay as they are.
    """

    def pick(name: str, dimension: AnyDimension) -> Any:
        if isinstance(dimension, IntDimension):
            steps = (dimension.high - dimension.low) // (dimension.step or 1)
            return dimension.low + steps * (dimension.step or 1)
        if isinstance(dimension, ChoiceDimension) and all(map(_is_number, dimension.choices)):
            return max(dimension.choices, key=float)
        return typical.get(name, _middle(dimension))

    return settings.search_space.sample(pick)


def random_params(settings: Settings, seed: int) -> dict[str, Any]:
    """Params as a sampler without knowledge draws them."""
    rng = random.Random(seed)
    return settings.search_space.sample(lambda _, dimension: _drawn(dimension, rng.random()))


def _middle(dimension: AnyDimension) -> Any:
    return (
        dimension.choices[0] if isinstance(dimension, ChoiceDimension) else _drawn(dimension, 0.5)
    )


def _drawn(dimension: AnyDimension, at: float) -> Any:
    """The value at a part of a dimension, from 0 at its begin to 1 at its end."""
    if isinstance(dimension, ChoiceDimension):
        return dimension.choices[min(int(at * len(dimension.choices)), len(dimension.choices) - 1)]
    low, high = float(dimension.low), float(dimension.high)
    if dimension.log:
        value = math.exp(math.log(low) + at * (math.log(high) - math.log(low)))
    else:
        value = low + at * (high - low)
    if dimension.step is not None:
        value = low + math.floor((value - low) / dimension.step + 1e-9) * dimension.step
    value = min(max(value, low), high)
    return value if isinstance(dimension, FloatDimension) else round(value)


def _assigned_values(source: str) -> dict[str, Any]:
    """The plain values that a parameters cell assigns, by name."""
    tree = parse_or_none(plain_python(source))
    values = {}
    for node in [] if tree is None else tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                values[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:  # not a plain value
                continue
    return values


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
