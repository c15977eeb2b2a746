"""What a machine that joins a study compares: what it states, not what the study has settled."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sweeper.notebooks import ResearchNotebook
from sweeper.notebooks.fingerprint import Fingerprint, changes, fingerprint_of
from sweeper.settings import Settings
from sweeper.study import Study
from sweeper.sweep.inputs.resolving import stated_of
from sweeper.sweep.inputs.settled import as_settled
from sweeper.testing import write_notebook

STATED: dict[str, Any] = {
    "objective": {"val": "maximize"},
    "space": {"x": {"low": 0.0, "high": 1.0}},
    "study": {"name": "joint"},
    "data": {"path": "./data", "from": "s3://bucket/data"},
    "inputs": {"encoder": {"study": "pretrain", "artifact": "model.pt", "take": "best"}},
}


def difference(folder: Path, of: dict[str, Any] | None = None, **stated: Any) -> list[str]:
    """What a machine's fingerprint has that the study's has not, and the other way around.

    Args:
        of: what the machine that leads states otherwise.
        **stated: what the one that joins states otherwise.
    """
    notebook = ResearchNotebook(write_notebook(folder / "nb.ipynb", "val = x"))

    def fingerprint(settings: Settings) -> Fingerprint:
        return fingerprint_of(notebook, settings, kernel_name=notebook.kernel_name)

    leads = Settings.from_mapping({**STATED, **(of or {})})
    joins = Settings.from_mapping({**STATED, **stated})
    settled = {"data": "5ac5d1", "inputs.encoder": {"take": ["0003"], "sha256": ["abc"]}}
    known = {"encoder": {"stated": stated_of(leads.inputs["encoder"]), "files": []}}
    with closing(Study.open(f"sqlite:///{folder}/study.db", leads)) as study:
        before = {**fingerprint(leads), **settled}
        if leads.data is None:
            del before["data"]
        study.note_facts(made_of=before, inputs=known)
        return changes(before, as_settled(fingerprint(joins), joins, study))


def test_files_and_data_that_a_study_has_settled_are_no_difference(tmp_path: Path) -> None:
    assert difference(tmp_path) == []


def test_data_that_the_study_has_not_is_a_difference(tmp_path: Path) -> None:
    assert difference(tmp_path, of={"data": None})


@pytest.mark.parametrize(
    "stated",
    [
        {"inputs": {"encoder": {**STATED["inputs"]["encoder"], "artifact": "other.pt"}}},
        {"inputs": {}},
        {"data": None},
        {"data": {**STATED["data"], "version": "abcd"}},
    ],
    ids=["another file", "no input", "no data", "another version"],
)
def test_what_a_machine_states_otherwise_is_a_difference(
    stated: dict[str, Any], tmp_path: Path
) -> None:
    assert difference(tmp_path, **stated)
