"""The comparison page of a study that exists: bring it up to date, put it into another folder."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from ..errors import NotebookError, OutputError, first_line
from ..files import copy_atomically
from ..notebooks import render, write_cells
from ..page import Page, content_of, is_rendered
from ..trials import TrialRecord, TrialState, display_path
from .lookup import ExistingStudy

#: Starting another process takes as long as rendering this many notebooks.
_NOTEBOOKS_PER_PROCESS = 50

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
            _render(missing, paths.page_notebooks)
        page = Page(paths.page, paths.page_files)
        notebook = study.facts.get("notebook")
        content = content_of(
            study.name,
            records,
            settings=existing.settings,
            notebook="" if notebook is None else Path(notebook).name,
            best=study.best(),
            importances=study.insights.importances(),
            confirmation=study.confirmation,
            compare_url=study.facts.get("compare_url"),
            is_running=existing.sweep() is not None,
        )
        page.write(content)
    except OSError as error:
        raise OutputError(f"{paths.page}: cannot be written: {first_line(error)}") from error
    return paths.page


def copy_page(page: Path, folder: Path) -> Path:
    """Copy a page with everything that it needs into a folder of its own.

    Args:
        folder: is made; one that is there has to be empty, or to have a page.

    Returns:
        the copy.

    Raises:
        OutputError: the folder has other files, or cannot be written.
    """
    copy = folder / page.name
    try:
        if folder.exists() and any(folder.iterdir()) and not copy.exists():
            raise OutputError(f"--to {folder}: has other files; name a new folder")
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copytree(
            page.parent / "page",
            folder / "page",
            dirs_exist_ok=True,
            copy_function=lambda source, to: copy_atomically(Path(source), Path(to)),
        )
        copy_atomically(page, copy)
    except (OSError, shutil.Error) as error:
        raise OutputError(f"--to {folder}: cannot be written: {first_line(error)}") from error
    return copy


def _is_to_render(record: TrialRecord, folder: Path) -> bool:
    has_ended = record.state is not TrialState.RUNNING and record.notebook.exists()
    return has_ended and not is_rendered(record, folder)


def _render(records: Sequence[TrialRecord], folder: Path) -> None:
    notebooks = [(record.run_id, record.notebook) for record in records]
    processes = min(os.cpu_count() or 1, len(notebooks) // _NOTEBOOKS_PER_PROCESS)
    render_one = partial(_render_one, folder)
    if processes < 2:
        failures = list(map(render_one, notebooks))
    else:
        # Not forked: this process may have threads.
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            failures = list(pool.map(render_one, notebooks, chunksize=8))
    for failure in filter(None, failures):
        _log.warning("%s", failure)


def _render_one(folder: Path, notebook: tuple[str, Path]) -> str | None:
    """Render one notebook; why it cannot be rendered, or None.

    Raises:
        OSError: the folder cannot be written.
    """
    run_id, path = notebook
    try:
        rendered = render(path)
    except NotebookError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001  an output's converter can raise anything
        return f"{display_path(path)}: cannot be rendered: {first_line(error)}"
    write_cells(folder, run_id, rendered)
    return None
