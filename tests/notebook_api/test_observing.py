"""Metrics that libraries log become points. The libraries themselves are in the journeys."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sweeper.notebook_api import observing


class SummaryWriter:
    """The call of torch's class, which needs TensorBoard."""

    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: int | None = None, walltime: Any = None
    ) -> None:
        pass


def test_scalars_for_tensorboard_are_points_however_they_are_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(observing, "_report", lambda *point: seen.append(point))
    observing._tensorboard(SimpleNamespace(SummaryWriter=SummaryWriter))
    writer = SummaryWriter()
    writer.add_scalar("loss", 0.5, 2)
    writer.add_scalar(tag="loss", scalar_value=0.25, global_step=3)
    writer.add_scalar("acc", scalar_value=0.75, global_step=3, walltime=1.0)
    assert seen == [
        ("TensorBoard", 2, {"loss": 0.5}),
        ("TensorBoard", 3, {"loss": 0.25}),
        ("TensorBoard", 3, {"acc": 0.75}),
    ]
