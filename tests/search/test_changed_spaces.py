"""After the space of a study was changed, samplers propose from the present one."""

from __future__ import annotations

from typing import Any

import pytest
from opened_studies import Opened, changed, completed

pytestmark = pytest.mark.slow  # many proposals


def run(opened: Opened, n_trials: int, score: Any) -> list[dict[str, Any]]:
    """Run trials with these scores. Return their params."""
    tried = []
    for _ in range(n_trials):
        record = opened.ask()
        tried.append(dict(record.params))
        opened.study.tell(record.number, completed(score(record.params)))
    return tried


@pytest.mark.parametrize("sampler", ["auto", "tpe", "cmaes"])
def test_samplers_also_propose_values_in_the_new_part_of_a_widened_range(
    sampler: str, begin: Any
) -> None:
    if sampler == "cmaes":
        pytest.importorskip("cmaes")
    narrow, wide = (
        {"x": {"low": low, "high": 1.0}, "y": {"low": 0.0, "high": 1.0}} for low in (0, -9)
    )
    opened = begin(narrow, sampler=sampler, trials=26)
    run(opened, 26, lambda params: -params["x"])
    study = {"sampler": sampler, "trials": 80}
    wider = Opened(opened.storage, changed(opened, space=wide, study=study))
    tried = run(wider, 30, lambda params: -params["x"])
    turns = tried[1::2] if sampler == "auto" else tried
    assert sum(params["x"] < 0 for params in turns) >= 10


@pytest.mark.parametrize("sampler", ["auto", "tpe"])
def test_proposals_stay_within_a_range_that_was_narrowed(sampler: str, begin: Any) -> None:
    opened = begin({"x": {"low": 0.0, "high": 1.0}}, sampler=sampler, trials=26)
    run(opened, 26, lambda params: -params["x"])
    study = {"sampler": sampler, "trials": 60}
    space = {"x": {"low": 0.5, "high": 1.0}}
    narrower = Opened(opened.storage, changed(opened, space=space, study=study))
    tried = run(narrower, 12, lambda params: -params["x"])
    assert all(0.5 <= params["x"] <= 1.0 for params in tried)
