"""The files of a run: the executed notebook, and the page that it looks like."""

from __future__ import annotations

import logging
import os
import urllib.parse
from typing import TYPE_CHECKING

from ..errors import first_line
from ..notebooks import render_html
from ..trials import TrialRecord

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
        """Log the executed notebook and its page, as far as there are any.

        A notebook that nbconvert cannot render is logged without a page.

        Returns:
            Markdown that links to what was logged, with the trial's message.

        Raises:
            Exception: MLflow does not take a file; of any class, as its stores have many.
        """
        notebook = record.notebook
        if not os.access(notebook, os.R_OK):
            return record.message
        try:
            page = render_html(notebook)
        except Exception as error:  # noqa: BLE001  an output may be anything, and its converter too
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
        """Tell of the first, as those of other trials fail likewise."""
        _log.log(
            logging.INFO if self._has_failed else logging.WARNING,
            "trial %s: its notebook cannot be rendered as a page (%s); MLflow has it as .ipynb",
            record.run_id,
            first_line(error),
        )
        self._has_failed = True
