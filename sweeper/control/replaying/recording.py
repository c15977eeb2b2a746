"""Write what replays came to into the MLflow runs of their trials."""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from ..lookup import ExistingStudy
from .verdict import Verdict


def record_in_mlflow(existing: ExistingStudy, verdicts: Iterable[Verdict]) -> None:
    """Tag the run of each trial with the verdict of its replay.

    Raises:
        TrackingError: MLflow is away.
    """
    from ...tracking import usable

    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    runs = existing.runs()
    with usable(existing.tracking):
        for verdict in verdicts:
            tags = {"sweeper.replay": str(verdict.state), "sweeper.replayed_at": at}
            # An empty text replaces that of an earlier replay.
            runs.tag(verdict.run_id, {**tags, "sweeper.replay_difference": verdict.difference})
