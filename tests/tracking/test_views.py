"""The view with which MLflow's UI opens a study's experiment, and the links to it."""

from __future__ import annotations

import base64
import json
import socket
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from sweeper import Settings
from sweeper.settings.addresses import Address
from sweeper.tracking import View
from sweeper.tracking.opening import comparison, free_port
from sweeper.tracking.views import knows_views

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


@contextmanager
def server_of(version: str | None) -> Iterator[str]:
    """A server that tells its version as MLflow's does; None for one that does not."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if version and self.path == "/version" else 404)
            self.end_headers()
            self.wfile.write((version or "").encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("version", "expected"), [("3.17.2", True), ("2.22.0", False), (None, False), ("x", False)]
)
def test_a_server_that_may_not_know_the_view_gets_none(version: str | None, expected: bool) -> None:
    with server_of(version) as url:
        assert knows_views(Address.of(url)) is expected


def test_links_lead_to_the_view_or_to_the_comparison_of_all_runs() -> None:
    server = Address.of("http://tracking:5001/")
    there = comparison(server, "7", ["a", "b"], has_view=True, ui="http://127.0.0.1:5000")
    assert there == (
        "http://tracking:5001/#/experiments/7/runs?viewStateShareKey=sweeper"
        "&workflowType=machine_learning&compareRunsMode=CHART"
    )
    older = comparison(server, "7", ["a", "b"], has_view=False, ui="http://127.0.0.1:5000")
    assert older.startswith("http://tracking:5001/#/compare-runs?runs=%5B%22a%22%2C%22b%22%5D&")
    here = comparison(
        Address.of("sqlite:///x.db"), "7", ["a"], has_view=True, ui="http://127.0.0.1:5003"
    )
    assert here.startswith("http://127.0.0.1:5003/#/experiments/7/")


def test_the_port_of_a_link_is_one_on_which_nothing_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        assert free_port(number) != number
    assert free_port(number) == number
