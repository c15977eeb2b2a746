"""Params that made no difference are named, if scores, series and outputs are all equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from studies import trial_record

from sweeper.answer import without_effect
from sweeper.errors import NotebookError
from sweeper.notebooks.compare import Execution
from sweeper.trials import TrialRecord, TrialState

F1, OTHER_F1 = 0.9750518234, 0.9571313231


def trial(number: int, f1: float, **params: Any) -> TrialRecord:
    return trial_record(
        number,
        params=params,
        seed=number,
        notebook=Path(f"{number:04d}.ipynb"),
        state=TrialState.COMPLETED,
        scores={"f1": f1},
    )


def remarks(*trials: TrialRecord, **outputs: str) -> list[str]:
    """Return the remarks on trials that print `the same`, or the texts that are given by run id."""

    def read(record: TrialRecord) -> Execution:
        text = outputs.get(f"t{record.run_id}", "the same")
        output = {"output_type": "stream", "name": "stdout", "text": text}
        cell = {"cell_type": "code", "outputs": [output]}
        return Execution(cells=[cell], scores=record.scores, series={})

    return without_effect(trials, read)


def test_a_param_is_reported_as_without_effect_if_trials_differing_only_in_it_are_equal() -> None:
    own, lr, k = trial(0, F1, lr=1, k=1), trial(1, OTHER_F1, lr=2, k=1), trial(2, F1, lr=1, k=4)
    (remark,) = remarks(own, lr, k)
    assert remark.startswith("k made no difference: trials 0000 and 0002")
    assert remarks(own, lr, trial(2, F1, lr=2, k=4)) == []
    assert remarks(own, k, trial(3, OTHER_F1, lr=1, k=3)) == []
    assert remarks(own, trial(1, F1, lr=1, k=1)) == []
    on_other_seeds = [trial(3, OTHER_F1, lr=1, k=1), trial(4, F1, lr=1, k=4)]
    assert remarks(own, k, *on_other_seeds) == []


def test_no_param_is_reported_as_without_effect_if_only_scores_but_not_outputs_are_equal() -> None:
    own, k = trial(0, F1, k=1), trial(1, F1, k=4)
    assert remarks(own, k, t0001="loss 0.034 in the last epoch") == []


def test_no_param_is_reported_as_without_effect_if_the_notebooks_cannot_be_read(
    tmp_path: Path,
) -> None:
    def read(record: TrialRecord) -> Execution:
        raise NotebookError(f"{record.notebook} is damaged")

    own, k = trial(0, F1, k=1), trial(1, F1, k=4)
    assert without_effect([own, k], read) == []
    assert without_effect([own, k]) == [], "the notebooks are missing"
