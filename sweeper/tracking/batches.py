"""Log metrics, params and tags to a run in one call, and leave out values that MLflow refuses."""

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
    """Writes values to the runs of one store.

    MLflow refuses a whole batch if it does not accept one of its values. Then each value is written
    by itself. Values that are refused are left out, with one warning for each name.

    Args:
        client: MLflow's client.
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
        """Write values to a run.

        Raises:
            Exception: The store is unavailable, or fails for a reason other than these values. Each
                of MLflow's stores has its own exceptions.
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
                    "MLflow does not accept %r, so its run lacks it: %s", name, first_line(error)
                )


def _is_refusal(error: Exception) -> bool:
    """Return whether a store refuses a value, so that it will refuse the same call again."""
    from mlflow.exceptions import MlflowException

    codes = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")
    return isinstance(error, MlflowException) and error.error_code in codes
