"""A study as an object, for notebooks and scripts that look at its results."""

from __future__ import annotations

import html
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..trials import Confirmation, SweepResult, TrialRecord, value_text
from .lookup import ExistingStudy, find_study
from .status import look

if TYPE_CHECKING:
    import pandas as pd

_NOTEBOOK_HEIGHT = 600


def load(study: str | Path | None = None, *, storage: str | None = None) -> LoadedStudy:
    """Open a study for reading, also while it is being swept.

    Args:
        study: its folder, such as `out/digits`, or its name; None for the only one in or below the
            working folder, or the one that is being swept.
        storage: the URL of an Optuna storage in which to look for the name instead.

    Raises:
        StudyError: no study was found, or more than one.
    """
    wanted = None if study is None else str(study)
    find_study(wanted, storage=storage)  # refuses now what every look would refuse
    return LoadedStudy(wanted, storage=storage)


@dataclass(frozen=True, slots=True)
class TrialNotebook:
    """The executed notebook of a trial; Jupyter displays it rendered, without its scripts.

    Attributes:
        path: the file.
    """

    path: Path

    def _repr_html_(self) -> str:
        from ..notebooks.html import page_of, render

        page = html.escape(page_of(render(self.path)))
        return f'<iframe sandbox srcdoc="{page}" width="100%" height="{_NOTEBOOK_HEIGHT}"></iframe>'


class LoadedStudy:
    """The results of a study. Each look reads its files again, so a running sweep is up to date.

    Args:
        wanted: the study's folder or name; None for the only one.
        storage: the URL of the Optuna storage that has it; None for one beside the outputs.
    """

    def __init__(self, wanted: str | None, *, storage: str | None = None) -> None:
        self._wanted, self._storage = wanted, storage

    @property
    def name(self) -> str:
        """The study's name."""
        return self._found().study.name

    @property
    def trials(self) -> Sequence[TrialRecord]:
        """All trials, in the order of their numbers."""
        return self._found().study.records()

    @property
    def best(self) -> TrialRecord | Sequence[TrialRecord] | None:
        """The best trial, None while none has completed; with several objectives, a list of all
        Pareto-optimal trials. `globals().update(study.best.params)` sets a notebook to it.

        Where the best trials were run again on fresh seeds, it is the one with the best mean;
        `confirmation` says by how much.
        """
        result = self._result()
        several = len(result.objectives) > 1
        return result.best if several else next(iter(result.best), None)

    @property
    def confirmation(self) -> Confirmation | None:
        """Means and spreads of the best trials on fresh seeds; None where there are none.

        `ranking` has the confirmed trials, the best first, each with `run_id`, `mean`, `std`,
        `interval` (95 %) and `scores` by seed; `winner` is the first one, None until all runs have
        ended; `alike` are those that cannot be told from it.
        """
        return self._found().confirmation()

    def dataframe(self) -> pd.DataFrame:
        """One row for each trial, by its run id: state, scores, params, times, memory, notebook.

        A score that has the name of another column is called `score_NAME`, a param that has the
        name of any `param_NAME`.
        """
        import pandas as pd

        existing = self._found()
        records = existing.study.records()
        found = {name for record in records for name in record.scores}
        scores = {*existing.settings.objective, *found}
        index = pd.Index([record.run_id for record in records], name="run_id")
        return pd.DataFrame([_row(record, scores) for record in records], index=index)

    def series(self, run_id: str) -> pd.DataFrame:
        """What a trial has reported or printed: one row for each step, one column for each score.

        Raises:
            StudyError: the study has no such trial.
            NotebookError: its executed notebook is missing.
        """
        import pandas as pd

        from .diff import read_execution

        existing = self._found()
        notebook = existing.record(run_id).notebook
        found = read_execution(notebook, existing.paths, existing.settings)
        # Of several points of a step the last one counts.
        columns = {name: dict(points) for name, points in found.series.items()}
        return pd.DataFrame(columns).rename_axis("step").sort_index()

    def notebook(self, run_id: str) -> TrialNotebook:
        """The executed notebook of a trial.

        Raises:
            StudyError: the study has no such trial.
        """
        return TrialNotebook(self._found().record(run_id).notebook)

    def __repr__(self) -> str:
        return repr(self._result())

    def _repr_html_(self) -> str:
        return self._result()._repr_html_()

    def _result(self) -> SweepResult:
        return look(self._found())[0]

    def _found(self) -> ExistingStudy:
        return find_study(self._wanted, storage=self._storage)


def _row(record: TrialRecord, scores: Collection[str]) -> dict[str, Any]:
    """A row of the table.

    Args:
        scores: the names of all scores of the study.
    """
    others = {
        "state": str(record.state),
        "duration_s": record.duration_s,
        "gpu_peak_gb": record.gpu and record.gpu.peak_bytes and record.gpu.peak_bytes / 1e9,
        "seed": record.seed,
        "attempt": record.attempt,
        "reason": None if record.reason is None else str(record.reason),
        "message": record.message or None,
        "host": record.host or None,
        "notebook": str(record.notebook),
    }
    row: dict[str, Any] = {"state": None}
    for name, score in record.scores.items():
        row[f"score_{name}" if name in others else name] = score
    for name, value in record.params.items():
        column = f"param_{name}" if name in others or name in scores else name
        row[column] = value_text(value) if isinstance(value, list | dict) else value
    return row | others
