"""A name is overwritten if it has the same end value in trials that were given different values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from studies import scored, sweep_of

from sweeper.sweep.scheduling.overwritten_names import EndedTrial, Overwritten, overwritten
from sweeper.testing import write_notebook
from sweeper.trials import RunningTrial, StopCause, TrialOutcome, TrialSpec, TrialState, Value

HIDDEN = "from settings import *\nval = lr"


def found_in(
    code: str, *trials: tuple[Mapping[str, Value], Mapping[str, Value]]
) -> Overwritten | None:
    """Return the overwritten name that is found in trials. None if there is none.

    Args:
        code: Code of the notebook's second cell.
        trials: For each trial, the values that it was given, and the values at its end.
    """
    ended = [
        EndedTrial(run_id=f"{number:04}", given=given, ended=end)
        for number, (given, end) in enumerate(trials)
    ]
    return overwritten(ended, lambda: ["lr = 0.1", code])


def test_an_overwritten_name_is_reported_with_its_values_and_the_cells_that_may_assign_it() -> None:
    found = found_in(HIDDEN, ({"lr": 0.1}, {"lr": 3.0}), ({"lr": 0.2}, {"lr": 3.0}))
    assert found is not None
    assert (found.name, found.given, found.ended) == ("lr", (0.1, 0.2), 3.0)
    assert all(part in str(found) for part in ("lr", "0.1", "0.2", "3.0", "code cell 2, line 1"))


@pytest.mark.parametrize(
    ("code", "trials"),
    [
        (HIDDEN, [({"lr": 0.1}, {"lr": 0.1}), ({"lr": 0.2}, {"lr": 0.2})]),
        (HIDDEN, [({"lr": 0.1}, {"lr": 3}), ({"lr": 0.1}, {"lr": 3})]),
        (HIDDEN, [({"lr": 0.1}, {"lr": 3}), ({"lr": 0.2}, {})]),
        (HIDDEN, [({"lr": 0.1}, {"lr": 3}), ({}, {"lr": 3})]),
        (HIDDEN, [({"lr": 1}, {"lr": 1}), ({"lr": 1.0}, {"lr": 1.0})]),
        (HIDDEN, [({"lr": [1, 2]}, {"lr": "[]"}), ({"lr": [3]}, {"lr": "[]"})]),
        ("while lr: lr -= 1", [({"lr": 3}, {"lr": 0}), ({"lr": 4}, {"lr": 0})]),
        ("lr = max(lr / 9, 1)", [({"lr": 3}, {"lr": 1}), ({"lr": 4}, {"lr": 1})]),
    ],
)
def test_a_name_is_not_reported_as_overwritten_if_end_values_differ_or_a_schedule_changes_it(
    code: str, trials: list[Any]
) -> None:
    assert found_in(code, *trials) is None


@pytest.mark.parametrize("is_allowed", [False, True])
def test_a_sweep_ends_after_two_trials_with_an_overwritten_name_unless_changes_are_allowed(
    tmp_path: Path, *, is_allowed: bool
) -> None:
    def run_trial(spec: TrialSpec, running: RunningTrial) -> TrialOutcome:
        return TrialOutcome(
            state=TrialState.COMPLETED,
            scores=scored(spec, running).scores,
            values_at_end={"x": 5},
        )

    notebook = write_notebook(tmp_path / "n.ipynb", "exec('x = 5')\nval = x", parameters="x = 1")
    options = {"allow_changes": is_allowed}
    result = sweep_of(notebook, "s", run_trial, options=options, study={"trials": 4}).run()
    remarks = [remark for remark in result.findings if "x was overwritten" in remark]
    if is_allowed:
        assert (result.counts["completed"], result.stop_cause, len(remarks)) == (4, None, 1)
    else:
        assert (result.counts["completed"], remarks) == (2, [])
        assert result.stop_cause is StopCause.WORTHLESS
        assert "--allow-changes" in str(result.stopped_by)
