"""Write the files of a study's comparison page: `index.html`, and the folder `page` next to it.

A page that is opened from a disk can load scripts, but no other data. Each file of data is
therefore a script that consists of one call.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..answer import answer_of_study, runs_page_of
from ..files import copy_atomically, write_atomically
from ..settings import Settings
from ..study_folder.notes import Notes
from ..trials import Confirmation, Importance, Insights, TrialRecord
from .content import facts_of, params_of, trial_of
from .curves import Curves, read_file

if TYPE_CHECKING:
    from ..study.located import LocatedStudy
    from ..study.study import Study

ASSETS = Path(__file__).parent / "assets"
_INDEX = "index.html"
_STUDY, _CURVES, _NOTES = "study.js", "curves.js", "notes.js"


class Page:
    """Writes the page of one study. Use it from one thread at a time.

    Args:
        index: Path of `index.html`.
        files: Path of the folder `page` next to it, for all other files. Its parent must exist.
        notes: Path of the file with the notes about trials.
    """

    def __init__(self, index: Path, files: Path, notes: Path) -> None:
        self._index, self._files, self._notes = index, files, notes
        self._curves = Curves()
        self._has_begun = False

    def write(
        self,
        study: Study,
        settings: Settings,
        *,
        is_running: bool,
        importances: Mapping[str, Mapping[str, Importance]] | None = None,
        surfaces: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
        insights: Insights | None = None,
        confirmation: Confirmation | None = None,
        runs_page: Path | None = None,
    ) -> None:
        """Write the page with the current state of the study.

        `notebooks.html.write_cells` writes the rendered notebooks, not this method.

        Args:
            study: The study.
            settings: Settings of the study.
            is_running: Whether a sweep runs on the study, or runs its best trials again. Then the
                page will be written again, and an open page updates itself.
            importances: How much each param matters for each objective, by objective and param:
                the share of the variance of the trials' scores that the param explains. None if
                unknown.
            surfaces: Scores predicted over pairs of params, as `Study.surfaces` returns them. None
                if unknown.
            insights: What the study has shown, such as the winner and the params that mattered.
                None if unknown.
            confirmation: Ranking of the study's best trials by runs on fresh seeds. Default: the
                ranking that the study itself has.
            runs_page: Page of another study that ran the trials on fresh seeds. None if there is
                no such study.

        Raises:
            OSError: A file cannot be written. Files of the previous page are still complete.
        """
        if not self._has_begun:
            self._begin()
        records = study.records()
        facts = facts_of(
            study,
            records,
            settings,
            importances=importances or {},
            surfaces=surfaces or {},
            insights=insights,
            confirmation=confirmation or study.confirmation,
            runs_page=None if runs_page is None else _url(runs_page, self._index.parent),
            is_running=is_running,
        )
        objectives = {name: goal.direction for name, goal in settings.objective.items()}
        curves, notebooks = self._files / _CURVES, self._files / "notebooks"
        has_new_curves = self._curves.update(records, objectives)
        if has_new_curves or not curves.exists():
            write_atomically(curves, _call("curves", self._curves.to_json()))
        trials = [
            trial_of(record, has_notebook=is_rendered(record, notebooks)) for record in records
        ]
        data = json.dumps({**facts, "all": trials}, separators=(",", ":"), ensure_ascii=False)
        write_atomically(self._files / _STUDY, _call("study", data))
        if self._notes.exists():
            write_notes(self._notes, self._files)

    def _begin(self) -> None:
        """Write the files that never change. `index.html` is the last, as it loads the others."""
        self._files.mkdir(exist_ok=True)
        for asset in ASSETS.iterdir():
            if asset.name != _INDEX:
                copy_atomically(asset, self._files / asset.name)
        self._curves.load(read_file(self._files / _CURVES, "sweeper.curves"))
        write_notes(self._notes, self._files)
        write_atomically(self._index, (ASSETS / _INDEX).read_text(encoding="utf-8"))
        self._has_begun = True


def shown_surfaces(files: Path, settings: Settings) -> Mapping[str, Any] | None:
    """Return the predicted scores over pairs of params that a page shows.

    None if the page is missing, was written during a sweep, or shows another search space.

    Args:
        files: The page's folder `page`.
        settings: Settings of the study.
    """
    try:
        shown = json.loads(read_file(files / _STUDY, "sweeper.study"))
    except ValueError:
        return None
    is_complete = not shown["is_running"] and shown["params"] == params_of(settings)
    return shown["surfaces"] if is_complete else None


def write_page_of(
    located: LocatedStudy,
    settings: Settings,
    *,
    is_running: bool = False,
    is_confirming: bool = False,
    importances: Mapping[str, Mapping[str, Importance]] | None,
) -> Insights | None:
    """Write the page of a study, with what the study has shown, such as the winner.

    Args:
        located: The study.
        settings: Settings of the study.
        is_running: Whether a sweep runs on the study.
        is_confirming: Whether a sweep runs the study's best trials again on fresh seeds.
        importances: How much each param matters for each objective, by objective and param: the
            share of the variance of the trials' scores that the param explains. None if unknown.

    Returns:
        What the study has shown, such as the winner and the params that mattered. None if the
        analysis of the study failed.

    Raises:
        OSError: A file cannot be written.
    """
    paths, confirmation = located.paths, located.confirmation()
    insights = answer_of_study(
        located,
        settings,
        confirmation=confirmation,
        importances=importances,
        is_running=is_running,
        is_confirming=is_confirming,
    )
    Page(paths.page, paths.page_files, paths.notes).write(
        located.study,
        settings,
        is_running=is_running or is_confirming,
        importances=importances,
        surfaces=located.study.surfaces(settings.search_space, importances or {}),
        insights=insights,
        confirmation=confirmation,
        runs_page=runs_page_of(paths, confirmation),
    )
    return insights


def write_notes(notes: Path, files: Path) -> None:
    """Write the notes about trials for the page.

    The notes are locked until the page's file is written. Otherwise, a slow process could write
    older notes over newer ones in the page's file.

    Args:
        notes: File with the notes.
        files: The page's folder `page`.

    Raises:
        OutputError: Another process holds the lock of the notes.
        OSError: The file cannot be written.
    """
    kept = Notes(notes)
    with kept.locked():
        data = {run_id: note.to_json() for run_id, note in kept.read().items()}
        write_atomically(files / _NOTES, _call("notes", json.dumps(data, ensure_ascii=False)))


def is_rendered(record: TrialRecord, folder: Path) -> bool:
    """Return whether a folder has an up-to-date rendering of a trial's executed notebook.

    An older rendering shows an earlier attempt, or an earlier study in the same folder.
    """
    try:
        rendered_ns = (folder / f"{record.run_id}.js").stat().st_mtime_ns
    except OSError:
        return False
    try:
        return rendered_ns >= record.notebook.stat().st_mtime_ns
    except OSError:
        return True  # The notebook was moved, and only its rendering is left.


def _url(file: Path, folder: Path) -> str:
    """Return the URL of a file, relative to a folder."""
    return quote(Path(os.path.relpath(file, folder)).as_posix())


def _call(name: str, argument: str) -> str:
    return f"sweeper.{name}({argument});"
