"""Test the dimensions of a search space: forms, conditions (`when`) and allowed values."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from sweeper.settings.space import (
    AnyDimension,
    ChoiceDimension,
    DimensionEntry,
    FloatDimension,
    IntDimension,
    SearchSpace,
    as_scalar,
)
from sweeper.settings.yaml_reader import read_yaml

read_dimension = TypeAdapter[AnyDimension](DimensionEntry).validate_python


def space_of(**entries: Any) -> SearchSpace:
    return SearchSpace({name: read_dimension(entry) for name, entry in entries.items()})


OPTIMIZERS = {
    "optimizer": ["sgd", "adam"],
    "nesterov": {"choices": [True, False], "when": {"optimizer": "sgd"}},
    "momentum": {"low": 0.8, "high": 0.99, "when": {"nesterov": True}},
    "width": {"low": 16, "high": 64, "step": 16},
}


# --- forms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        ({"low": 1, "high": 3}, IntDimension),
        ({"low": 1.0, "high": 3}, FloatDimension),
        ({"low": 0, "high": 1, "step": 0.25}, FloatDimension),
        ({"type": "float", "low": 1, "high": 3}, FloatDimension),
        ([1, 2], ChoiceDimension),
        ([None, True, 0.5, "x"], ChoiceDimension),
        ({"choices": [1, 2]}, ChoiceDimension),
        ({"type": "categorical", "choices": [1, 2]}, ChoiceDimension),
    ],
)
def test_a_dimension_has_its_stated_type_or_the_type_of_its_bounds(entry: Any, kind: type) -> None:
    assert type(read_dimension(entry)) is kind


@pytest.mark.parametrize(
    ("entry", "here"),
    [
        ({"min": 1, "max": 9}, {"low": 1, "high": 9}),
        (
            {"min": 0, "max": 1, "distribution": "uniform"},
            {"low": 0, "high": 1, "type": "float"},
        ),
        (
            {"min": 1e-4, "max": 1, "distribution": "log_uniform_values"},
            {"low": 1e-4, "high": 1.0, "log": True},
        ),
        (
            {"min": 2, "max": 10, "q": 2, "distribution": "q_uniform"},
            {"low": 2, "high": 10, "step": 2},
        ),
        (
            {"type": "loguniform", "low": 1e-4, "high": 1e-1},
            {"low": 1e-4, "high": 0.1, "log": True},
        ),
        ({"low": 1, "high": 3, "scale": "log"}, {"low": 1, "high": 3, "log": True}),
        ({"lower": 1, "upper": 3, "when": {"a": 1}}, {"low": 1, "high": 3, "when": {"a": 1}}),
        ({"values": [1, "x"]}, [1, "x"]),
        ({"grid_search": [32, 64]}, [32, 64]),
    ],
)
def test_a_dimension_in_the_syntax_of_another_tool_is_refused_with_the_equivalent_entry(
    entry: Any, here: Any
) -> None:
    with pytest.raises(ValidationError) as raised:
        read_dimension(entry)
    written = raised.value.errors()[0]["msg"].partition("; write ")[2]
    assert read_yaml(written) == here
    read_dimension(read_yaml(written))


def test_a_range_whose_bounds_are_logarithms_is_refused_with_advice_to_write_the_values() -> None:
    with pytest.raises(ValidationError, match="log: true}, with the values and not their log"):
        read_dimension({"min": -2, "max": 0, "distribution": "log_uniform"})


def test_a_bound_that_is_too_large_for_a_float_is_refused_with_the_entry_to_write() -> None:
    with pytest.raises(ValidationError, match=r"; write \{low: 1000"):
        read_dimension({"min": 10**400, "max": 1, "distribution": "uniform"})


def test_too_many_choices_are_refused_with_the_limit() -> None:
    with pytest.raises(ValidationError, match="10,001 choices; expected 10,000 at most"):
        read_dimension(list(range(10_001)))


def test_a_choice_may_be_a_list_in_the_short_and_the_long_form_of_a_dimension() -> None:
    for entry in ([[32], [64, 64]], {"choices": [[32], [64, 64]]}, [(32,), (64, 64)]):
        choices = read_dimension(entry)
        assert isinstance(choices, ChoiceDimension)
        assert choices.choices == ([32], [64, 64])
        assert choices.count() == 2


def test_different_values_of_any_type_are_stored_as_different_scalars() -> None:
    values: list[Any] = [
        *([1], [1.0], [True], "[1]", "json:[1]", 'json:"json:[1]"', [[1]], ["1"], [None]),
        *(1, "1", None, [], {}, {"a": 1}, {"a": [1]}, {"a": "1"}, "json:", "ä", ["ä"], -0.5),
    ]
    scalars = [as_scalar(value) for value in values]
    assert len({repr(scalar) for scalar in scalars}) == len(values)
    assert all(s is None or isinstance(s, int | float | str) for s in scalars)
    # Existing studies store these texts. With another spelling, their lists would become other
    # choices.
    assert as_scalar([64, 1.0, True, None, "ä"]) == 'json:[64, 1.0, true, null, "ä"]'
    assert (
        as_scalar({"b": 1, "a": [2]})
        == as_scalar({"a": [2], "b": 1})
        == ('json:{"a": [2], "b": 1}')
    )
    assert as_scalar("json:[1]") == 'json:"json:[1]"'


def test_numbers_truth_values_and_texts_are_stored_unchanged() -> None:
    values = [None, True, 2, 3.0, "4", "[32]", "{}", "", "json"]
    assert list(map(repr, map(as_scalar, values))) == list(map(repr, values))


@pytest.mark.parametrize(
    ("entry", "value", "allowed"),
    [
        ({"low": 1, "high": 9, "step": 4}, 5, True),
        ({"low": 1, "high": 9, "step": 4}, 6, False),
        ({"low": 1, "high": 9}, 10, False),
        ({"low": 1, "high": 9}, 3.0, False),
        ({"low": 0, "high": 9}, True, False),
        ({"low": 0.0, "high": 1.0}, 1, True),
        ({"low": 0.0, "high": 1.0}, float("nan"), False),
        ({"low": 0.0, "high": 0.9, "step": 0.3}, 0.1 + 0.2, True),
        ({"low": 0.0, "high": 0.9, "step": 0.3}, 0.4, False),
        ([1, 2], 1.0, True),
        ([1, 2], True, False),
        ([True, False], 1, False),
        (["1"], 1, False),
        ([[32], [64, 64]], [64, 64], True),
        ([[32], [64, 64]], (64, 64), False),
        ([[32], [64, 64]], "[32]", False),
        (["[32]", "json:[32]"], [32], False),
        ([[1]], [1.0], False),
        ([{"a": [1], "b": None}], {"b": None, "a": [1]}, True),
        ([{"a": [1]}], {"a": [True]}, False),
    ],
)
def test_a_dimension_allows_only_values_of_its_range_or_choices_and_type(
    entry: Any, value: Any, allowed: bool
) -> None:
    assert read_dimension(entry).allows(value) is allowed


@pytest.mark.parametrize(
    ("entry", "count"),
    [
        ({"low": 1, "high": 9}, 9),
        ({"low": 1, "high": 10, "step": 4}, 3),
        ({"low": 0.0, "high": 1.0, "step": 0.3}, 4),
        ({"low": 0.0, "high": 1.0}, None),
        (["a", "b", "c"], 3),
    ],
)
def test_the_count_of_a_dimension_is_its_number_of_values_or_none_if_it_is_continuous(
    entry: Any, count: int | None
) -> None:
    assert read_dimension(entry).count() == count


# --- branches: params that exist only for some values of another param ---------------------------


def test_the_value_1_does_not_meet_the_condition_true_of_another_param() -> None:
    space = space_of(o=[True, False], x={"low": 0, "high": 1, "when": {"o": True}})
    assert not space.exists("x", {"o": 1})


def test_a_param_is_missing_from_given_params_only_if_they_meet_its_condition() -> None:
    space = space_of(**OPTIMIZERS)
    assert space.missing({"optimizer": "adam"}) == ["width"]
    assert {*space.missing({"optimizer": "sgd", "width": 16})} == {"nesterov"}
    assert not space.missing({"optimizer": "sgd", "nesterov": False, "width": 16})


def test_a_value_that_is_a_list_meets_a_condition_that_contains_this_list() -> None:
    space = space_of(
        layers=[[], [32], [64, 64], [64.0, 64]],
        x={"low": 0, "high": 1, "when": {"layers": [[], [64, 64]]}},
    )
    values: list[Any] = [[], [32], [64, 64], [64.0, 64]]
    assert [space.exists("x", {"layers": v}) for v in values] == [True, False, True, False]
    assert set(space.without({"layers": [64, 64]})) == {"x"}
    assert set(space.without({"layers": [64, 64, 64]})) == set()
    assert space.count() == 2 * 2 + 2


def test_the_sets_of_params_of_large_and_of_conditional_spaces_are_counted() -> None:
    wide = {f"w{i}": {"low": 1, "high": 1000} for i in range(20)}
    assert space_of(**wide).count() == 1000**20
    assert space_of(**OPTIMIZERS).count() is None  # momentum is continuous
    stepped = {"low": 0.8, "high": 0.9, "step": 0.05, "when": {"nesterov": True}}
    assert space_of(**{**OPTIMIZERS, "momentum": stepped}).count() == 4 * (3 + 1 + 1)


@pytest.mark.parametrize(
    ("params", "completed"),
    [
        ({"momentum": 0.9}, {"momentum": 0.9, "nesterov": True, "optimizer": "sgd"}),
        ({"nesterov": False}, {"nesterov": False, "optimizer": "sgd"}),
        ({"optimizer": "adam", "width": 16}, {"optimizer": "adam", "width": 16}),
        ({"width": 16}, {"width": 16}),
    ],
)
def test_stating_a_conditional_param_also_sets_the_params_in_its_condition(
    params: dict[str, Any], completed: dict[str, Any]
) -> None:
    assert space_of(**OPTIMIZERS).completed(params) == completed


def test_params_whose_conditions_exclude_each_other_are_refused() -> None:
    def branch(*values: str) -> dict[str, Any]:
        return {"choices": [1], "when": {"o": list(values)}}

    space = space_of(o=["a", "b", "c"], x=branch("a", "b"), y=branch("b", "c"), z=branch("a"))
    assert space.completed({"x": 1, "y": 1})["o"] == "b"
    with pytest.raises(PydanticCustomError, match="no trial has y, z together"):
        space.check_params({"y": 1, "z": 1})


def test_the_time_to_count_a_space_does_not_grow_exponentially_with_conditional_params() -> None:
    layers: dict[str, Any] = {"net": ["small", "large"]}
    for i in range(40):
        layers[f"op{i}"] = {"choices": ["a", "b", "c", "d"], "when": {"net": "large"}}
        layers[f"k{i}"] = {"choices": [3, 5], "when": {f"op{i}": "a"}}
    assert space_of(**layers).count() == 1 + (2 + 3) ** 40
    gates = {f"g{i}": [True, False] for i in range(40)}
    last = {"low": 1, "high": 3, "when": dict.fromkeys(gates, True)}
    assert space_of(**gates, last=last).count() == 2**40 + 2


# --- for any space -------------------------------------------------------------------------------


def values_of(dimension: AnyDimension) -> list[Any]:
    if isinstance(dimension, ChoiceDimension):
        return list(dimension.choices)
    assert dimension.step is not None
    return [dimension.low + i * dimension.step for i in range(dimension.count() or 0)]


@st.composite
def finite_spaces(draw: st.DrawFn) -> SearchSpace:
    entries: dict[str, dict[str, Any]] = {}
    for name in "abcd"[: draw(st.integers(1, 4))]:
        kind = draw(st.sampled_from(["choice", "choice", "int", "float"]))
        if kind == "choice":
            entry: dict[str, Any] = {"choices": list("xyz"[: draw(st.integers(1, 3))])}
        else:
            step = draw(st.integers(1, 2)) if kind == "int" else 0.25
            low = draw(st.integers(-2, 2))
            entry = {"type": kind, "low": low, "high": low + draw(st.integers(0, 2)), "step": step}
        parents = [n for n, e in entries.items() if "choices" in e]
        entry["when"] = {
            parent: draw(st.lists(st.sampled_from(entries[parent]["choices"]), min_size=1))
            for parent in parents
            if draw(st.booleans())
        }
        entries[name] = entry
    names = draw(st.permutations(sorted(entries)))
    return space_of(**{name: entries[name] for name in names})


def all_trials(space: SearchSpace) -> set[frozenset[tuple[str, Any]]]:
    names = list(space)
    trials = set()
    for combination in itertools.product(*(values_of(space[name]) for name in names)):
        chosen = dict(zip(names, combination, strict=True))

        def pick(name: str, _: AnyDimension, chosen: dict[str, Any] = chosen) -> Any:
            return chosen[name]

        trials.add(frozenset(space.sample(pick).items()))
    return trials


@given(finite_spaces())
@settings(max_examples=60, deadline=None)
def test_every_trial_has_allowed_values_for_exactly_the_params_of_its_branch(
    space: SearchSpace,
) -> None:
    for trial in map(dict, all_trials(space)):
        space.check_params(trial)
        for name, dimension in space.items():
            opened = all(
                parent in trial and trial[parent] in values
                for parent, values in dimension.when.items()
            )
            assert (name in trial) == opened
            assert name not in trial or dimension.allows(trial[name])


@given(finite_spaces())
@settings(max_examples=60, deadline=None)
def test_the_size_of_a_space_is_the_number_of_different_sets_of_params(space: SearchSpace) -> None:
    assert space.count() == len(all_trials(space))


@given(finite_spaces(), st.data())
@settings(max_examples=60, deadline=None)
def test_a_space_with_a_fixed_param_has_exactly_the_sets_of_params_with_its_fixed_value(
    space: SearchSpace, data: st.DataObject
) -> None:
    roots = [name for name, dimension in space.items() if not dimension.when]
    fixed = data.draw(st.sampled_from(roots))
    value = data.draw(st.sampled_from(values_of(space[fixed])))
    expected = {trial - {(fixed, value)} for trial in all_trials(space) if (fixed, value) in trial}
    assert all_trials(space.without({fixed: value})) == expected
