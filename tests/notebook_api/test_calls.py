"""Both ends of the channel: what a notebook may report, and how a sweep hears and stops it."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sweeper
from sweeper.notebook_api.messages import (
    MIME,
    TRIAL_VARIABLE,
    Point,
    StopReason,
    decode_float,
    encode_float,
)
from sweeper.trials import RunningTrial


class Scalar:
    """Like a numpy scalar or a tensor of one element."""

    def __float__(self) -> float:
        return 0.5


class Tensor:
    """Like a tensor of several elements, about which torch raises an error of its own kind."""

    def __float__(self) -> float:
        raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")


# --- by hand -------------------------------------------------------------------------------------


def test_in_plain_python_every_call_works_and_nothing_happens(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = (
        "import sweeper; sweeper.report(0, acc=0.5); sweeper.score(acc=0.5);"
        "assert sweeper.trial().params == {}"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_by_hand_a_stand_in_tells_which_trial_this_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trial = sweeper.trial()
    assert (trial.number, trial.run_id, trial.params) == (0, "by-hand", {})
    assert (trial.seed, trial.attempt) == (0, 1)
    assert list(tmp_path.iterdir()) == []  # a folder is made only for who asks for it
    assert trial.checkpoint_dir.is_dir()
    assert trial.checkpoint_dir.absolute() == tmp_path / "checkpoints" / "by-hand"


def test_in_a_sweep_the_environment_tells_which_trial_this_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out" / "checkpoints" / "0007"
    told = {"number": 7, "run_id": "0007", "params": {"lr": 0.1}, "seed": 42, "attempt": 2}
    monkeypatch.setenv(TRIAL_VARIABLE, json.dumps({**told, "folder": str(folder)}))
    trial = sweeper.trial()
    assert (trial.number, trial.run_id, trial.params) == (7, "0007", {"lr": 0.1})
    assert (trial.seed, trial.attempt) == (42, 2)
    assert trial.checkpoint_dir == trial.checkpoint_dir == folder
    assert folder.is_dir()


# --- what may be reported ------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1, 0.5, True, Scalar(), Decimal("0.5"), math.nan, math.inf])
def test_anything_that_is_one_number_can_be_reported(value: Any) -> None:
    sweeper.report(0, acc=value)
    sweeper.score(acc=value)


@pytest.mark.parametrize("value", [None, "high", [0.5], {}, 1j, Tensor(), 10**400])
def test_what_is_not_one_number_is_refused_by_its_name(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^report\(acc=…\): expected one number, got "):
        sweeper.report(0, loss=0.5, acc=value)
    with pytest.raises(TypeError, match=r"^score\(acc=…\): expected one number, got "):
        sweeper.score(acc=value)


def test_a_large_value_is_told_by_its_type() -> None:
    with pytest.raises(TypeError, match=r"got a list$"):
        sweeper.score(acc=list(range(1000)))


@pytest.mark.parametrize("step", [0.5, "3", None, math.nan, math.inf, [1]])
def test_a_step_that_is_no_whole_number_is_refused(step: Any) -> None:
    with pytest.raises(TypeError, match=r"^report\(step=…\): expected "):
        sweeper.report(step, acc=0.5)


@pytest.mark.parametrize("step", [0, 3.0, True, Decimal(4)])
def test_any_whole_number_is_a_step(step: Any) -> None:
    sweeper.report(step, acc=0.5)


def test_a_metric_may_be_called_step() -> None:
    sweeper.report(0, step=0.5)


@given(st.floats())
def test_every_float_survives_json(value: float) -> None:
    text = json.dumps(encode_float(value), allow_nan=False)
    assert repr(decode_float(json.loads(text))) == repr(value)


@pytest.mark.parametrize("step", [None, 0, 3])
def test_a_point_survives_json(step: int | None) -> None:
    point = Point(step=step, metrics={"a": 0.1, "b": -math.inf})
    assert Point.decode(json.loads(json.dumps(point.encode(), allow_nan=False))) == point


# --- in IPython ----------------------------------------------------------------------------------

#: Runs cells in an IPython of its own and prints what they displayed.
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


@pytest.fixture(scope="module")
def displayed(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """What each of the cells displays, message by message."""
    done = subprocess.run(
        [sys.executable, "-c", IN_IPYTHON],
        input=json.dumps(CELLS),
        capture_output=True,
        text=True,
        check=True,
        env={"IPYTHONDIR": str(tmp_path_factory.mktemp("ipython")), "PATH": ""},
    )
    loaded: list[list[dict[str, Any]]] = json.loads(done.stdout)
    return loaded


Displayed = list[list[dict[str, Any]]]


def line_of(name: str, message: dict[str, Any]) -> str:
    lines = message["data"]["text/plain"].splitlines()
    return str(next(line for line in lines if line.split()[0] == name))


def test_each_call_carries_its_point(displayed: Displayed) -> None:
    points = [Point.decode(message["data"][MIME]) for message in displayed[0]]
    assert points == [
        Point(step=0, metrics={"acc": 0.25}),
        Point(step=1, metrics={"acc": 0.5}),
    ]
    nan, final = (message["data"][MIME] for message in displayed[1])
    assert nan == {"step": 2, "metrics": {"acc": "nan", "a_b": 1.0}}
    assert final == {"step": None, "metrics": {"acc": 1.0}}


def test_each_cell_has_one_display_that_is_updated_in_place(displayed: Displayed) -> None:
    assert [message["update"] for message in displayed[0]] == [False, True]
    assert [message["update"] for message in displayed[1]] == [False, True]
    names = [{m["transient"]["display_id"] for m in messages} for messages in displayed[:6]]
    assert [len(name) for name in names] == [1] * 6
    assert len(set.union(*names)) == 6
    assert displayed[6] == []


def test_the_display_shows_step_last_value_and_course(displayed: Displayed) -> None:
    last = displayed[0][1]["data"]
    assert last["text/plain"].splitlines()[0] == "step 1"
    assert line_of("acc", displayed[0][1]).split() == ["acc", "0.5", "▁█"]
    assert "<td>acc</td><td>0.5</td><td>▁█</td>" in last["text/html"]


def test_a_course_goes_on_over_cells_and_shows_gaps_and_finals(displayed: Displayed) -> None:
    assert line_of("acc", displayed[1][0]).split() == ["acc", "nan", "▁█·"]
    assert displayed[1][1]["data"]["text/plain"].splitlines()[-1].split() == ["acc", "1", "final"]


def test_a_loop_that_is_started_anew_starts_its_course_anew(displayed: Displayed) -> None:
    assert line_of("acc", displayed[2][0]).split() == ["acc", "1e+308", "▁"]
    assert "a_b" not in displayed[2][0]["data"]["text/plain"]


def test_no_course_of_values_breaks_the_display(displayed: Displayed) -> None:
    assert line_of("acc", displayed[2][-1]).split()[2] == "█▁▄"  # the range is no float
    assert line_of("flat", displayed[3][-1]).split()[2] == "▁▁"
    assert line_of("lost", displayed[4][-1]).split() == ["lost", "inf"]


def test_a_long_course_stays_short_and_keeps_its_ends(displayed: Displayed) -> None:
    course = line_of("long", displayed[5][-1]).split()[2]
    assert len(course) == 24
    assert (course[0], course[-1]) == ("▁", "█")
    assert sorted(course) == list(course)


# --- the channel ---------------------------------------------------------------------------------


def test_points_come_up_in_their_order() -> None:
    heard: list[Point] = []
    channel = RunningTrial(heard.append)
    points = [Point(step=step, metrics={"acc": 0.5}) for step in range(3)]
    for point in points:
        channel.publish(point)
    assert heard == points


def test_the_first_reason_to_stop_wins_and_is_told_once() -> None:
    channel, told = RunningTrial(), []
    channel.on_stop(lambda: told.append(channel.stop_reason))
    assert channel.stop_reason is None
    channel.stop(StopReason.TIME_LIMIT)
    channel.stop(StopReason.INTERRUPTED)
    assert told == [StopReason.TIME_LIMIT]
    assert channel.stop_reason is StopReason.TIME_LIMIT


def test_who_listens_after_the_stop_is_told_at_once() -> None:
    channel, told = RunningTrial(), []
    channel.stop(StopReason.INTERRUPTED)
    channel.on_stop(lambda: told.append("now"))
    assert told == ["now"]


def test_who_has_left_is_not_told() -> None:
    channel, told = RunningTrial(), []
    channel.on_stop(lambda: told.append("gone"))
    channel.on_stop(None)
    channel.stop(StopReason.INTERRUPTED)
    channel.on_stop(None)
    assert told == []


def test_the_listener_may_ask_the_channel_back() -> None:
    channel, told = RunningTrial(), []

    def listener() -> None:
        channel.stop(StopReason.TIME_LIMIT)
        channel.on_stop(None)
        told.append(channel.stop_reason)

    channel.on_stop(listener)
    stopper = threading.Thread(target=channel.stop, args=[StopReason.INTERRUPTED], daemon=True)
    stopper.start()
    stopper.join(timeout=5)
    assert not stopper.is_alive()
    assert told == [StopReason.INTERRUPTED]


def test_of_many_threads_that_stop_one_is_heard() -> None:
    channel, told = RunningTrial(), []
    channel.on_stop(lambda: told.append(1))
    gate = threading.Barrier(8)

    def stop() -> None:
        gate.wait()
        channel.stop(StopReason.INTERRUPTED)

    threads = [threading.Thread(target=stop) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == [1]
