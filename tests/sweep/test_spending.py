"""The time and the money that a study has taken."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from optuna.storages import RDBStorage
from studies import small_settings, until

from sweeper.settings.sections import Cost
from sweeper.study import Study
from sweeper.sweep.spending import Spending
from sweeper.trials import BudgetForecast


def test_time_is_written_down_while_a_sweep_runs_and_counted_once(
    storage: RDBStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeper.sweep.spending._SAVE_S", 60.0)
    monkeypatch.setattr("sweeper.sweep.spending._PAUSE_S", 0.0)
    named, cost = small_settings("spent"), Cost(price_per_hour=3600.0, budget=100.0)
    study = Study.open(storage, named)
    first = Spending(study, cost, since=time.monotonic() - 10)

    def written_s() -> float:
        return Study.load(str(storage.url), "spent").spent_s

    with first.written_down():
        until(lambda: 10 <= written_s() < 20)
        before_s = written_s()
        first.trial_ended()
        until(lambda: written_s() > before_s)
        assert first.cost == pytest.approx(first.spent_s, abs=1)
    total_s = written_s()
    assert before_s < total_s < 30
    second = Spending(Study.open(storage, named), cost, since=time.monotonic() - 20)
    assert second.spent_s == pytest.approx(total_s + 20, abs=2)
    assert second.left_s == pytest.approx(80 - total_s, abs=2)
    assert Spending(study, None, since=time.monotonic()).left_s is None


def test_a_budget_that_does_not_last_is_reported_once(
    storage: RDBStorage, caplog: pytest.LogCaptureFixture
) -> None:
    study = Study.open(storage, small_settings("spent"))
    cost = Cost(price_per_hour=3600.0, budget=100.0)
    spending = Spending(study, cost, since=time.monotonic())
    found = BudgetForecast(budget=100.0, trials=3, left=9)
    for forecast in (None, found, found):
        spending.report(lambda forecast=forecast: forecast)  # type: ignore[misc]
    assert len(caplog.messages) == 1


@pytest.mark.slow  # it imports Optuna anew
def test_what_a_sweep_has_spent_survives_its_kill(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    code = (
        "import sys, time; from sweeper.settings import Settings; from sweeper.study import Study;"
        "from sweeper.sweep.spending import Spending;"
        "data = {'objective': {'val': 'maximize'}, 'space': {'x': [1, 2]}, 'study': {'name': 'k'}};"
        "study = Study.open(sys.argv[1], Settings.from_mapping(data));"
        "spending = Spending(study, None, since=time.monotonic() - 7);\n"
        "with spending.written_down():\n"
        "    time.sleep(1.5); spending.trial_ended(); print('ended', flush=True); time.sleep(60)"
    )
    sweep = subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE)
    assert sweep.stdout is not None
    assert sweep.stdout.readline()
    until(lambda: Study.load(url, "k").spent_s > 8.5)
    sweep.send_signal(signal.SIGKILL)
    sweep.wait()
    sweep.stdout.close()
    assert 8.5 < Study.load(url, "k").spent_s < 30
