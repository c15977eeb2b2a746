"""Log metrics, params and tags to a run in one call; what MLflow refuses costs only itself."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import first_line

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, RunTag

_log = logging.getLogger(__name__)


class Batches:
    """Writes to the runs of one store.

    MLflow refuses a whole batch for one value that it does not take. Then each item is written by
    itself, and those that are refused are left out with a warning, one for each name.
    """

    def __init__(self, client: MlflowClient) -> None:
        self._client = client
        self._refused: set[str] = set()

    def log(
        self,
        mlflow_id: str,
        *,
        metrics: Sequence[Metric] = (),
        params: Sequence[Param] = (),
        tags: Sequence[RunTag] = (),
    ) -> None:
        """Write to a run.

        Raises:
            Exception: the store is away, or its answer says nothing of these values; each of
                MLflow's stores has exceptions of its own.
        """
        try:
            self._client.log_batch(mlflow_id, metrics=metrics, params=params, tags=tags)
        except Exception as error:
            if not _is_refusal(error):
                raise
        else:
            return
        for metric in metrics:
            self._log_one(mlflow_id, metric.key, metrics=[metric])
        for param in params:
            self._log_one(mlflow_id, param.key, params=[param])
        for tag in tags:
            self._log_one(mlflow_id, tag.key, tags=[tag])

    def _log_one(
        self,
        mlflow_id: str,
        name: str,
        *,
        metrics: Sequence[Metric] = (),
        params: Sequence[Param] = (),
        tags: Sequence[RunTag] = (),
    ) -> None:
        try:
            self._client.log_batch(mlflow_id, metrics=metrics, params=params, tags=tags)
        except Exception as error:
            if not _is_refusal(error):
                raise
            if name not in self._refused:
                self._refused.add(name)
                _log.warning(
                    "MLflow does not take %r, so it goes without: %s", name, first_line(error)
                )


def _is_refusal(error: Exception) -> bool:
    """Whether a store refuses a value, so that the same call will never succeed."""
    from mlflow.exceptions import MlflowException

    codes = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")
    return isinstance(error, MlflowException) and error.error_code in codes
