"""A sweep's first trial takes its scores from a run that was observed before the sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from studies import small_settings

from sweeper.drafting.adopting import adopted
from sweeper.drafting.observed_run import ObservedRun, made_of
from sweeper.drafting.scores.score_guesses import Code, Source
from sweeper.drafting.scores.seen_scores import SeenScore
from sweeper.execution.workload import Workload
from sweeper.kernels import inject
from sweeper.notebook_api.messages import Point, PointSource
from sweeper.notebooks.executed import ExecutedNotebook
from sweeper.notebooks.fingerprint import fingerprint_of
from sweeper.notebooks.metadata import BLANK, NotedNumber
from sweeper.notebooks.research import ResearchNotebook
from sweeper.testing import write_notebook
from sweeper.trials import StudyPaths, TrialOutcome, TrialSpec, TrialState


def scores_of_the_first_trial(folder: Path, **settings: Any) -> dict[str, float] | None:
    """Return the scores of a first trial that is made of an observed run with three numbers.

    The run has the variables `val` and `test`, and a library has logged the series `logged`.
    None if the run lacks a score that the settings name.
    """
    notebook = ResearchNotebook(write_notebook(folder / "nb.ipynb", "val, test = x, x + 1"))
    swept = small_settings("s", space={"x": {"low": 0.0, "high": 2.0}}, **settings)
    paths = StudyPaths.parse(f"{folder}/out/{{run_id}}.ipynb", study="s")
    workload = Workload(
        notebook=notebook, settings=swept, kernel_name="python3", cwd=folder, paths=paths
    )
    file = paths.folder / "observed.ipynb"

    def spec(path: Path, **params: float) -> TrialSpec:
        return TrialSpec(
            study="s",
            study_id="1",
            number=0,
            params=params,
            fixed={},
            seed=0,
            attempt=1,
            notebook=path,
            checkpoint_dir=folder / "checkpoints",
            artifact_dir=folder / "artifacts",
        )

    node = inject(notebook.fresh_copy(), {}, kernel_name="python3", language="python")
    observed = ExecutedNotebook(node, spec(file))
    logged = PointSource.OBSERVED
    observed.points.record(Point(step=0, metrics={"logged": 3.0}, source=logged, library="l"))
    observed.note(
        random_seed=0,
        observed=made_of(fingerprint_of(notebook, swept, kernel_name="python3")),
        numbers={
            name: NotedNumber(cell=2, values=[value.hex()])
            for name, value in {"val": 1.0, "test": 2.0}.items()
        },
    )
    observed.finish(TrialOutcome(state=TrialState.COMPLETED))
    observed.write()
    outcome = adopted(file, spec(paths.notebook("0000"), x=1.0), workload)
    assert not file.exists()
    return None if outcome is None else dict(outcome.scores)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({}, {"val": 1.0, "logged": 3.0}),
        ({"test": {"variable": "test"}}, {"val": 1.0, "test": 2.0, "logged": 3.0}),
        # The observed run has not evaluated this expression.
        ({"both": {"expression": "val + test"}}, None),
        ({"flag": {"variable": "is_good"}}, None),
    ],
)
def test_the_observed_run_becomes_the_first_trial_only_if_it_has_each_score_in_the_parameters_file(
    tmp_path: Path, scores: dict[str, Any], expected: dict[str, float] | None
) -> None:
    objective = {"val": "minimize"}
    assert scores_of_the_first_trial(tmp_path, objective=objective, scores=scores) == expected


def test_the_first_trial_lacks_values_that_libraries_log_if_the_setting_reports_is_explicit(
    tmp_path: Path,
) -> None:
    objective = {"val": "minimize"}
    found = scores_of_the_first_trial(tmp_path, objective=objective, reports="explicit")
    assert found == {"val": 1.0}


def test_an_observed_run_returns_the_value_of_a_displayed_expression_that_is_no_likely_score() -> (
    None
):
    shown = SeenScore(
        name="f", source=Source.SHOWN, cell=1, at=0, values=[0.5], key="expression", text="f(x)"
    )
    run = ObservedRun(
        file=Path("n.ipynb"),
        node=None,
        metadata=BLANK,
        code=Code([]),
        scores=[],
        unlisted=[shown],
    )
    assert run.expressions() == {"f(x)": 0.5}
