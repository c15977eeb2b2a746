"""Which checkpoints stay after their trials have ended."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from studies import small_settings, trial_record

from sweeper.sweep.scheduling.checkpoint_cleaner import CheckpointCleaner
from sweeper.trials import TrialRecord, TrialState, run_id_of

STATES = [
    TrialState.COMPLETED,
    TrialState.COMPLETED,
    TrialState.PRUNED,
    TrialState.FAILED,
    TrialState.STOPPED,
    TrialState.RUNNING,
]
RECORDS = [trial_record(number, state=state) for number, state in enumerate(STATES)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(len(STATES)):
        (tmp_path / run_id_of(number)).mkdir()
        (tmp_path / run_id_of(number) / "000001.ckpt").write_bytes(b"x" * 1000)
    (tmp_path / "notes").mkdir()
    return tmp_path


def left(folder: Path, *more: TrialRecord, **policy: Any) -> list[int]:
    study: Any = SimpleNamespace(best=lambda: [RECORDS[1]])
    cleaner = CheckpointCleaner(study, small_settings("own", checkpoints=policy), folder)
    cleaner.clean({record.number: record for record in [*RECORDS, *more]})
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ({}, [0, 1, 3, 4, 5]),
        ({"pruned": "keep"}, [0, 1, 2, 3, 4, 5]),
        ({"completed": "best"}, [1, 3, 4, 5]),
        ({"completed": "remove"}, [3, 4, 5]),
    ],
)
def test_checkpoints_that_may_be_needed_stay_and_the_policy_decides_on_the_rest(
    folder: Path, policy: dict[str, Any], kept: list[int]
) -> None:
    assert left(folder, **policy) == kept
    assert (folder / "notes").is_dir()


def test_the_last_try_decides(folder: Path) -> None:
    assert 3 in left(
        folder, trial_record(6, state=TrialState.RUNNING, retry_of=3), completed="remove"
    )
    assert 3 not in left(folder, trial_record(6, retry_of=3), completed="remove")
