"""Export a study: its page, a table of its trials, figures, and the code of a trial."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import NotebookError, OutputError, StudyError, first_line
from ..files import below, replaced
from ..notebooks.html import render, write_cells
from ..notebooks.metadata import BLANK, read_metadata
from ..page import is_rendered, write_page_of
from ..study_folder.snapshots import read_snapshot
from ..trials import TrialRecord, display_path
from .lookup import ExistingStudy

if TYPE_CHECKING:
    import pandas as pd

_log = logging.getLogger(__name__)

#: File extensions of the tables that can be written.
KINDS = ("csv", "parquet")
#: Name of the file next to a trial's code that describes the environment of the trial.
_ENVIRONMENT = "environment.json"


def write_table(table: pd.DataFrame, file: Path, *, kind: str) -> int:
    """Write a table with one row for each trial.

    Args:
        table: The table, as `LoadedStudy.dataframe` returns it.
        file: File to write.
        kind: `csv` or `parquet`.

    Returns:
        The number of trials.

    Raises:
        OutputError: The file cannot be written. An earlier file is unchanged.
    """
    if kind == "parquet":
        # A param may have values of several types. A column of Parquet has one type, so such values
        # become texts.
        for name in table:
            types = {type(value) for value in table[name].dropna()}
            if len(types) > 1:
                table = table.astype({name: "string"})
    _write(file, getattr(table, f"to_{kind}"), flag=f"--{kind}")
    return len(table)


def write_figure(existing: ExistingStudy, file: Path) -> None:
    """Draw a figure of a study into a file.

    Args:
        existing: The study.
        file: File to write. Its stem names the figure, as in `parallel.svg`; see `figure_of`.

    Raises:
        StudyError: No trial has completed, or the study lacks what the figure needs.
        OutputError: The file or its format cannot be written. An earlier file is unchanged.
    """
    if not existing.study.best():
        raise StudyError(
            f"--figure: no trial of the study {existing.study.name!r} has completed; sweep it first"
        )
    figure = existing.study.figure(file.stem, existing.settings.search_space)
    save = partial(figure.savefig, format=file.suffix[1:], bbox_inches="tight")
    _write(file, save, flag="--figure")


def _write(file: Path, write: Callable[[Path], object], *, flag: str) -> None:
    """Write a temporary file in the same folder, and rename it to its final name.

    Args:
        file: File to write.
        write: Function that writes the content to a path.
        flag: Option of the command line, for the error message.

    Raises:
        OutputError: The file cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with replaced(file) as beside:
            write(beside)
    except (OSError, ValueError) as error:  # matplotlib raises ValueError for an unknown format.
        raise OutputError(f"{flag} {file}: cannot be written: {first_line(error)}") from error


def write_page(existing: ExistingStudy, *, on_render: Callable[[int], object]) -> Path:
    """Update the comparison page of a study, and render the notebooks that are not rendered yet.

    Args:
        existing: The study.
        on_render: Called before notebooks are rendered, with their number.

    Returns:
        The file of the page.

    Raises:
        OutputError: The study's folder cannot be written.
        StudyError: The storage cannot be opened, or has no settings of the study.
    """
    paths = existing.paths
    study = existing.study
    folder = paths.page_notebooks
    ended = [
        record for record in study.records() if record.state.has_ended and record.notebook.exists()
    ]
    missing = [record for record in ended if not is_rendered(record, folder)]
    try:
        if missing:
            on_render(len(missing))
            for record in missing:
                _render(record, folder)
        at_work, process = existing.at_work()
        is_running = process is not None and at_work is existing
        importances = study.importances(existing.settings.search_space)
        if not is_running and study.known_importances() is None:
            # Store the importances for the command `status`, which does not compute them itself.
            existing.opened().note_importances(importances, study.noise())
        write_page_of(
            existing,
            existing.settings,
            is_running=is_running,
            is_confirming=at_work is not existing,
            importances=importances,
        )
    except OSError as error:
        raise OutputError(f"{paths.page}: cannot be written: {first_line(error)}") from error
    return paths.page


def _render(record: TrialRecord, folder: Path) -> None:
    """Render a trial's notebook. Log a warning if it cannot be rendered.

    Raises:
        OSError: The folder cannot be written.
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


@dataclass(frozen=True, kw_only=True)
class WrittenCode:
    """The files of a trial's code that `write_code` has written.

    Attributes:
        notebook: The notebook.
        parameters: The parameters file. None if the settings of the study came from no file.
    """

    notebook: Path
    parameters: Path | None = None


def write_code(existing: ExistingStudy, run_id: str) -> WrittenCode:
    """Write the code of a trial to `code/RUN_ID` in the study's folder.

    The notebook and its modules keep their positions relative to each other. The parameters file,
    and `environment.json` with the trial's environment, are written next to the notebook. A script
    becomes a notebook with the same cells.

    Raises:
        StudyError: There is no such trial, or its code was not kept.
        OutputError: A file cannot be written, or would replace another one.
    """
    executed = existing.record(run_id).notebook
    metadata = read_metadata(executed) or BLANK
    if not metadata.snapshot:
        raise StudyError(
            f"trial {run_id}: its executed notebook {display_path(executed)}, which states where "
            "its code is kept, is missing or damaged; choose another trial"
        )
    snapshot = read_snapshot(existing.paths, metadata.snapshot)
    folder = existing.paths.code / run_id
    # The snapshot of a script is a notebook with the same cells, so its file needs the suffix
    # `.ipynb`.
    notebook_path = str(Path(snapshot.notebook_path).with_suffix(".ipynb"))
    contents = {notebook_path: snapshot.notebook.encode() + b"\n"}
    for path, source in snapshot.frozen_in(snapshot.folder).items():
        contents[path] = source.encode("utf-8", "surrogateescape")
    # Modules outside of the notebook's folder keep their position relative to that folder.
    above = os.path.commonpath([os.path.dirname(path) for path in contents])
    try:
        files = {
            below(folder, os.path.relpath(path, above)): content
            for path, content in contents.items()
        }
    except ValueError as error:
        raise StudyError(f"trial {run_id}: its code cannot be written: {error}") from error
    notebook = folder / os.path.relpath(notebook_path, above)
    parameters = None
    if snapshot.parameters_name:
        parameters = notebook.with_name(snapshot.parameters_name)
        files.setdefault(parameters, snapshot.parameters.encode())
    environment = existing.paths.environment(metadata.environment)
    if environment.exists():
        files.setdefault(folder / _ENVIRONMENT, environment.read_bytes())
    for file, data in files.items():
        try:
            if file.exists() and file.read_bytes() != data:
                raise OutputError(
                    f"--code {run_id}: {display_path(file)} exists, and differs from the trial's "
                    "code; move it away"
                )
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        except OSError as error:
            raise OutputError(
                f"--code {run_id}: {file} cannot be written: {first_line(error)}"
            ) from error
    return WrittenCode(notebook=notebook, parameters=parameters)
