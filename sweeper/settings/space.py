"""Define the search space: its dimensions, their allowed values, and their branches.

A dimension with `when` is part of a branch: its param exists only in trials in which other params
have certain values. This module does not import samplers: `SearchSpace.sample` calls a function
that chooses each value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from ..trials import Params, Value
from .base import ChoiceValue, Scalar, SettingsModel
from .elsewhere import dimension_here
from .messages import as_yaml, nearest, problem
from .secrets import refuse_secret

#: A float can represent every whole number up to this one. A study stores numbers as floats.
_LARGEST = 2**53
#: Prefix of a list or mapping that is stored as text.
_JSON_PREFIX = "json:"


def as_scalar(value: Value) -> Scalar:
    """Convert a value to one that a sampler can store: lists and mappings become text.

    Different values have different texts: the list [32] becomes 'json:[32]', and [32.0] becomes
    'json:[32.0]'. A text that begins with 'json:' gets the prefix once more.
    """
    if isinstance(value, list | dict) or (
        isinstance(value, str) and value.startswith(_JSON_PREFIX)
    ):
        return _JSON_PREFIX + json.dumps(value, sort_keys=True, ensure_ascii=False)
    return value


def from_scalar(scalar: Scalar) -> Value:
    """Convert a scalar from `as_scalar` back to the value."""
    if not isinstance(scalar, str) or not scalar.startswith(_JSON_PREFIX):
        return scalar
    value: Value = json.loads(scalar.removeprefix(_JSON_PREFIX))
    return value


def _one_value_or_several(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    found = {}
    for name, allowed in value.items():
        found[name] = tuple(allowed) if isinstance(allowed, list | tuple) else (allowed,)
    return found


_VALUE_OR_VALUES = {
    "type": ["null", "boolean", "number", "string", "object", "array"],
    "minItems": 1,
}


class Dimension(SettingsModel):
    """Base class of all dimensions, with the branch in which a dimension's param exists."""

    when: Annotated[
        Mapping[str, Annotated[tuple[ChoiceValue, ...], Field(min_length=1)]],
        BeforeValidator(
            _one_value_or_several,
            json_schema_input_type=Mapping[str, Annotated[Any, WithJsonSchema(_VALUE_OR_VALUES)]],
        ),
    ] = Field(default_factory=dict)
    """The branch in which the parameter exists, as in {optimizer: sgd}: names of other parameters,
    each with the value or the list of values that it must have. Write a value that is a list as a
    list in a list."""


class RangeDimension(Dimension):
    """A range of numbers from `low` to `high`. With `log`, it is sampled on a logarithmic scale."""

    type: str  # Defined before `low` and `high`, because people write this key first.
    low: float
    """The least value."""
    high: float
    """The greatest value."""
    log: bool = False
    """Whether to sample on a logarithmic scale, as for a learning rate."""
    step: Annotated[float, Field(gt=0)] | None = None
    """The distance between values, counted from low."""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        low, high, step = self.low, self.high, self.step
        if low > high:
            raise problem(f"low ({low!r}) is greater than high ({high!r}); swap them")
        if self.log and low <= 0:
            raise problem(f"log: true needs low > 0; got {low!r}")
        if self.log and step is not None:
            raise problem("log: true and step exclude each other; drop one")
        if not math.isfinite(high - low):
            raise problem(f"{low!r} to {high!r} is wider than a float can be (1.8e308); narrow it")
        if step is not None and (high - low) / step > _LARGEST:
            raise problem(
                f"step {step!r} divides the range into more than {_LARGEST} steps; make it larger"
            )
        return self

    @property
    def hint(self) -> str:
        """The allowed values, for a message."""
        kind = "a whole number" if isinstance(self.low, int) else "a number"
        by = "" if self.step is None else f" in steps of {self.step}"
        return f"{kind} from {self.low} to {self.high}{by}"


class FloatDimension(RangeDimension):
    """A real number in [low, high]."""

    type: Literal["float"] = "float"
    """Default: decided by the types of low, high and step."""

    def allows(self, value: Value) -> bool:
        """Return whether a trial may have this value."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if not self.low <= value <= self.high:
            return False
        offset = 0.0 if self.step is None else (value - self.low) / self.step
        return math.isclose(offset, round(offset), abs_tol=1e-9)

    def count(self) -> int | None:
        """Return the number of values. None if there is no step."""
        if self.step is None:
            return None
        return int((self.high - self.low) / self.step + 1e-9) + 1


class IntDimension(RangeDimension):
    """A whole number in [low, high]."""

    type: Literal["int"] = "int"
    """Default: decided by the types of low, high and step."""
    low: Annotated[int, Field(ge=-_LARGEST, le=_LARGEST)]
    """The least value."""
    high: Annotated[int, Field(ge=-_LARGEST, le=_LARGEST)]
    """The greatest value."""
    step: Annotated[int, Field(gt=0)] | None = None
    """The distance between values, counted from low."""

    def allows(self, value: Value) -> bool:
        """Return whether a trial may have this value."""
        if isinstance(value, bool) or not isinstance(value, int):
            return False
        is_on_a_step = (value - self.low) % (self.step or 1) == 0
        return is_on_a_step and self.low <= value <= self.high

    def count(self) -> int | None:
        """Return the number of values."""
        return (self.high - self.low) // (self.step or 1) + 1


#: A choice has at most this many values (chosen, not measured). A sampler considers all choices for
#: each trial.
_MOST_CHOICES = 10_000


class ChoiceDimension(Dimension):
    """One of several values without an order."""

    type: Annotated[Literal["choice"], WithJsonSchema({"enum": ["choice", "categorical"]})] = (
        "choice"
    )
    """Not needed: `choices` is enough."""
    choices: Annotated[
        tuple[ChoiceValue, ...],
        Field(strict=False, min_length=1),
    ]
    """The values to choose from: numbers, text, true, false, null, or lists and mappings of
    these, as in [[32], [64, 64]]."""

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if len(self.choices) > _MOST_CHOICES:
            number = len(self.choices)
            raise problem(
                f"{number:,} choices; expected {_MOST_CHOICES:,} at most, or a range: "
                "{low: …, high: …}"
            )
        found: dict[Scalar, Value] = {}
        for value in self.choices:
            plain = as_scalar(value)
            if plain in found:  # A sampler treats True, 1 and 1.0 as equal.
                earlier = found[plain]
                if repr(earlier) == repr(value) or isinstance(value, list | dict):
                    raise problem(f"{as_yaml(value)} is listed twice in choices; keep one")
                raise problem(
                    f"{as_yaml(earlier)} and {as_yaml(value)} are equal in Python, so no study can "
                    "tell them apart; keep one of them"
                )
            found[plain] = value
            if isinstance(value, str):
                # Only the value is checked: a swept param may be named `token`.
                refuse_secret(value, "")
        return self

    def allows(self, value: Value) -> bool:
        """Return whether a trial may have this value. The values 1 and true are different."""
        return any(_same(value, choice) for choice in self.choices)

    def count(self) -> int | None:
        """Return the number of values."""
        return len(self.choices)

    @property
    def hint(self) -> str:
        """The allowed values, for a message."""
        return "one of " + ", ".join(map(as_yaml, self.choices))


_FORMS = "expected {low: …, high: …}, {low: …, high: …, log: true} or a list of choices"


def _long_form(entry: Any) -> Any:
    """Return an entry of `space` as a mapping with `type`, by which pydantic chooses the class."""
    if isinstance(entry, Dimension):
        return entry
    if isinstance(entry, list | tuple):
        return {"type": "choice", "choices": entry}
    if not isinstance(entry, Mapping):
        raise problem(f"cannot read {as_yaml(entry)} as a dimension; {_FORMS}")
    if here := dimension_here(entry):
        raise problem(f"cannot read {as_yaml(entry)} as a dimension; {here}")
    if "type" in entry:
        kind = "choice" if entry["type"] == "categorical" else entry["type"]
        if kind not in ("float", "int", "choice"):
            raise problem(f"type {as_yaml(kind)} is not known; expected float, int or choice")
    elif "choices" in entry:
        kind = "choice"
    elif "low" in entry and "high" in entry:
        numbers = [entry[k] for k in ("low", "high", "step") if entry.get(k) is not None]
        is_whole = all(isinstance(n, int) and not isinstance(n, bool) for n in numbers)
        kind = "int" if is_whole else "float"
    else:
        raise problem(f"cannot read {as_yaml(entry)} as a dimension; {_FORMS}")
    return {**entry, "type": kind}


AnyDimension = FloatDimension | IntDimension | ChoiceDimension
_Choices = Annotated[list[ChoiceValue], Field(min_length=1)]
#: An entry of `space`, which is read from its short or its long form.
DimensionEntry = Annotated[
    AnyDimension,
    Field(discriminator="type"),
    BeforeValidator(_long_form, json_schema_input_type=_Choices | AnyDimension),
]


class SearchSpace(Mapping[str, AnyDimension]):
    """The dimensions by name. A dimension comes after those that its `when` names.

    Args:
        dimensions: The dimensions in any order.

    Raises:
        PydanticCustomError: Branches depend on each other in a circle.
    """

    def __init__(self, dimensions: Mapping[str, AnyDimension]) -> None:
        # A parent is a param that a `when` names. A parent that is not a dimension has a fixed
        # value, so the order does not depend on it.
        parents = {
            name: [parent for parent in dimension.when if parent in dimensions]
            for name, dimension in dimensions.items()
        }
        try:
            names = [*TopologicalSorter(parents).static_order()]
        except CycleError as error:
            circle = ", ".join(sorted({*error.args[1]}))
            raise problem(
                f"the `when` of {circle} refer to each other in a circle; remove one of them"
            ) from error
        self._dimensions = {name: dimensions[name] for name in names}

    def __iter__(self) -> Iterator[str]:
        return iter(self._dimensions)

    def __len__(self) -> int:
        return len(self._dimensions)

    def __getitem__(self, name: str) -> AnyDimension:
        return self._dimensions[name]

    @property
    def log_names(self) -> list[str]:
        """Names of the dimensions that are sampled on a logarithmic scale."""
        return [n for n, d in self.items() if isinstance(d, RangeDimension) and d.log]

    def exists(self, name: str, params: Params) -> bool:
        """Return whether a dimension exists in a trial with these params.

        Args:
            name: Name of the dimension.
            params: Params of the trial, at least those of all dimensions before this one.
        """
        when = self._dimensions[name].when
        return all(_opens(parent, values, params) for parent, values in when.items())

    def missing(self, params: Params) -> list[str]:
        """Return the names of dimensions that exist in a trial with these params but have no value.

        Args:
            params: Params of the trial.
        """
        return [name for name in self if name not in params and self.exists(name, params)]

    def sample(self, pick: Callable[[str, AnyDimension], Any]) -> dict[str, Any]:
        """Return the params of one trial, with values from `pick`.

        Args:
            pick: Called with the name and the dimension of each param that exists in the trial.
                Returns the value.
        """
        params: dict[str, Any] = {}
        for name, dimension in self.items():
            if self.exists(name, params):
                params[name] = pick(name, dimension)
        return params

    def without(self, fixed: Params) -> SearchSpace:
        """Return the space without fixed names and without dimensions that they exclude.

        A dimension is excluded if its `when` contradicts a fixed value, because its param then
        exists in no trial.
        """
        remaining: dict[str, AnyDimension] = {}
        for name, dimension in self.items():
            undecided: dict[str, Any] = {}
            is_open = True
            for parent, values in dimension.when.items():
                if parent in remaining:
                    undecided[parent] = values
                elif not _opens(parent, values, fixed):
                    is_open = False
            if is_open and name not in fixed:
                remaining[name] = dimension.model_copy(update={"when": undecided})
        return SearchSpace(remaining)

    def count(self) -> int | None:
        """Return the number of combinations of params. None if a dimension is continuous."""
        if any(dimension.count() is None for dimension in self._dimensions.values()):
            return None
        return self._count(self._dimensions, {})

    def _count(self, names: Iterable[str], chosen: Params) -> int:
        """Return the number of combinations of params after some have been chosen.

        Params that no `when` connects are independent, so their numbers are multiplied.

        Args:
            names: Names of the params that have not been chosen. Each one comes after its parents,
                the params that its `when` names.
            chosen: Chosen params.
        """
        connected: list[list[str]] = []
        for name in names:
            when = self._dimensions[name].when
            groups = [group for group in connected if not when.keys().isdisjoint(group)]
            undecided = {parent for group in groups for parent in group}
            if all(
                parent in undecided or _opens(parent, values, chosen)
                for parent, values in when.items()
            ):
                others = [group for group in connected if group not in groups]
                connected = [*others, [*chain(*groups), name]]
        return math.prod(self._count_connected(group, chosen) for group in connected)

    def _count_connected(self, names: Sequence[str], chosen: Params) -> int:
        """Return the number of combinations of params that `when` connects.

        Args:
            names: Names of these params. The first one is a parent of others, if there are others.
            chosen: Chosen params.
        """
        first, *rest = names
        dimension = self._dimensions[first]
        if not rest:
            return dimension.count() or 1
        values = dimension.choices if isinstance(dimension, ChoiceDimension) else ()
        return sum(self._count(rest, {**chosen, first: value}) for value in values)

    def completed(self, params: Params) -> dict[str, Any]:
        """Return params together with the missing params on which they depend by `when`.

        A missing param gets its first choice with which all of the given params exist.
        """
        found = dict(params)
        for name in reversed(self._dimensions):  # Reversed, each param comes before its parents.
            dimension = self._dimensions[name]
            if name in found or not isinstance(dimension, ChoiceDimension):
                continue
            branches = [self._dimensions[other].when for other in found if other in self]
            wanted = [when[name] for when in branches if name in when]
            opening = [
                choice
                for choice in dimension.choices
                if all(_opens(name, values, {name: choice}) for values in wanted)
            ]
            if wanted:
                found[name] = opening[0] if opening else wanted[0][0]
        return found

    def check_params(self, params: Params) -> None:
        """Check that a trial of this space can have these params. Some params may be missing.

        Raises:
            PydanticCustomError: A param is not in the space, has a value that the space does not
                allow, or does not exist with the values of the other params.
        """
        given, params = params, self.completed(params)
        for name, value in params.items():
            if name not in self._dimensions:
                raise problem(f"{name!r} is not in the space; {nearest(name, self)}")
            dimension = self._dimensions[name]
            if not dimension.allows(value):
                raise problem(
                    f"{name}: {as_yaml(value)} is outside the space; expected {dimension.hint}"
                )
            for parent, values in dimension.when.items():
                if parent not in params or _opens(parent, values, params):
                    continue
                if name not in given or parent not in given:
                    raise problem(
                        f"no trial has {', '.join(given)} together; leave one of them out"
                    )
                raise problem(
                    f"the param {name!r} does not exist when {parent} is "
                    f"{as_yaml(params[parent])}; leave it out"
                )


def _opens(parent: str, values: Iterable[Value], params: Params) -> bool:
    """Return whether the param `parent` has one of the values that a `when` requires."""
    return parent in params and any(_same(params[parent], value) for value in values)


def _same(left: Value, right: Value) -> bool:
    """Return whether two values are equal: 1 equals 1.0 but not true; [1] differs from [1.0]."""
    is_equal = as_scalar(left) == as_scalar(right)
    return is_equal and isinstance(left, bool) == isinstance(right, bool)


def check_branches(dimensions: Mapping[str, AnyDimension], fixed: Params) -> None:
    """Check the `when` of all dimensions.

    Raises:
        PydanticCustomError: A `when` has an unknown name, has a value that never occurs, or is part
            of a circle.
    """
    for name, dimension in dimensions.items():
        for parent, values in dimension.when.items():
            if parent not in dimensions and parent not in fixed:
                hint = nearest(parent, [n for n in (*dimensions, *fixed) if n != name])
                raise problem(f"space.{name}.when: {parent!r} is not in space or fixed; {hint}")
            above = dimensions.get(parent)
            if above is None:
                continue
            if not isinstance(above, ChoiceDimension):
                raise problem(
                    f"space.{name}.when: {parent!r} is a range; expected a param with choices"
                )
            for value in values:
                if not above.allows(value):
                    is_list = above.allows(list(values))
                    remedy = f"; to mean the list, write {as_yaml([[*values]])}" if is_list else ""
                    raise problem(
                        f"space.{name}.when.{parent}: {as_yaml(value)} never occurs; "
                        f"expected {above.hint}{remedy}"
                    )
    SearchSpace(dimensions)
