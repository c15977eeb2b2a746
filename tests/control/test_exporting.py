"""A study's trials as a table in a file."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from studies import small_settings

from sweeper import Sweep
from sweeper.cli import main
from sweeper.testing import InlineExecutor, write_notebook
from sweeper.trials import RunningTrial, TrialOutcome, TrialSpec, TrialState


def run_trial(spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
    write_notebook(spec.notebook, "val = x")
    return TrialOutcome(state=TrialState.COMPLETED, scores={"val": 1 / 3})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    start = [{"x": 0.5, "size": size} for size in (1, "a, quoted", None)]
    space = {"x": {"low": 0.0, "high": 1.0}, "size": [1, "a, quoted", None]}
    Sweep.from_settings(
        small_settings("exported", study={"trials": 6}, space=space, start=start),
        notebook=write_notebook(folder / "nb.ipynb", "val = x", parameters="x, size = 0, 1"),
        output=f"{folder}/out/{{run_id}}.ipynb",
        executor=lambda _: InlineExecutor(run_trial),
    ).run()
    return folder / "out" / "exported"


def test_both_tables_have_one_row_for_each_trial_and_the_same_floats(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    csv, parquet = tmp_path / "new folder" / "t.csv", tmp_path / "t.parquet"
    assert main(["export", str(folder), "--csv", str(csv), "--parquet", str(parquet)]) == 0
    assert f"exported: 6 trials in {csv}" in capsys.readouterr().out
    text = pd.read_csv(csv, dtype={"run_id": str}).set_index("run_id")
    typed = pd.read_parquet(parquet)
    for table in (text, typed):
        assert list(table.index) == [f"000{n}" for n in range(6)]
        assert set(table["val"]) == {1 / 3}
        assert set(table["size"].dropna()) == {"1", "a, quoted"}
    assert list(text["x"]) == list(typed["x"])
    assert not list(tmp_path.glob("**/*.part"))


def test_a_file_that_cannot_be_written_is_one_message(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["export", str(folder), "--csv", f"{tmp_path}/file/t.csv"]) == 2
    assert f"--csv {tmp_path}/file/t.csv: cannot be written" in capsys.readouterr().err
