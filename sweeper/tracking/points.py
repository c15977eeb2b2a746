"""The series of the runs: each point is told once, whoever says it and however often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .metrics import legal, metric

if TYPE_CHECKING:
    from mlflow import MlflowClient

#: Name, step, value and time in milliseconds.
TimedPoint = tuple[str, int, float, int]


class ToldPoints:
    """Which points of the running trials stand in MLflow already.

    A later attempt at a trial says much the same as the one before it, and what is scraped in the
    end is mostly what was reported meanwhile.
    """

    def __init__(self, client: MlflowClient) -> None:
        self._client = client
        self._told: dict[str, set[tuple[str, int, str]]] = {}

    def __bool__(self) -> bool:
        """Whether any trial runs."""
        return bool(self._told)

    def begin(self, mlflow_id: str, *, is_new: bool) -> None:
        """A trial begins."""
        self._told[mlflow_id] = set() if is_new else self._standing(mlflow_id)

    def tell(self, mlflow_id: str, points: Sequence[TimedPoint]) -> None:
        """Tell the points that do not stand there yet."""
        if mlflow_id not in self._told:
            self.begin(mlflow_id, is_new=False)
        told = self._told[mlflow_id]
        new = [p for p in points if (legal(p[0]), p[1], repr(p[2])) not in told]
        metrics = [metric(name, value, step, at_ms) for name, step, value, at_ms in new]
        if metrics:
            self._client.log_batch(mlflow_id, metrics=[m for m in metrics if m])
        told.update((legal(name), step, repr(value)) for name, step, value, _ in new)

    def last(self, mlflow_id: str, name: str, value: float) -> tuple[int | None, bool]:
        """The last step of a trial's series, None where there is none; and whether it has a value.

        Of a step that was told twice, MLflow alone knows which came last.
        """
        points = [point for point in self._told[mlflow_id] if point[0] == legal(name)]
        step = max((step for _, step, _ in points), default=None)
        return step, [told for _, at, told in points if at == step] == [repr(value)]

    def end(self, mlflow_id: str) -> None:
        """A trial has ended."""
        self._told.pop(mlflow_id, None)

    def _standing(self, mlflow_id: str) -> set[tuple[str, int, str]]:
        names = self._client.get_run(mlflow_id).data.metrics
        histories = (self._client.get_metric_history(mlflow_id, name) for name in names)
        return {(m.key, m.step, repr(m.value)) for history in histories for m in history}
