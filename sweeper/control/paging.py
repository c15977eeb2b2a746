"""The comparison page of a study that exists: bring it up to date."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from ..errors import NotebookError, OutputError, first_line
from ..notebooks.html import render, write_cells
from ..page import Page, facts_of, is_rendered
from ..trials import TrialRecord, TrialState, display_path
from .lookup import ExistingStudy

_log = logging.getLogger(__name__)


def write_page(existing: ExistingStudy, *, on_render: Callable[[int], object]) -> Path:
    """Bring the page of a study up to date, with the notebooks that are not rendered yet.

    Args:
        on_render: called before notebooks are rendered, with their number.

    Returns:
        the page.

    Raises:
        OutputError: the study's folder cannot be written.
        StudyError: the storage cannot be opened, or has no settings.
    """
    paths = existing.paths
    study = existing.opened()
    records = study.records()
    missing = [record for record in records if _is_to_render(record, paths.page_notebooks)]
    try:
        if missing:
            on_render(len(missing))
            for record in missing:
                _render(record, paths.page_notebooks)
        page = Page(paths.page, paths.page_files)
        notebook = study.facts.get("notebook")
        facts = facts_of(
            study.name,
            records,
            settings=existing.settings,
            notebook="" if notebook is None else Path(notebook).name,
            best=study.best(),
            importances=study.importances(),
            confirmation=study.confirmation,
            compare_url=study.facts.get("compare_url"),
            is_running=existing.swept_by() is not None,
        )
        page.write(facts, records)
    except OSError as error:
        raise OutputError(f"{paths.page}: cannot be written: {first_line(error)}") from error
    return paths.page


def _is_to_render(record: TrialRecord, folder: Path) -> bool:
    has_ended = record.state is not TrialState.RUNNING and record.notebook.exists()
    return has_ended and not is_rendered(record, folder)


def _render(record: TrialRecord, folder: Path) -> None:
    """Render a trial's notebook; one that cannot be rendered is a line in the log.

    Raises:
        OSError: the folder cannot be written.
    """
    try:
        rendered = render(record.notebook)
    except NotebookError as error:
        _log.warning("%s", error)
    except Exception as error:  # noqa: BLE001  an output's converter can raise anything
        where = display_path(record.notebook)
        _log.warning("%s: cannot be rendered: %s", where, first_line(error))
    else:
        write_cells(folder, record.run_id, rendered)
