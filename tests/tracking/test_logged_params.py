"""Test which params MLflow shows for a trial."""

from __future__ import annotations

from studies import small_settings

from sweeper.tracking import run_params


def test_mlflow_shows_params_of_a_trial_that_the_search_space_no_longer_has() -> None:
    space = {"lr": {"low": 1e-4, "high": 1e-1, "log": True}, "depth": [2, 4]}
    settings = small_settings("s", space=space)
    assert run_params(settings.search_space, {"lr": 0.01, "width": 64}) == {
        "lr": "0.01",
        "depth": "n/a",
        "width": "64",
        "log10_lr": "-2.000000",
    }
