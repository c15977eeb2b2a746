"""Test tables for a paper. The trials are made-up records that never ran."""

from __future__ import annotations

import csv
from types import SimpleNamespace
from typing import Any

import pytest
from studies import small_settings, trial_record

from sweeper.control.tables import paper_table
from sweeper.trials import Confirmation, RerunPlan, TrialRecord

pytestmark = pytest.mark.slow  # because SciPy is imported

N_CONFIRMED = 15


def rows_of(records: list[TrialRecord], by: list[str], **more: Any) -> list[dict[str, str]]:
    settings = small_settings("s", objective={"acc": "maximize"}, **more)
    found = SimpleNamespace(
        settings=settings,
        study=SimpleNamespace(name="s", records=lambda: records),
        confirmation=lambda: None,
    )
    return [*csv.DictReader(paper_table(found, by=by, kind="csv").splitlines())]  # type: ignore[arg-type]


def test_an_exported_table_has_a_row_for_each_of_many_confirmed_trials() -> None:
    trials = [
        trial_record(number, params={"x": number / 100}, scores={"acc": 0.5})
        for number in range(N_CONFIRMED)
    ]
    plan = RerunPlan.of_trials(trials, [1, 2], objective="acc", direction="maximize")
    runs = [
        trial_record(2 * number + seed, params=trial.params, seed=seed, scores={"acc": number / 10})
        for number, trial in enumerate(trials)
        for seed in (1, 2)
    ]
    found = SimpleNamespace(
        settings=small_settings("s", objective={"acc": "maximize"}),
        study=SimpleNamespace(name="s", records=list),
        confirmation=lambda: Confirmation.of("s-confirm", plan, runs),
    )
    rows = [*csv.DictReader(paper_table(found, by=[], kind="csv").splitlines())]  # type: ignore[arg-type]
    assert [row["trials"] for row in rows] == ["2"] * N_CONFIRMED


def test_a_table_compares_two_values_fold_by_fold_even_if_all_trials_have_the_same_seed() -> None:
    space = {"kind": ["a", "b"]}
    records = [
        trial_record(
            10 * of_b + fold,
            params={"kind": "b" if of_b else "a", "fold": fold},
            seed=7,
            scores={"acc": fold / 10 + of_b / 1000 + fold % 2 / 10000},
        )
        for of_b in (0, 1)
        for fold in range(5)
    ]
    rows = rows_of(records, ["kind"], space=space, repeat={"fold": 5})
    assert [row["acc_is_best"] for row in rows] == ["False", "True"]
    assert {row["param"] for row in rows_of(records, [], space=space, repeat={"fold": 5})} == {
        "kind"
    }


def test_an_exported_table_can_have_a_param_that_is_no_longer_in_the_search_space() -> None:
    records = [
        trial_record(number, params={"x": 0.5, "width": number % 2}, scores={"acc": number / 10})
        for number in range(4)
    ]
    assert [row["width"] for row in rows_of(records, ["width"])] == ["0", "1"]
