"""Test what MLflow gets about trials, without MLflow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
from studies import small_settings, trial_record

from sweeper.notebooks.metadata import BLANK, put_metadata
from sweeper.sweep.scheduling.trial_log import TrialLog
from sweeper.trials import KernelUse, StudyPaths, TrialOutcome, TrialState


class KeptTags:
    """A fake tracker, which stores the tags of each trial whose end is logged."""

    def __init__(self) -> None:
        self.tags: list[Any] = []

    def ended(self, record: Any, described: Any, series: Any, tags: Any) -> None:
        self.tags.append(tags)

    def has_end_of(self, record: Any) -> bool:
        return False

    def wait(self, *_: Any, **__: Any) -> bool:
        return True

    def close(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("kernel", "noted"),
    [
        (
            KernelUse(is_forked=False, reason="a thread runs"),
            {"kernel": "cold", "kernel_reason": "a thread runs"},
        ),
        (KernelUse(is_forked=True, shared_cells=2), {"kernel": "warm", "shared_cells": 2}),
    ],
)
def test_the_tags_of_a_trial_in_mlflow_do_not_change_if_the_end_is_logged_a_second_time(
    kernel: KernelUse, noted: dict[str, Any], tmp_path: Path
) -> None:
    record = trial_record(notebook=tmp_path / "0000.ipynb", attempt=2)
    node = nbformat.v4.new_notebook()
    put_metadata(node, replace(BLANK, state=TrialState.COMPLETED, **noted))
    nbformat.write(node, record.notebook)
    paths = StudyPaths.parse(f"{tmp_path}/{{run_id}}.ipynb", study="s")
    study: Any = SimpleNamespace(records=lambda: [record])
    tracker: Any = KeptTags()
    log = TrialLog(study, tracker, small_settings("s"), paths=paths, tags={"sweeper.study": "s"})
    log.ended(record, TrialOutcome(state=TrialState.COMPLETED, scores={}, kernel=kernel))
    log.finish(lambda: None, lambda: 60.0)
    at_its_end, later = tracker.tags
    assert at_its_end == later
    assert at_its_end["sweeper.kernel_origin"] == str(kernel)
