"""What differs between two trials of a study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from studies import small_settings

from sweeper import Sweep
from sweeper.cli import main
from sweeper.control.diff import diff_in_words, diff_trials
from sweeper.control.lookup import find_study
from sweeper.notebooks.compare import Differences
from sweeper.testing import InlineExecutor, write_notebook
from sweeper.trials import RunningTrial, TrialOutcome, TrialSpec, TrialState

SPACE = {"x": {"low": 0.0, "high": 1.0}, "kind": ["a"]}
#: The series and outputs of four trials, of which the second is like the first.
SERIES: list[list[float]] = [[0.5, 0.75], [0.5, 0.75], [0.5, 0.25], [0.5]]
PRINTED = ["one\ntwo\n", "one\ntwo\n", "one\n2\n", "one\n"]


def run_trial(spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
    node = nbformat.read(write_notebook(spec.notebook, "train()"), as_version=4)
    new_output: Any = nbformat.v4.new_output
    node.cells[-1].outputs = [new_output("stream", name="stdout", text=PRINTED[spec.number])]
    values = SERIES[spec.number]
    series = {"val": {"steps": [*range(len(values))], "values": [str(v) for v in values]}}
    node.metadata["sweeper"] = {"series": series}
    nbformat.write(node, spec.notebook)
    if spec.number == 3:
        return TrialOutcome(state=TrialState.FAILED, message="In [2]: no")
    return TrialOutcome(state=TrialState.COMPLETED, scores={"val": values[-1]})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared")
    start = [{"x": 0.5, "kind": "a"}] * 2
    settings = small_settings("pair", study={"trials": 4}, space=SPACE, start=start)
    Sweep.from_settings(
        settings,
        notebook=write_notebook(folder / "nb.ipynb", "val = x", parameters="x, kind = 0, 'a'"),
        output=f"{folder}/out/{{run_id}}.ipynb",
        executor=lambda _: InlineExecutor(run_trial),
    ).run()
    return folder / "out" / "pair"


def between(folder: Path, first: str, second: str) -> Differences:
    return diff_trials(find_study(str(folder), storage=None), first, second)


def test_two_trials_that_came_to_the_same_differ_in_their_seeds_only(folder: Path) -> None:
    found = between(folder, "0000", "0001")
    assert found.environment.keys() == {"seed"}
    lines = diff_in_words("0000", "0001", found)
    assert [line for line in lines if "no difference" in line] == [
        *("params: no difference", "scores: no difference", "outputs: no difference")
    ]
    assert "  val: equal at all 2 points" in lines


def test_params_scores_steps_and_outputs_that_differ_are_listed(folder: Path) -> None:
    found = between(folder, "0000", "0002")
    lines = diff_in_words("0000", "0002", found)
    assert lines[2] == "params"
    assert lines[3].startswith("  x: 0.5 → ")
    assert lines[4:] == [
        "scores",
        "  val: 0.75 → 0.25 (-0.5)",
        "series",
        "  val: equal at the first 1 points; from step 1 on 0.75 → 0.25 (-0.5)",
        "outputs",
        f"  cell {found.outputs[0].cell}, from line 2 on: 'two' → '2'",
    ]


def test_the_command_prints_the_differences_and_an_object(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", str(folder), "0000", "0003", "--json"]) == 0
    printed = capsys.readouterr()
    assert "0000 and 0003:" in printed.err
    assert "  state: completed → failed" in printed.err
    assert "  message: none → In [2]: no" in printed.err
    data = json.loads(printed.out.splitlines()[-1])
    assert data["run_ids"] == ["0000", "0003"]
    assert data["series"]["val"]["step"] == 1


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (["0000"], "give two run ids"),
        (["a", "0000", "0001", "0002"], "give two run ids"),
        (["0000", "0099"], "no trial 0099; it has 0000 to 0003"),
    ],
)
def test_a_wrong_call_is_one_message(
    folder: Path, capsys: pytest.CaptureFixture[str], targets: list[str], words: str
) -> None:
    if len(targets) == 2:
        targets = [str(folder), *targets]
    assert main(["diff", *targets]) == 2
    assert words in capsys.readouterr().err
