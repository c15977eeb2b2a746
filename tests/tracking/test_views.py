"""The view with which MLflow's UI opens a study's experiment, and the links to it."""

from __future__ import annotations

import base64
import json
import socket
import zlib
from typing import Any

import pytest

from sweeper import Settings
from sweeper.settings.addresses import Address
from sweeper.tracking import View, free_port, view_url

SETTINGS = {
    "objective": {"val loss": "minimize", "cost": "maximize"},
    "space": {
        "lr": {"low": 1e-4, "high": 1.0, "log": True},
        "kind": ["a", "b"],
        "depth": {"low": 1, "high": 3, "when": {"kind": "b"}},
    },
    "fixed": {"epochs": 3},
}


def state_of(view: View) -> dict[str, Any]:
    """What MLflow's UI reads in the tag."""
    kind, _, packed = json.loads(view.as_tag())["state"].partition(";")
    assert kind == "deflate"
    state: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return state


@pytest.fixture
def view() -> View:
    settings = Settings.from_mapping(SETTINGS)
    return View.of(settings.search_space, settings.objective)


def test_objectives_and_swept_params_are_columns_and_the_best_run_is_first(view: View) -> None:
    state = state_of(view)
    assert state["selectedColumns"] == [
        "metrics.`val loss`",
        "metrics.`cost`",
        *("params.`lr`", "params.`kind`", "params.`depth`"),
    ]
    assert (state["orderByKey"], state["orderByAsc"]) == ("metrics.`val loss`", True)


def test_parallel_coordinates_have_logarithms_and_only_params_that_each_trial_has(
    view: View,
) -> None:
    (chart,) = state_of(view)["compareRunCharts"]
    assert chart["type"] == "PARALLEL"
    assert chart["selectedParams"] == ["log10_lr", "kind"]
    assert chart["selectedMetrics"] == ["val loss", "cost"]


def test_links_lead_to_the_view() -> None:
    here = "http://127.0.0.1:5000"
    assert view_url(Address.of("http://tracking:5001/"), "7", ui=here) == (
        "http://tracking:5001/#/experiments/7/runs?viewStateShareKey=sweeper"
        "&workflowType=machine_learning&compareRunsMode=CHART"
    )
    assert view_url(Address.of("sqlite:///x.db"), "7", ui=here).startswith(
        f"{here}/#/experiments/7/"
    )


def test_the_port_of_a_link_is_one_on_which_nothing_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        assert free_port(number) != number
    assert free_port(number) == number
