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
        if self._refusal(mlflow_id, metrics, params, tags) is None:
            return
        for metric in metrics:
            self._note(metric.key, self._refusal(mlflow_id, [metric], [], []))
        for param in params:
            self._note(param.key, self._refusal(mlflow_id, [], [param], []))
        for tag in tags:
            self._note(tag.key, self._refusal(mlflow_id, [], [], [tag]))

    def _refusal(
        self,
        mlflow_id: str,
        metrics: Sequence[Metric],
        params: Sequence[Param],
        tags: Sequence[RunTag],
    ) -> Exception | None:
        """Write values to a run in one call. Return the error if MLflow refuses them."""
        try:
            self._client.log_batch(mlflow_id, metrics=metrics, params=params, tags=tags)
        except Exception as error:
            if not _is_refusal(error):
                raise
            return error
        return None

    def _note(self, name: str, refusal: Exception | None) -> None:
        if refusal is None or name in self._refused:
            return
        self._refused.add(name)
        _log.warning(
            "MLflow does not accept a value of %r, so the trial's run lacks this value: %s",
            name,
            first_line(refusal),
        )


def _is_refusal(error: Exception) -> bool:
    """Return whether an error means that the store does not accept a value.

    A repetition of the call would fail, too. Other errors may be temporary.
    """
    from mlflow.exceptions import MlflowException

    codes = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")
    return isinstance(error, MlflowException) and error.error_code in codes
