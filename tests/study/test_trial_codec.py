"""A trial's record as JSON: the stored format stays, and bad data is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest

from sweeper.study.trial_codec import RECORD, decode, encode, record_of
from sweeper.trials import GpuUse, Reason, TrialRecord, TrialState

RECORDED = TrialRecord(
    number=0,
    state=TrialState.FAILED,
    params={"layers": [64, 64.0], "on": True, "n": 1, "lr": 1.0, "name": None, "aug": {"a": "ä"}},
    seed=7,
    attempt=2,
    notebook=Path("out/0000.ipynb"),
    scores={"acc": 0.5, "loss": math.inf},
    reason=Reason.NOT_FINITE,
    message="loss is inf",
    started_at_s=1e9 + 0.5,
    duration_s=2.5,
    retry_of=3,
)
STORED = {
    "state": "failed",
    "params": {
        "layers": [64, 64.0],
        "on": True,
        "n": 1,
        "lr": 1.0,
        "name": None,
        "aug": {"a": "ä"},
    },
    "seed": 7,
    "attempt": 2,
    "notebook": "out/0000.ipynb",
    "scores": {"acc": 0.5, "loss": "inf"},
    "reason": "not_finite",
    "message": "loss is inf",
    "started_at_s": 1000000000.5,
    "duration_s": 2.5,
    "retry_of": 3,
}


def trial(stored: Any) -> optuna.trial.FrozenTrial:
    """Trial 0 of a study, with what the storage returns as our attribute."""
    attributes = {} if stored is None else {RECORD: json.loads(json.dumps(stored))}
    frozen = optuna.trial.create_trial(value=0.0, user_attrs=attributes)
    frozen.number = 0
    return frozen


def test_a_record_is_stored_as_json_without_what_is_not_set() -> None:
    assert json.dumps(encode(RECORDED)) == json.dumps(STORED)


def test_what_applies_to_some_trials_is_stored_with_these() -> None:
    gpu = GpuUse(peak_bytes=8_400_000_000)
    record = replace(RECORDED, gpu=gpu, is_infeasible=True, not_replicable=("put_",), host="b")
    assert encode(record) == {
        **STORED,
        "gpu": {"peak_bytes": 8_400_000_000},
        "is_infeasible": True,
        "not_replicable": ["put_"],
        "host": "b",
    }
    assert decode(RECORDED.number, json.loads(json.dumps(encode(record)))) == record


def test_a_stored_record_is_read_with_the_types_of_its_values() -> None:
    record = record_of(trial(STORED))
    assert record == RECORDED
    assert record is not None
    assert repr(record.params) == repr(RECORDED.params)  # 1, 1.0 and True are equal


def test_a_trial_that_was_never_begun_has_no_record() -> None:
    assert record_of(trial(None)) is None


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"state": "unheard of"}, "state"), ({"seed": "x"}, "seed"), ({"scores": 7}, "scores")],
)
def test_a_damaged_record_is_refused_with_the_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=rf"(?s)TrialRecord.*{field}"):
        record_of(trial({**STORED, **changes}))
