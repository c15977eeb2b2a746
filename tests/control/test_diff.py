"""What differs between two trials of a study."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweeper.cli import main
from sweeper.control.diff import diff_in_words, diff_trials
from sweeper.control.lookup import find_study
from sweeper.notebooks.compare import Differences

pytestmark = pytest.mark.slow  # MLflow, in the sweep before them


def between(folder: Path, first: str, second: str) -> Differences:
    return diff_trials(find_study(str(folder), storage=None), first, second)


def test_two_trials_that_came_to_the_same_differ_in_nothing(folder: Path) -> None:
    lines = diff_in_words("0000", "0001", between(folder, "0000", "0001"))
    assert [line for line in lines if "no difference" in line] == [
        *("params: no difference", "scores: no difference", "outputs: no difference")
    ]
    assert "  val: equal at all 3 points" in lines


def test_params_scores_steps_and_outputs_that_differ_are_listed(folder: Path) -> None:
    found = between(folder, "0000", "0002")
    lines = diff_in_words("0000", "0002", found)
    assert lines[1:] == [
        "params",
        "  x: 0.5 → 0.25",
        "scores",
        "  val: 0.5 → 0.25 (-0.25)",
        "series",
        "  val: equal at the first 1 points; from step 1 on 0.25 → 0.125 (-0.125)",
        "  loss: equal at all 1 points",
        "outputs",
        f"  cell {found.outputs[0].cell}, from line 2 on: '0.5' → '0.25'",
    ]


def test_the_command_prints_the_differences_and_an_object(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", str(folder), "0000", "0003", "--json"]) == 0
    printed = capsys.readouterr()
    assert "0000 and 0003:" in printed.err
    assert "  state: completed → failed" in printed.err
    assert "  message: none → In [2]: ValueError: no" in printed.err
    data = json.loads(printed.out.splitlines()[-1])
    assert data["run_ids"] == ["0000", "0003"]
    assert data["series"]["val"]["step"] == 1


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (["0000"], "give two run ids"),
        (["a", "0000", "0001", "0002"], "give two run ids"),
        (["0000", "0099"], "no trial 0099; it has 0000 to 0005"),
    ],
)
def test_a_wrong_call_is_one_message(
    folder: Path, capsys: pytest.CaptureFixture[str], targets: list[str], words: str
) -> None:
    if len(targets) == 2:
        targets = [str(folder), *targets]
    assert main(["diff", *targets]) == 2
    assert words in capsys.readouterr().err
