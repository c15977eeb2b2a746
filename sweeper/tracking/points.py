"""Log the points of series to MLflow, each only once. A point is a value at a step."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING

from .batches import Batches
from .messages import Series, TimedPoint
from .values import is_step, legal, metric

if TYPE_CHECKING:
    from mlflow import MlflowClient

_log = logging.getLogger(__name__)

#: Name, step and value (as text) of a point that MLflow has.
_Key = tuple[str, int, str]


class LoggedPoints:
    """Remembers which points of the running trials MLflow has, and logs only new ones.

    A point is a value of a series, such as `val_loss`, at a step.

    A later attempt at a trial mostly repeats the points of the earlier attempt. Points that are
    read from an executed notebook mostly repeat the points that were reported while it ran.

    Args:
        client: MLflow's client.
        batches: Writer of values to the same store.
    """

    def __init__(self, client: MlflowClient, batches: Batches) -> None:
        self._client, self._batches = client, batches
        self._renamed: set[str] = set()
        self._left_out: set[str] = set()
        #: Points that MLflow has of each run, by MLflow's id of the run. The newest point is last.
        self._logged: dict[str, dict[_Key, None]] = {}

    def begin(self, mlflow_id: str, *, is_new: bool) -> None:
        """Prepare to log the points of a run.

        A new run has no points yet. If the run is not new, its points are read from MLflow, so that
        none is logged twice.
        """
        self._logged[mlflow_id] = {} if is_new else self._stored(mlflow_id)

    def log(self, mlflow_id: str, points: Sequence[TimedPoint]) -> None:
        """Log the points of a run that MLflow does not have yet.

        If several points have the same name, step and value, only the first one is logged.
        """
        logged = self._points_of(mlflow_id)
        new: dict[_Key, TimedPoint] = {}
        for point in points:
            name, step, value, _ = point
            key = legal(name), step, repr(value)
            if key not in logged:
                new.setdefault(key, point)
        if not new:
            return
        metrics = [metric(name, value, step, at_ms) for name, step, value, at_ms in new.values()]
        self._batches.log(mlflow_id, metrics=[made for made in metrics if made is not None])
        self._note_renamed({name for name, *_ in new.values()})
        self._note_left_out({name for name, step, *_ in new.values() if not is_step(step)})
        logged.update(dict.fromkeys(new))

    def _points_of(self, mlflow_id: str) -> dict[_Key, None]:
        if mlflow_id not in self._logged:
            self.begin(mlflow_id, is_new=False)
        return self._logged[mlflow_id]

    def _note_left_out(self, names: Set[str]) -> None:
        """Log a warning, once for each series, that some of its points are left out."""
        for name in sorted(names - self._left_out):
            self._left_out.add(name)
            _log.warning(
                "MLflow cannot store steps of more than 64 bits: points of %r are left out", name
            )

    def _note_renamed(self, names: Set[str]) -> None:
        """Log a warning, once for each series, if the series has another name in MLflow."""
        for name in sorted(names - self._renamed):
            if legal(name) != name:
                self._renamed.add(name)
                _log.warning(
                    "MLflow does not accept the name %r: it is called %r there", name, legal(name)
                )

    def has_all_names(self, mlflow_id: str, series: Series) -> bool:
        """Return whether this process knows, for each of these series, a point that MLflow has.

        If it knows no point of a series, MLflow may still have points that the notebook itself has
        logged. `begin` reads them from MLflow.
        """
        logged = {name for name, _, _ in self._logged.get(mlflow_id, ())}
        return {legal(name) for name in series} <= logged

    def has_others(self, mlflow_id: str, series: Series, *, final: Mapping[str, float]) -> bool:
        """Return whether a run has points of these series that are not in `series`.

        Such points are mostly those of an earlier attempt at the trial.

        Args:
            mlflow_id: MLflow's id of the run.
            series: Points of the trial.
            final: Final scores by name. A point whose value is the final score of its series does
                not count, at whatever step it is.
        """
        known = {
            legal(name): {(step, repr(float(value))) for step, value in points}
            for name, points in series.items()
        }
        ends = {(legal(name), repr(value)) for name, value in final.items()}
        for name, step, text in self._points_of(mlflow_id):
            if name in known and (step, text) not in known[name] and (name, text) not in ends:
                return True
        return False

    def newest(self, mlflow_id: str, name: str) -> tuple[int, float | None]:
        """Return the last step of a series, and its newest value at this step.

        Returns:
            0 and None if the series has no points.
        """
        points = [point for point in self._logged[mlflow_id] if point[0] == legal(name)]
        if not points:
            return 0, None
        _, step, text = max(reversed(points), key=lambda point: point[1])
        return step, float(text)

    def end(self, mlflow_id: str) -> None:
        """Forget the points of a run that has ended."""
        self._logged.pop(mlflow_id, None)

    def _stored(self, mlflow_id: str) -> dict[_Key, None]:
        points = [
            point
            for name in self._client.get_run(mlflow_id).data.metrics
            for point in self._client.get_metric_history(mlflow_id, name)
        ]
        points.sort(key=lambda point: point.timestamp, reverse=True)
        keys = [(point.key, point.step, repr(point.value)) for point in points]
        newest_first = dict.fromkeys(keys)
        return dict.fromkeys(reversed(newest_first))
