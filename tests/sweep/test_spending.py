"""The time and the money that a study has taken."""

from __future__ import annotations

import time

import pytest
from optuna.storages import RDBStorage
from studies import small_settings

from sweeper.settings.sections import Cost
from sweeper.study.study import Study
from sweeper.sweep.spending import Spending


def test_the_time_of_all_sweeps_counts_each_once(storage: RDBStorage) -> None:
    named, cost = small_settings("spent"), Cost(price_per_hour=3600.0, budget=100.0)
    first = Spending(Study.open(storage, named), cost, since=time.monotonic() - 10)
    first.write()
    first.write()
    stored = Study.load(str(storage.url), "spent").facts["spent_s"]
    assert stored == pytest.approx(10, abs=1)
    second = Spending(Study.open(storage, named), cost, since=time.monotonic() - 20)
    assert second.spent_s == pytest.approx(30, abs=1)
    assert second.cost == pytest.approx(30, abs=1)
    assert second.left_s == pytest.approx(70, abs=1)
    study = Study.open(storage, named)
    assert Spending(study, None, since=time.monotonic()).left_s is None
