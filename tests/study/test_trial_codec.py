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


def test_a_record_is_stored_in_the_same_format_as_ever() -> None:
    assert json.dumps(encode(RECORDED)) == json.dumps(STORED)


def test_a_record_has_what_its_trial_took_of_a_gpu() -> None:
    record = replace(RECORDED, gpu=GpuUse(peak_bytes=8_400_000_000, was_short=True))
    stored = encode(record)
    assert stored["gpu"] == {"peak_bytes": 8_400_000_000, "was_short": True}
    assert decode(RECORDED.number, json.loads(json.dumps(stored))).gpu == record.gpu


def test_a_record_states_only_that_its_trial_does_not_fit() -> None:
    stored = encode(replace(RECORDED, is_infeasible=True))
    assert stored["is_infeasible"] is True
    assert decode(RECORDED.number, json.loads(json.dumps(stored))).is_infeasible


def test_a_record_names_the_operations_that_need_not_repeat() -> None:
    record = replace(RECORDED, not_replicable=("put_",))
    stored = encode(record)
    assert stored["not_replicable"] == ["put_"]
    assert decode(RECORDED.number, json.loads(json.dumps(stored))) == record


def test_a_stored_record_is_read_with_the_types_of_its_values() -> None:
    record = record_of(trial(STORED))
    assert record == RECORDED
    assert record is not None
    assert repr(record.params) == repr(RECORDED.params)  # 1, 1.0 and True are equal


def test_a_record_of_the_first_version_is_read() -> None:
    earlier = {key: value for key, value in STORED.items() if key != "retry_of"}
    record = record_of(trial(earlier))
    assert record is not None
    assert record.retry_of is None


def test_a_trial_that_was_never_begun_has_no_record() -> None:
    assert record_of(trial(None)) is None


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"state": "unheard of"}, "state"), ({"seed": "x"}, "seed"), ({"scores": 7}, "scores")],
)
def test_a_damaged_record_is_refused_with_the_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=rf"(?s)TrialRecord.*{field}"):
        record_of(trial({**STORED, **changes}))
