"""Log the files of a run: the executed notebook, an HTML page of it, and the trial's artifacts.

The notebook is rendered only once, for MLflow and for the comparison page, because rendering takes
long.
"""

from __future__ import annotations

import logging
import os
import shutil
import urllib.parse
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import first_line
from ..files import files_within
from ..notebooks.html import page_of, render, write_cells
from ..notebooks.metadata import BLANK, read_metadata
from ..settings.units import size
from ..trials import TrialRecord, run_id_of, short_text
from .messages import Store, Tell, Upload

if TYPE_CHECKING:
    from mlflow import MlflowClient

_log = logging.getLogger(__name__)

#: An artifact of a trial is copied into MLflow if it has at most this many bytes (chosen, not
#: measured).
LARGEST_LOGGED_BYTES = 100 * 10**6


def _outcome(record: TrialRecord) -> str:
    """Return a trial's state, scores and params in one line of Markdown."""

    def listed(values: Mapping[str, Any]) -> str:
        return ", ".join(f"`{name}` = {short_text(value)}" for name, value in values.items())

    parts = [f"**{record.state}**", listed(record.scores), listed(record.params)]
    return " · ".join(filter(None, parts))


def stage_tags(record: TrialRecord) -> dict[str, str]:
    """Return MLflow tags for a trial: one for each of its inputs and of its artifacts.

    An input is an artifact of another study that the trial uses. Its tag names that study, the
    trial that saved the artifact, and the artifact. Each tag has the hash of the artifact.
    """
    metadata = read_metadata(record.notebook) or BLANK
    tags = {}
    for name, file in metadata.inputs.items():
        source = f"{file.study}/{file.run_id}/{file.artifact}@{file.sha256}"
        tags[f"sweeper.input.{name}"] = source
    for name, artifact in metadata.artifacts.items():
        text = f"{artifact.size_bytes} bytes, sha256 {artifact.sha256}"
        tags[f"sweeper.artifact.{name}"] = text
    return tags


class Artifacts:
    """Logs the files of the runs of one experiment.

    Args:
        client: MLflow's client.
        experiment_id: MLflow's id of the experiment.
        store: MLflow's store, and the paths of the study.
        tell: Called before each file is logged, with the file's size as an `Upload`.
    """

    def __init__(
        self,
        client: MlflowClient,
        experiment_id: str,
        store: Store,
        tell: Tell,
    ) -> None:
        self._client = client
        self._experiment_id, self._tell = experiment_id, tell
        self._paths, self._is_embedded = store.paths, store.is_embedded
        #: Functions that log a file to a run, by MLflow's id of the run. There is one only for a
        #: run that this process has created in a store next to the outputs.
        self._loggers: dict[str, Callable[..., object]] = {}
        self._has_failed = False
        #: Folder for an HTML page while it is logged. MLflow gives a logged file the name that it
        #: has on the disk, so the page is written here under its final name. The folder's name
        #: begins with a dot, because a user may have a folder `rendered`, as with
        #: `-o out/{study}/rendered/{run_id}.ipynb`.
        self._rendered = store.paths.folder / ".rendered"
        self._remove_pages()

    def _remove_pages(self) -> None:
        """Remove `.rendered`, the folder of HTML pages that are being logged, if it exists."""
        shutil.rmtree(self._rendered, ignore_errors=True)

    def begin(self, mlflow_id: str, uri: str) -> None:
        """Remember where MLflow stores the files of a new run.

        Without this, MLflow's client would read the whole run again to find this folder, which
        takes 6 ms of CPU time for each file. If the store is not the SQLite file in the folder of
        the outputs, this method does nothing.

        Args:
            mlflow_id: MLflow's id of the run.
            uri: URI of the folder in which MLflow stores the files of the run.
        """
        if self._is_embedded:
            from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

            self._loggers[mlflow_id] = get_artifact_repository(uri).log_artifact

    def log(self, mlflow_id: str, record: TrialRecord) -> str:
        """Log the executed notebook of a trial, its HTML page, and the trial's artifacts.

        If the notebook is missing or cannot be read, nothing is logged. A notebook that nbconvert
        cannot render is logged without a page. Artifacts are logged only if the trial is final.

        Args:
            mlflow_id: MLflow's id of the run.
            record: The trial.

        Returns:
            Markdown with the outcome in one line, links to the logged files, the artifacts that are
            too large for MLflow, and the trial's message.

        Raises:
            Exception: MLflow does not accept a file. Each of its stores has its own exceptions.
        """
        notebook = record.notebook
        if not os.access(notebook, os.R_OK):
            return f"{_outcome(record)}\n\n{record.message}".strip()
        rendered = self._rendered_page(record)
        self._log_file(mlflow_id, notebook)
        name = notebook.name
        if rendered is not None:
            name = notebook.with_suffix(".html").name
            self._log_page(mlflow_id, name, rendered)
        large = self._log_saved(mlflow_id, record) if record.is_final else ""
        self._loggers.pop(mlflow_id, None)
        at = f"#/experiments/{self._experiment_id}/runs/{mlflow_id}/artifacts"
        links = f"[executed notebook]({at}/{urllib.parse.quote(name)}) · `{notebook}`"
        return "\n\n".join(filter(None, (_outcome(record), links, large, record.message)))

    def _rendered_page(self, record: TrialRecord) -> list[str] | None:
        """Render a trial's notebook, and write its cells to a file for the comparison page.

        If this file cannot be written, a later `export` writes it.

        Returns:
            HTML of each cell. None if nbconvert cannot render the notebook.
        """
        try:
            rendered = render(record.notebook)
        except Exception as error:  # noqa: BLE001  an output's converter can raise anything
            # Other trials' notebooks most likely fail too, so only the first failure is a warning.
            level = logging.INFO if self._has_failed else logging.WARNING
            self._has_failed = True
            _log.log(
                level,
                "trial %s: its notebook cannot be rendered as a page (%s); MLflow has it as .ipynb",
                record.run_id,
                first_line(error),
            )
            return None
        with suppress(OSError, ValueError):  # If this fails, a later `export` writes the cells.
            write_cells(self._paths.page_notebooks, record.run_id, rendered)
        return rendered

    def _log_page(self, mlflow_id: str, name: str, cells: list[str]) -> None:
        self._rendered.mkdir(parents=True, exist_ok=True)
        page = self._rendered / name
        try:
            page.write_text(page_of(cells), encoding="utf-8")
            self._log_file(mlflow_id, page)
        finally:
            self._remove_pages()

    def names_of(self, record: TrialRecord) -> set[str]:
        """Return names of the files and folders that `log` may have written to a trial's run."""
        saved = (read_metadata(record.notebook) or BLANK).artifacts
        return {record.notebook.name, record.notebook.with_suffix(".html").name, *saved}

    def _log_file(self, mlflow_id: str, file: Path, folder: str | None = None) -> None:
        """Log a file to a folder of a run's artifacts. A `folder` of None is the top folder."""
        self._tell(Upload(file.stat().st_size))
        log = self._loggers.get(mlflow_id)
        if log is None:
            self._client.log_artifact(mlflow_id, str(file), folder)
        else:
            log(str(file), folder)

    def _log_saved(self, mlflow_id: str, record: TrialRecord) -> str:
        """Log the artifacts of a trial, except those that are too large.

        Only files in the trial's folder of artifacts are logged, and only if the executed notebook
        names their artifact. `stage_tags` states hash and size of all artifacts, also large ones.

        Args:
            mlflow_id: MLflow's id of the run.
            record: The trial.

        Returns:
            Markdown that names the large artifacts. Empty if there are none.
        """
        folder = self._paths.saved(run_id_of(record.first_number))
        names = (read_metadata(record.notebook) or BLANK).artifacts
        files: dict[str, dict[str, Path]] = {}
        for relative, file in files_within(folder):
            name = relative.partition("/")[0]
            if name in names and name != record.notebook.name and file.exists():
                files.setdefault(name, {})[relative] = file
        large = []
        for name, saved in files.items():
            n_bytes = sum(file.stat().st_size for file in saved.values())
            if n_bytes > LARGEST_LOGGED_BYTES:
                large.append(f"`{folder / name}` ({size(n_bytes)})")
                continue
            for relative, file in saved.items():
                self._log_file(mlflow_id, file, os.path.dirname(relative) or None)
        return f"Too large to be copied into MLflow: {', '.join(large)}" if large else ""
