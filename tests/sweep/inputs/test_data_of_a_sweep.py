"""A sweep has its data before its first trial, in one version; functions stand for kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from studies import sweep_of

from sweeper import Sweep
from sweeper.control.lookup import find_study
from sweeper.errors import DataError
from sweeper.settings.sections import Data
from sweeper.sync.archive import Dataset
from sweeper.testing import write_notebook
from sweeper.trials import RunningTrial, TrialOutcome, TrialSpec, TrialState

pytestmark = pytest.mark.slow  # MLflow is imported

MakeSweep = Callable[..., Sweep]


@pytest.fixture
def home(tmp_path: Path) -> Dataset:
    """What was pushed from another machine."""
    url = (tmp_path / "bucket").as_uri()
    stated = Data.model_validate({"path": "data", "from": url})
    dataset = Dataset(stated, folder=tmp_path / "home")
    dataset.place().mkdir(parents=True)
    (dataset.place() / "train.txt").write_text("cats")
    dataset.push(lambda _: None)
    return dataset


@pytest.fixture
def make_sweep(home: Dataset, tmp_path: Path) -> MakeSweep:
    """Sweeps of a notebook whose trials read `data/train.txt` beside it."""
    folder = tmp_path / "machine"

    def run_trial(_: TrialSpec, running: RunningTrial) -> TrialOutcome:
        assert (folder / "data" / "train.txt").read_text() == "cats"
        return TrialOutcome(state=TrialState.COMPLETED, scores={"val": 0.5})

    def make(trials: int, **changes: Any) -> Sweep:
        folder.mkdir(exist_ok=True)
        data = {"path": "data", "from": home.url, **changes}
        notebook = write_notebook(folder / "nb.ipynb", "val = x")
        return sweep_of(notebook, "reads", run_trial, study={"trials": trials}, data=data)

    return make


def test_the_first_trial_waits_for_the_data_and_the_study_keeps_its_version(
    home: Dataset, make_sweep: MakeSweep, tmp_path: Path
) -> None:
    result = make_sweep(2).run()
    assert result.counts[TrialState.COMPLETED] == 2
    first = find_study(str(tmp_path / "machine/out"), storage=None).study.facts["made_of"]["data"]

    (home.place() / "train.txt").write_text("dogs")
    second, _ = home.push(lambda _: None)
    assert make_sweep(3).run().counts[TrialState.COMPLETED] == 3
    made_of = find_study(str(tmp_path / "machine/out"), storage=None).study.facts["made_of"]
    assert made_of["data"] == first != second


def test_a_sweep_without_its_data_leaves_nothing_behind(
    home: Dataset, make_sweep: MakeSweep, tmp_path: Path
) -> None:
    data = tmp_path / "machine" / "data"
    data.mkdir(parents=True)
    (data / "train.txt").write_text("mice")
    with pytest.raises(DataError, match=r"files of its own.*Nothing was changed"):
        make_sweep(2).run()
    with pytest.raises(DataError, match="there is no data at"):
        make_sweep(2, **{"from": f"{home.url}/nowhere"}).run()
    assert (data / "train.txt").read_text() == "mice"
    assert not (tmp_path / "machine" / "out").exists()
