"""A later attempt has the values with which its trial began, and only this trial's checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from studies import workload_of

from sweeper.execution.earlier_attempt import make_way
from sweeper.execution.kernel_inputs import changed_since, own_params
from sweeper.study_folder.patience import Patience
from sweeper.testing import trial_spec, write_notebook


@pytest.mark.parametrize(
    ("now", "spec", "changed"),
    [
        ({}, {}, []),
        ({"fixed": {"y": 2.0, "seed": 42}}, {"fixed": {"y": 2.0, "seed": 42}, "seed": 42}, []),
        ({"fixed": {"seed": 42}}, {}, ["seed"]),
        ({"space": {"y": [1.0]}}, {}, ["x"]),
        ({"space": {"y": [1.0]}, "fixed": {"x": 2.0}}, {}, ["x"]),
        ({"space": {"x": [1.0], "y": [1.0]}}, {"fixed": {"y": 2.0}}, ["y"]),
    ],
    ids=["nothing", "nothing fixed", "seed", "left", "fixed", "swept"],
)
def test_params_that_were_fixed_unfixed_or_removed_after_a_trial_began_are_listed_as_changed(
    tmp_path: Path, now: dict[str, Any], spec: dict[str, Any], changed: list[str]
) -> None:
    notebook = write_notebook(tmp_path / "nb.ipynb", "val = x", parameters="x = y = 1.0\nseed = 0")
    workload = workload_of(notebook, **now)
    begun = trial_spec(**{"params": {"x": 0.5}, "seed": 7, **spec})
    assert changed_since(workload, begun) == changed
    assert own_params(workload, begun)["x"] == 0.5


@pytest.mark.parametrize(
    ("attempt", "continues", "has_run"),
    [
        (1, None, False),
        (1, "0003.ipynb", True),
        (2, "0007.attempt1.ipynb", True),
        (2, "0007.attempt1.ipynb", False),
    ],
    ids=["first", "retry", "second", "second after one that was killed before its notebook ran"],
)
def test_a_new_trial_does_not_resume_from_checkpoints_left_by_another_study(
    tmp_path: Path, attempt: int, continues: str | None, has_run: bool
) -> None:
    checkpoint = tmp_path / "checkpoints" / "000009.ckpt"
    checkpoint.parent.mkdir()
    checkpoint.touch()
    earlier = None if continues is None else tmp_path / continues
    if earlier is not None and has_run:
        earlier.touch()
    spec = trial_spec(
        notebook=tmp_path / "0007.ipynb",
        checkpoint_dir=checkpoint.parent,
        attempt=attempt,
        continues=earlier,
    )
    assert make_way(spec, Patience("the outputs", may_pass=lambda _: False)) is None
    assert checkpoint.exists() == has_run
