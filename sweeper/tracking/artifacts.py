"""The files of a run: the executed notebook and its rendering as an HTML page.

The same rendering is written for the comparison page: rendering twice would take twice as long.
"""

from __future__ import annotations

import logging
import os
import urllib.parse
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from ..errors import first_line
from ..files import files_within
from ..notebooks.html import page_of, render, write_cells
from ..notebooks.metadata import BLANK, read_metadata
from ..trials import TrialRecord, run_id_of
from .messages import Store

if TYPE_CHECKING:
    from mlflow import MlflowClient

_log = logging.getLogger(__name__)

#: What a trial has saved is copied into MLflow up to this size.
LOGGED_BYTES = 100 * 10**6


def stage_tags(record: TrialRecord) -> dict[str, str]:
    """What a trial has used of other studies, and saved for them: names, sizes and hashes."""
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
    """Logs the files of an experiment's runs.

    Args:
        store: its paths name the folder of the comparison page and what trials have saved.
    """

    def __init__(self, client: MlflowClient, experiment_id: str, store: Store) -> None:
        self._client = client
        self._experiment_id = experiment_id
        self._paths, self._is_embedded = store.paths, store.is_embedded
        #: What logs a file of a run that this process has created.
        self._log_file: dict[str, Callable[[str], object]] = {}
        self._has_failed = False

    def begin(self, mlflow_id: str, uri: str) -> None:
        """Note where the files of a new run go.

        MLflow's client would read the whole run again for it, which takes 6 ms of CPU time.
        """
        if self._is_embedded:
            from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

            self._log_file[mlflow_id] = get_artifact_repository(uri).log_artifact

    def log(self, mlflow_id: str, record: TrialRecord) -> str:
        """Log the executed notebook, if there is one, and its page.

        A notebook that nbconvert cannot render is logged without a page.

        Returns:
            Markdown with links to the logged files and the trial's message.

        Raises:
            Exception: MLflow does not take a file; each of its stores has exceptions of its own.
        """
        notebook = record.notebook
        if not os.access(notebook, os.R_OK):
            return record.message
        rendered = None
        try:
            rendered = render(notebook)
        except Exception as error:  # noqa: BLE001  an output's converter can raise anything
            _log.log(
                logging.INFO if self._has_failed else logging.WARNING,
                "trial %s: its notebook cannot be rendered as a page (%s); MLflow has it as .ipynb",
                record.run_id,
                first_line(error),
            )
            self._has_failed = True  # other trials have the same outputs
        else:
            with suppress(OSError, ValueError):  # `export` writes what is missing in the page
                write_cells(self._paths.page_notebooks, record.run_id, rendered)
        log_file = self._log_file.pop(mlflow_id, partial(self._client.log_artifact, mlflow_id))
        log_file(str(notebook))
        name = notebook.name
        if rendered is not None:
            name = notebook.with_suffix(".html").name
            with TemporaryDirectory() as folder:
                page = Path(folder, name)
                page.write_text(page_of(rendered), encoding="utf-8")
                log_file(str(page))
        if record.is_final:
            self._log_saved(mlflow_id, record)
        at = f"#/experiments/{self._experiment_id}/runs/{mlflow_id}/artifacts"
        links = f"[executed notebook]({at}/{urllib.parse.quote(name)}) · `{notebook}`"
        return f"{links}\n\n{record.message}".strip()

    def names_of(self, record: TrialRecord) -> set[str]:
        """The names of all that `log` writes of a trial."""
        saved = (read_metadata(record.notebook) or BLANK).artifacts
        return {record.notebook.name, record.notebook.with_suffix(".html").name, *saved}

    def _log_saved(self, mlflow_id: str, record: TrialRecord) -> None:
        """Log what the trial has saved, but for what is large: the tag names its place.

        A name in the notebook only chooses among the files of the trial's folder.
        """
        folder = self._paths.saved(run_id_of(record.first_number))
        names = (read_metadata(record.notebook) or BLANK).artifacts
        files: dict[str, dict[str, Path]] = {}
        for relative, file in files_within(folder):
            name = relative.partition("/")[0]
            if name in names and name != record.notebook.name and file.exists():
                files.setdefault(name, {})[relative] = file
        for saved in files.values():
            if sum(file.stat().st_size for file in saved.values()) <= LOGGED_BYTES:
                for relative, file in saved.items():
                    above = os.path.dirname(relative) or None
                    self._client.log_artifact(mlflow_id, str(file), above)
