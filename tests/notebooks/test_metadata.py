"""Test the metadata of executed notebooks, also after somebody has edited the file."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.notebooks.metadata import (
    BLANK,
    DataUse,
    NotedNumber,
    StoredSeries,
    TrialMetadata,
    UnreadText,
    read_metadata,
)
from sweeper.trials import (
    Disagreement,
    GpuUse,
    InputFile,
    Notice,
    Proposal,
    Reason,
    SavedArtifact,
    ScoreRank,
    TrialState,
)

FULL = TrialMetadata(
    study="digits",
    study_id="d1g175",
    run_id="0007",
    state=TrialState.FAILED,
    params={"lr": 0.1, "kinds": ["a", None], "is_deep": True},
    fixed={"epochs": 3},
    seed=123,
    random_seed=7,
    attempt=2,
    code="12345678",
    scores={"val": 0.5, "loss": math.inf},
    series={"val": StoredSeries(steps=(0, 2), values=(0.25, 0.5))},
    printed={
        "loss": StoredSeries(
            steps=(), values=(), unread=UnreadText(step=1, text="n/a"), too_slow=True
        )
    },
    logged={"acc": StoredSeries(steps=(1,), values=(-math.inf,), library="Keras")},
    finals={"val": 0.5},
    variables={"val": 0.5},
    given_by={"val": ScoreRank.REPORTED},
    started_at=datetime(2026, 1, 1, tzinfo=UTC),
    frozen_at=datetime(2026, 1, 2, tzinfo=UTC),
    duration_s=1.5,
    ended_at_s=1e9,
    waits_for="its turn",
    pid=7,
    reason=Reason.CELL_ERROR,
    message="ZeroDivisionError",
    exit_code=-9,
    kernel="warm",
    kernel_reason="none",
    shared_cells=2,
    proof="equal",
    proven_by="0000",
    gpu=GpuUse(peak_bytes=10**9),
    host="far",
    environment="abc",
    snapshot="def",
    data=DataUse(version="v1", source="s3://bucket", path="./data"),
    inputs={
        "encoder": InputFile(
            study="pretrain",
            study_id="1",
            run_id="0001",
            artifact="model.pt",
            sha256="0" * 64,
            size_bytes=3,
            path=Path("/inputs/model.pt"),
        )
    },
    artifacts={"model.pt": SavedArtifact(sha256="1" * 64, size_bytes=4)},
    proposal=Proposal(
        params={"lr": 0.1},
        distributions={"lr": "{}"},
        user_attrs={},
        system_attrs={"a": [1]},
        noted={"b": 2},
    ),
    values_at_end={"lr": 0.1},
    originals={"lr": 0.05},
    numbers={"acc": NotedNumber(cell=2, values=[(0.5).hex()])},
    changes={"2:1": ["acc"]},
    observed={"code": "12345678"},
    disagreements=(
        Disagreement(name="val", source="report", value=0.5, other="Keras", other_value=0.25),
    ),
    is_infeasible=True,
    notices={Notice.NOT_REPLICABLE: ("put_",)},
)
#: Any JSON value, even a number too large for a float, or text that UTF-8 cannot encode.
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.just(10**400)
    | st.floats()
    | st.text(max_size=5)
    | st.just("\ud800"),
    lambda values: (
        st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=5), values, max_size=3)
    ),
    max_leaves=8,
)


def test_metadata_is_valid_json_and_is_read_as_it_was_written() -> None:
    assert all(getattr(FULL, part.name) != getattr(BLANK, part.name) for part in fields(FULL))
    text = json.dumps(FULL.encode(), allow_nan=False)
    assert TrialMetadata.decode(json.loads(text)) == FULL


def test_optional_metadata_without_a_value_are_left_out_of_an_executed_notebook() -> None:
    unwritten = FULL.encode().keys() - BLANK.encode().keys()
    assert {"message", "pid", "data", "inputs", "gpu"} <= unwritten
    assert {"params", "scores", "series", "attempt"}.isdisjoint(unwritten)


@pytest.mark.slow  # the test computes for a second
@given(st.dictionaries(st.sampled_from(sorted(FULL.encode())), JSON_VALUES, max_size=4))
@settings(max_examples=200, deadline=None)
def test_a_metadata_key_with_an_invalid_value_changes_no_other_value_except_perhaps_the_state(
    changes: dict[str, Any],
) -> None:
    found = TrialMetadata.decode({**FULL.encode(), **changes})
    assert found is not None
    assert TrialMetadata.decode(found.encode()) is not None
    sound = FULL.encode().keys() - changes.keys() - {"state"}
    stored, expected = found.encode(), FULL.encode()
    assert {key: stored[key] for key in sound} == {key: expected[key] for key in sound}


@pytest.mark.parametrize("stored", [None, 3, [], {}, "text"])
def test_a_value_that_is_not_a_mapping_is_not_metadata(stored: object) -> None:
    assert TrialMetadata.decode(stored) is None


@pytest.mark.parametrize(
    "damage", [{"scores": {"val": "good"}}, {"duration_s": "long"}, {"reason": "bad luck"}]
)
def test_a_trial_whose_stored_outcome_is_damaged_counts_as_running(damage: dict[str, Any]) -> None:
    found = TrialMetadata.decode({**FULL.encode(), **damage})
    assert found is not None
    assert not found.is_final


def test_a_notebook_file_that_is_nested_too_deeply_to_be_read_has_no_metadata(
    tmp_path: Path,
) -> None:
    file = tmp_path / "deep.ipynb"
    file.write_text('{"metadata": ' + "[" * 100_000 + "]" * 100_000 + "}")
    assert read_metadata(file) is None
