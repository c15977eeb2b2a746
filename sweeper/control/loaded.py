"""Give notebooks and scripts the results of a study as an object."""

from __future__ import annotations

import html
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..page import frame_of
from ..study_folder.notes import Notes
from ..trials import NO_NOTE, Confirmation, SweepResult, TrialNote, TrialRecord, value_text
from ..trials.result_html import trials_table
from .lookup import ExistingStudy, find_study
from .status import look

if TYPE_CHECKING:
    import pandas as pd

_NOTEBOOK_HEIGHT = 600


def load(study: str | Path | None = None, *, storage: str | None = None) -> LoadedStudy:
    """Open a study for reading, even while it is being swept.

    Args:
        study: Folder of the study, such as `out/digits`, or its name. None for the only study in or
            below the working folder, or the one that is being swept.
        storage: URL of an Optuna storage. If it is given, the name is looked up only there.

    Raises:
        StudyError: No study was found, or more than one.
    """
    wanted = None if study is None else str(study)
    find_study(wanted, storage=storage)  # Refuse a wrong name now, and not at the first use.
    return LoadedStudy(wanted, storage=storage)


@dataclass(frozen=True, slots=True)
class TrialNotebook:
    """The executed notebook of a trial. Jupyter displays it rendered, without running scripts.

    Attributes:
        path: File of the notebook.
    """

    path: Path

    def _repr_html_(self) -> str:
        from ..notebooks.html import page_of, render

        page = html.escape(page_of(render(self.path)))
        return f'<iframe sandbox srcdoc="{page}" width="100%" height="{_NOTEBOOK_HEIGHT}"></iframe>'


class Trials(tuple[TrialRecord, ...]):
    """Trials of a study. Jupyter displays them as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        scores = dict.fromkeys(name for record in self for name in record.scores)
        return trials_table(self, (), [*scores])


@dataclass(frozen=True, slots=True)
class StudyPage:
    """The comparison page of a study. Jupyter displays it, with the notebooks of its trials.

    Attributes:
        path: File of the page.
        run_ids: Run ids of the trials, the best first. If their notebooks are too large for an
            output, the page shows only the first of them.
    """

    path: Path
    run_ids: tuple[str, ...]

    def _repr_html_(self) -> str:
        return frame_of(self.path, self.run_ids)


class LoadedStudy:
    """The results of a study. Each access reads them again, so it sees a sweep's new results.

    Args:
        wanted: Folder or name of the study. None for the only study.
        storage: URL of the Optuna storage that has the study. None if its database is in its
            folder.
    """

    def __init__(self, wanted: str | None, *, storage: str | None = None) -> None:
        self._wanted, self._storage = wanted, storage

    @property
    def name(self) -> str:
        """The study's name."""
        return self._found().study.name

    @property
    def trials(self) -> Sequence[TrialRecord]:
        """All trials, sorted by their numbers."""
        return Trials(self._found().study.records())

    @property
    def best(self) -> TrialRecord | Sequence[TrialRecord] | None:
        """The best trial, or None if no trial has completed.

        With several objectives, this is a list of all Pareto-optimal trials. If the best trials
        were run again on fresh seeds, it is the trial with the best mean; `confirmation` has the
        means.

        `globals().update(study.best.params)` assigns the params of the best trial in a notebook.
        """
        result = self._result()
        several = len(result.objectives) > 1
        return Trials(result.best) if several else next(iter(result.best), None)

    @property
    def confirmation(self) -> Confirmation | None:
        """The results of the best trials on fresh seeds, or None if there are no such runs.

        `ranking` has the confirmed trials, the best first, each with `run_id`, `mean`, `std`,
        `interval` (95 %) and `scores` by seed. `winner` is the first of them, or None until all
        runs have ended. `alike` are the trials that are not significantly worse than the winner.
        """
        return self._found().confirmation()

    def dataframe(self) -> pd.DataFrame:
        """Return a table of the trials: state, scores, params, duration, seed, notes and more.

        The index is the run id. If a score has the name of another column, its column is
        `score_NAME`. If a param has the name of any other column, its column is `param_NAME`.
        """
        import pandas as pd

        existing = self._found()
        records = existing.study.records()
        found = {name for record in records for name in record.scores}
        scores = {*existing.settings.objective, *found}
        index = pd.Index([record.run_id for record in records], name="run_id")
        notes = Notes(existing.paths.notes).read()
        rows = [_row(record, notes.get(record.run_id, NO_NOTE), scores) for record in records]
        return pd.DataFrame(rows, index=index)

    def series(self, run_id: str) -> pd.DataFrame:
        """Return what a trial has reported or printed: rows are steps, and columns are scores.

        Raises:
            StudyError: The study has no such trial.
            NotebookError: The executed notebook of the trial is missing.
        """
        import pandas as pd

        from .diff import read_execution

        existing = self._found()
        notebook = existing.record(run_id).notebook
        found = read_execution(notebook, existing.paths, existing.settings)
        # If a score has several points at a step, the last one counts.
        columns = {name: dict(points) for name, points in found.series.items()}
        return pd.DataFrame(columns).rename_axis("step").sort_index()

    def notebook(self, run_id: str) -> TrialNotebook:
        """Return the executed notebook of a trial.

        Raises:
            StudyError: The study has no such trial.
        """
        return TrialNotebook(self._found().record(run_id).notebook)

    def page(self) -> StudyPage:
        """Write the comparison page of the study, as `export` does, and return it.

        Raises:
            OutputError: The study's folder cannot be written.
        """
        from .exporting import write_page

        found = self._found()
        records = [*found.best(found.confirmation()), *found.study.records()]
        file = write_page(found, on_render=lambda _: None)
        return StudyPage(file, tuple(dict.fromkeys(record.run_id for record in records)))

    def __repr__(self) -> str:
        return repr(self._result())

    def _repr_html_(self) -> str:
        return self._result()._repr_html_()

    def _result(self) -> SweepResult:
        return look(self._found())[0]

    def _found(self) -> ExistingStudy:
        return find_study(self._wanted, storage=self._storage)


def _row(record: TrialRecord, note: TrialNote, scores: Collection[str]) -> dict[str, Any]:
    """Return a trial's row of the table.

    Args:
        record: The trial.
        note: Notes that people have written about the trial.
        scores: Names of all scores of the study.
    """
    peak_gb = None
    if record.gpu is not None and record.gpu.peak_bytes is not None:
        peak_gb = record.gpu.peak_bytes / 1e9
    others = {
        "state": str(record.state),
        "duration_s": record.duration_s,
        "gpu_peak_gb": peak_gb,
        "seed": record.seed,
        "attempt": record.attempt,
        "reason": None if record.reason is None else str(record.reason),
        "message": record.message or None,
        "host": record.host or None,
        "notebook": str(record.notebook),
        "starred": note.is_starred,
        "trial_name": note.trial_name or None,
        "note": note.note or None,
    }
    row: dict[str, Any] = {"state": None}
    for name, score in record.scores.items():
        row[f"score_{name}" if name in others else name] = score
    for name, value in record.params.items():
        column = f"param_{name}" if name in others or name in scores else name
        row[column] = value_text(value) if isinstance(value, list | dict) else value
    return row | others
