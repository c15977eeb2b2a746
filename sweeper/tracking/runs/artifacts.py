"""The files of a run: the executed notebook and its rendering as an HTML page."""

from __future__ import annotations

import logging
import os
import urllib.parse
from typing import TYPE_CHECKING

from ...errors import first_line
from ...notebooks import render_html
from ...trials import TrialRecord

if TYPE_CHECKING:
    from mlflow import MlflowClient

_log = logging.getLogger(__name__)


class Artifacts:
    """Logs the files of an experiment's runs."""

    def __init__(self, client: MlflowClient, experiment_id: str) -> None:
        self._client = client
        self._experiment_id = experiment_id
        self._has_failed = False

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
        try:
            page = render_html(notebook)
        except Exception as error:  # noqa: BLE001  an output's converter can raise anything
            page = None
            self._warn(record, error)
        self._client.log_artifact(mlflow_id, str(notebook))
        name = notebook.name
        if page is not None:
            name = notebook.with_suffix(".html").name
            self._client.log_text(mlflow_id, page, name)
        at = f"#/experiments/{self._experiment_id}/runs/{mlflow_id}/artifacts"
        links = f"[executed notebook]({at}/{urllib.parse.quote(name)}) · `{notebook}`"
        return f"{links}\n\n{record.message}".strip()

    def _warn(self, record: TrialRecord, error: Exception) -> None:
        """Warn about the first failure only: other trials have the same outputs."""
        _log.log(
            logging.INFO if self._has_failed else logging.WARNING,
            "trial %s: its notebook cannot be rendered as a page (%s); MLflow has it as .ipynb",
            record.run_id,
            first_line(error),
        )
        self._has_failed = True
