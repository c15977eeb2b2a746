"""Chores are the tasks of a sweep in addition to its trials, such as writing to MLflow."""

from __future__ import annotations

import time

from sweeper.trials import ChoreKind, Chores


def test_a_task_of_the_sweep_is_listed_with_its_progress_while_it_runs() -> None:
    chores, written = Chores(), [0]
    with chores.during(ChoreKind.TRACKING, lambda: (written[0], 8)):
        written[0] = 5
        with chores.during(ChoreKind.IMPORTANCES):
            tracking, importances = chores.now()
        assert [chore.kind for chore in chores.now()] == [ChoreKind.TRACKING]
    assert tracking.progress == (5, 8)
    assert importances.progress is None
    assert tracking.since_s <= importances.since_s <= time.monotonic()
    assert chores.now() == ()
