"""What a sweep is expected to take, from a few runs of its notebook."""

from __future__ import annotations

from dataclasses import replace

import pytest
from studies import small_settings

from sweeper.control.checking.forecast import SweepForecast, make_forecast
from sweeper.control.checking.judging import forecast_finding
from sweeper.control.checking.probes import Measured, Probe, Role
from sweeper.execution.machine.capacity import usable_cores
from sweeper.trials import KernelUse, TrialOutcome, TrialState

FORECAST = SweepForecast(
    trials=100,
    at_once=4,
    memory_at_once=9,
    duration_s=7200.0,
    trial_s=288.0,
    cost=2.2,
    disk_bytes=5 * 10**9,
)


def measured(
    role: Role, duration_s: float, *, cells_s: float | None = None, forked: bool = True
) -> Measured:
    return Measured(
        probe=Probe(role=role, number=0, params={}, fixed={}, seed=0),
        outcome=TrialOutcome(
            state=TrialState.COMPLETED,
            duration_s=duration_s,
            kernel=KernelUse(is_forked=forked),
        ),
        memory_bytes=10**9,
        cells_s=duration_s if cells_s is None else cells_s,
        notebook_bytes=10**6,
        checkpoint_bytes=10**7,
    )


def test_trials_take_as_long_as_the_run_at_full_length_without_its_boot() -> None:
    settings = small_settings("plan", study={"trials": 100}, cost={"price_per_hour": 2.0})
    runs = [
        # Three seconds to boot and import, of which the cells have one.
        measured(Role.TYPICAL, 5.0, cells_s=3.0, forked=False),
        measured(Role.AGAIN, 2.0),
        measured(Role.OTHER_SEED, 2.0),
        measured(Role.OTHER, 5.0),
        measured(Role.FULL, 40.0, cells_s=31.0, forked=False),
    ]
    found = make_forecast(settings, runs, jobs=4)
    assert found.trial_s == pytest.approx(45.0)  # 30 s, and trials vary by a half on average
    booting_s = 9 * 3 / min(4, usable_cores())
    assert found.duration_s == pytest.approx(101 * 45 / 4 + booting_s + 6)
    assert found.cost == pytest.approx(2.0 * found.duration_s / 3600)
    assert found.disk_bytes > 100 * (10**7 + 10**6)


def test_the_runs_that_confirm_the_best_trials_take_their_time_as_well() -> None:
    runs = [measured(Role.TYPICAL, 5.0), measured(Role.AGAIN, 5.0), measured(Role.OTHER, 5.0)]
    plain = make_forecast(small_settings("plan"), runs, jobs=1)
    confirm = {"best": 3, "seeds": 5}
    confirming = make_forecast(small_settings("plan", confirm=confirm), runs, jobs=1)
    assert (plain.trials, confirming.trials) == (9, 9 + 15)
    text = forecast_finding(confirming, free_disk_bytes=10**12).text
    assert text.startswith("24 trials (15 of them to confirm the best), 1 at once")
    assert confirming.duration_s > 2 * plain.duration_s


def test_a_sweep_that_fits_holds_with_its_time_cost_and_disk() -> None:
    found = forecast_finding(FORECAST, free_disk_bytes=10**10)
    assert found.holds
    assert found.text == (
        "100 trials, 4 at once, take about 2h00m, cost 2.20 and at most 5.0 GB of disk"
    )


@pytest.mark.parametrize(
    ("forecast", "free", "remedy"),
    [
        (FORECAST, 10**9, "only 1.0 GB are free: make room, or keep fewer checkpoints"),
        (replace(FORECAST, memory_at_once=2), 10**10, "memory carries 2 at once: lower -j"),
        (replace(FORECAST, memory_at_once=0), 10**10, "memory carries 1 at once: lower -j"),
    ],
)
def test_too_little_disk_or_memory_is_found_with_its_remedy(
    forecast: SweepForecast, free: int, remedy: str
) -> None:
    found = forecast_finding(forecast, free_disk_bytes=free)
    assert found.holds is False
    assert remedy in found.remedy
