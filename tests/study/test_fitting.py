"""A study is opened again with settings that do not fit its trials."""

from __future__ import annotations

from typing import Any

import pytest
from opened_studies import Opened, changed, completed

from sweeper.errors import StudyError
from sweeper.study.study import Study


def test_a_study_with_other_objectives_is_refused(begin: Any) -> None:
    opened = begin()
    fewer_or_more = ({"loss": "maximize"}, {"acc": "maximize", "loss": "minimize"})
    for objective in ({"acc": "minimize"}, *fewer_or_more):
        with pytest.raises(StudyError) as raised:
            Study.open(opened.storage, changed(opened, objective=objective))
        for fragment in (opened.settings.name, "acc: maximize", "--study", "-o"):
            assert fragment in str(raised.value)


def test_a_dimension_of_another_kind_is_refused_once_a_trial_has_used_it(begin: Any) -> None:
    opened = begin()
    others = [[0.0, 1.0], {"low": 0, "high": 1}, {"low": 0.1, "high": 1.0, "log": True}]
    Study.open(opened.storage, changed(opened, space={"x": others[0]}))
    opened.ask()
    for other in others:
        with pytest.raises(StudyError, match=rf"{opened.settings.name}.*in which x was .*--study"):
            Study.open(opened.storage, changed(opened, space={"x": other}))


def test_the_refusal_of_a_changed_dimension_quotes_both_as_in_the_file(begin: Any) -> None:
    before = {"a": [[32], [64, 64], {"x": True}, "[32]"], "b": {"low": 1, "high": 8, "log": True}}
    opened = begin(before)
    opened.ask()
    now: list[tuple[str, Any, list[str]]] = [
        ("a", [[32]], ["{choices: [[32], [64, 64], {x: true}, '[32]']}", "{choices: [[32]]}"]),
        ("b", [1, 2], ["{log: true, step: 1, low: 1, high: 8}", "{choices: [1, 2]}"]),
    ]
    for name, other, words in now:
        with pytest.raises(StudyError) as raised:
            Study.open(opened.storage, changed(opened, space={**before, name: other}))
        assert f"in which {name} was {words[0]}, now it is {words[1]}" in str(raised.value)


def test_a_range_may_be_moved_and_a_dimension_added(begin: Any) -> None:
    opened = begin()
    opened.ask()
    space = {"x": {"low": 5.0, "high": 6.0}, "y": [1, 2]}
    opened.study.tell(0, completed())
    params: Any = Opened(opened.storage, changed(opened, space=space)).ask().params
    assert params.keys() == {"x", "y"}
    assert params["x"] >= 5.0
