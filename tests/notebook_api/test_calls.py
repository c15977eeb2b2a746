"""What a notebook may report, and which trial it runs as."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sweeper
from sweeper.notebook_api.messages import TRIAL_VARIABLE, Point, decode_float, encode_float


class Scalar:
    """Like a numpy scalar or a tensor of one element."""

    def __float__(self) -> float:
        return 0.5


class Tensor:
    """Like a tensor of several elements, about which torch raises an error of its own kind."""

    def __float__(self) -> float:
        raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")


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


def test_by_hand_the_trial_is_a_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trial = sweeper.trial()
    assert (trial.number, trial.run_id, trial.params) == (0, "by-hand", {})
    assert (trial.seed, trial.attempt) == (0, 1)
    assert list(tmp_path.iterdir()) == []  # a folder is made only for who asks for it
    assert trial.checkpoint_dir.is_dir()
    assert trial.checkpoint_dir.absolute() == tmp_path / "checkpoints" / "by-hand"


def test_in_a_sweep_the_trial_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out" / "checkpoints" / "0007"
    environment = {"number": 7, "run_id": "0007", "params": {"lr": 0.1}, "seed": 42, "attempt": 2}
    monkeypatch.setenv(TRIAL_VARIABLE, json.dumps({**environment, "folder": str(folder)}))
    trial = sweeper.trial()
    assert (trial.number, trial.run_id, trial.params) == (7, "0007", {"lr": 0.1})
    assert (trial.seed, trial.attempt) == (42, 2)
    assert trial.checkpoint_dir == trial.checkpoint_dir == folder
    assert folder.is_dir()


@pytest.mark.parametrize("value", [1, 0.5, True, Scalar(), Decimal("0.5"), math.nan, math.inf])
def test_anything_that_is_one_number_can_be_reported(value: Any) -> None:
    sweeper.report(0, acc=value)
    sweeper.score(acc=value)


@pytest.mark.parametrize("value", [None, "high", [0.5], {}, 1j, Tensor(), 10**400])
def test_the_message_for_a_value_that_is_not_one_number_has_its_name(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^report\(acc=…\): expected one number, got "):
        sweeper.report(0, loss=0.5, acc=value)
    with pytest.raises(TypeError, match=r"^score\(acc=…\): expected one number, got "):
        sweeper.score(acc=value)


def test_the_message_for_a_large_value_has_its_type() -> None:
    with pytest.raises(TypeError, match=r"got a list$"):
        sweeper.score(acc=list(range(1000)))


@pytest.mark.parametrize("step", [0.5, "3", None, math.nan, math.inf, [1]])
def test_a_step_that_is_not_a_whole_number_is_refused(step: Any) -> None:
    with pytest.raises(TypeError, match=r"^report\(step=…\): expected "):
        sweeper.report(step, acc=0.5)


@pytest.mark.parametrize("step", [0, 3.0, True, Decimal(4)])
def test_any_whole_number_is_a_step(step: Any) -> None:
    sweeper.report(step, acc=0.5)


def test_a_metric_may_have_the_name_step() -> None:
    sweeper.report(0, step=0.5)


@given(st.floats())
def test_every_float_survives_json(value: float) -> None:
    text = json.dumps(encode_float(value), allow_nan=False)
    assert repr(decode_float(json.loads(text))) == repr(value)


@pytest.mark.parametrize("step", [None, 0, 3])
def test_a_point_survives_json(step: int | None) -> None:
    point = Point(step=step, metrics={"a": 0.1, "b": -math.inf})
    assert Point.decode(json.loads(json.dumps(point.encode(), allow_nan=False))) == point
