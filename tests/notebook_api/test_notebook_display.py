"""A notebook in IPython displays what it reports."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sweeper.notebook_api.messages import MARK_VARIABLE, MIME, Point

#: Runs cells in a new IPython process, and prints what they displayed.
IN_IPYTHON = """
import json, sys
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

shell = InteractiveShell.instance(
    display_pub_class=CapturingDisplayPublisher,
    config=Config({"HistoryManager": {"enabled": False}}),
)
displayed = []
for cell in json.load(sys.stdin):
    shell.run_cell(cell, store_history=True).raise_error()
    displayed.append(shell.display_pub.outputs)
    shell.display_pub.outputs = []
json.dump(displayed, sys.__stdout__)
"""


CELLS = (
    "import sweeper\nsweeper.report(0, acc=0.25)\nsweeper.report(1, acc=0.5)",
    "sweeper.report(2, acc=float('nan'), a_b=1)\nsweeper.score(acc=1)",
    "sweeper.report(0, acc=1e308)\nsweeper.report(1, acc=-1e308)\nsweeper.report(2, acc=0)",
    "sweeper.report(0, flat=7)\nsweeper.report(1, flat=7)",
    "sweeper.report(0, lost=float('inf'))",
    "for step in range(1000): sweeper.report(step, long=step)",
    "x = 1",
)


Displayed = list[list[dict[str, Any]]]


def display(cells: Sequence[str], folder: Path, **env: str) -> Displayed:
    """Return the display messages of each cell."""
    done = subprocess.run(
        [sys.executable, "-c", IN_IPYTHON],
        input=json.dumps(cells),
        capture_output=True,
        text=True,
        check=True,
        env={"IPYTHONDIR": str(folder), "PATH": "", **env},
    )
    messages: Displayed = json.loads(done.stdout)
    return messages


@pytest.fixture(scope="module")
def displayed(tmp_path_factory: pytest.TempPathFactory) -> Displayed:
    """Return the display messages of cells that run in a sweep without a socket for reports."""
    return display(CELLS, tmp_path_factory.mktemp("ipython"), **{MARK_VARIABLE: "sweep"})


def line_of(name: str, message: dict[str, Any]) -> str:
    lines = message["data"]["text/plain"].splitlines()
    return str(next(line for line in lines if line.split()[0] == name))


def test_without_a_socket_for_reports_each_display_has_the_step_and_values_as_json(
    displayed: Displayed,
) -> None:
    points = [Point.decode(message["data"][MIME]) for message in displayed[0]]
    assert points == [
        Point(step=0, metrics={"acc": 0.25}),
        Point(step=1, metrics={"acc": 0.5}),
    ]
    nan, final = (message["data"][MIME] for message in displayed[1])
    assert nan == {"step": 2, "metrics": {"acc": "nan", "a_b": 1.0}}
    assert final == {"step": None, "metrics": {"acc": 1.0}}


def test_each_cell_that_reports_has_one_display_that_is_updated_in_place(
    displayed: Displayed,
) -> None:
    assert [message["update"] for message in displayed[0]] == [False, True]
    assert [message["update"] for message in displayed[1]] == [False, True]
    names = [{m["transient"]["display_id"] for m in messages} for messages in displayed[:6]]
    assert [len(name) for name in names] == [1] * 6
    assert len(set.union(*names)) == 6
    assert displayed[6] == []


def test_the_display_of_reports_has_the_step_last_values_and_sparklines(
    displayed: Displayed,
) -> None:
    last = displayed[0][1]["data"]
    assert last["text/plain"].splitlines()[0] == "step 1"
    assert line_of("acc", displayed[0][1]).split() == ["acc", "0.5", "▁█"]
    assert "<td>acc</td><td>0.5</td><td>▁█</td>" in last["text/html"]


def test_a_sparkline_continues_across_cells_until_a_loop_starts_again(
    displayed: Displayed,
) -> None:
    assert line_of("acc", displayed[1][0]).split() == ["acc", "nan", "▁█·"]
    assert displayed[1][1]["data"]["text/plain"].splitlines()[-1].split() == ["acc", "1", "final"]
    assert line_of("acc", displayed[2][0]).split() == ["acc", "1e+308", "▁"]
    assert "a_b" not in displayed[2][0]["data"]["text/plain"]
    assert line_of("acc", displayed[2][-1]).split()[2] == "█▁▄"  # the range overflows a float
    assert line_of("flat", displayed[3][-1]).split()[2] == "▁▁"
    assert line_of("lost", displayed[4][-1]).split() == ["lost", "inf"]


def test_a_sparkline_of_a_long_series_has_24_bars_from_the_first_value_to_the_last(
    displayed: Displayed,
) -> None:
    sparkline = line_of("long", displayed[5][-1]).split()[2]
    assert len(sparkline) == 24
    assert (sparkline[0], sparkline[-1]) == ("▁", "█")
    assert sorted(sparkline) == list(sparkline)


def test_a_notebook_that_is_run_by_hand_displays_many_reports_in_few_updates(
    tmp_path: Path,
) -> None:
    begin = "import sweeper, contextlib"
    many = "for step in range(1000): sweeper.report(step, val=step)"
    silent = "with contextlib.redirect_stdout(None): sweeper.report(0, val=1)"
    _, messages, _ = display([begin, many, silent], tmp_path)
    assert len(messages) < 100
    assert "step 999" in messages[-1]["data"]["text/plain"]
    assert MIME not in messages[-1]["data"]
