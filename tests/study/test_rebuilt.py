"""A study is rebuilt from executed notebooks, also if users have changed them."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution, distribution_to_json
from optuna.trial import TrialState as OptunaState
from studies import note_in, small_settings, trial_record

from sweeper.errors import StudyError
from sweeper.notebooks.metadata import BLANK, TrialMetadata
from sweeper.search.samplers import SamplerFactory
from sweeper.study.facts import StudyFacts
from sweeper.study.proposals import QUEUED, SEED
from sweeper.study.rebuilt import write_study
from sweeper.study.study import Study
from sweeper.testing import write_notebook
from sweeper.trials import RerunPlan, TrialOutcome, TrialState

SETTINGS = small_settings(
    "again", objective={"acc": "maximize"}, study={"trials": 2, "pruner": "none"}
)
FACTS = StudyFacts(id="s", objectives=["acc"], settings=SETTINGS.as_mapping)
PROPOSAL: dict[str, Any] = {
    "noted": {},
    "params": {"x": 0.5},
    "distributions": {"x": distribution_to_json(FloatDistribution(0, 1))},
    "user_attrs": {},
    "system_attrs": {},
}
SOUND = replace(
    BLANK,
    study="again",
    study_id="s",
    run_id="0000",
    state=TrialState.COMPLETED,
    params={"x": 0.5},
    seed=1,
    attempt=1,
    scores={"acc": 0.5},
    started_at=datetime(2026, 1, 1, tzinfo=UTC),
).encode() | {"proposal": PROPOSAL}
VALUES: list[Any] = [None, 3, "text", [], ["x"], {}, {"x": None}, {"x": [1]}, {"acc": "nan"}]


def rebuild_from(stored: dict[str, Any], folder: Path) -> None:
    metadata = TrialMetadata.decode(stored)
    assert metadata is not None
    write_study(folder / "new.db", "again", FACTS, {0: (folder / "0000.ipynb", metadata)})


def test_an_intact_notebook_suffices_to_rebuild_a_study(tmp_path: Path) -> None:
    rebuild_from(SOUND, tmp_path)


def test_a_rebuilt_study_has_the_right_directions_even_if_settings_list_objectives_in_another_order(
    tmp_path: Path,
) -> None:
    objective = {"latency": "minimize", "acc": "maximize"}
    facts = replace(
        FACTS,
        objectives=["acc", "latency"],
        settings=small_settings("again", objective=objective).as_mapping,
    )
    metadata = TrialMetadata.decode(SOUND | {"scores": {"acc": 0.5, "latency": 2.0}})
    assert metadata is not None
    notebook = write_notebook(tmp_path / "0000.ipynb", "1")
    note_in(notebook, **metadata.encode())
    write_study(tmp_path / "new.db", "again", facts, {0: (notebook, metadata)})
    storage = f"sqlite:///{tmp_path / 'new.db'}"
    rebuilt = optuna.load_study(study_name="again", storage=storage)
    assert [direction.name for direction in rebuilt.directions] == ["MAXIMIZE", "MINIMIZE"]
    assert rebuilt.trials[0].values == [0.5, 2.0]


def test_a_rebuilt_confirming_study_makes_only_the_runs_of_its_plan_that_have_no_notebook(
    tmp_path: Path,
) -> None:
    found = trial_record(7, params={"x": 0.5}, scores={"acc": 0.9})
    plan = RerunPlan.of_trials([found], [1, 2], objective="acc", direction="maximize")
    queued = {"user_attrs": {SEED: 1}, "system_attrs": {QUEUED: {"x": 0.5}}}
    stored = SOUND | {"proposal": PROPOSAL | queued}
    metadata = TrialMetadata.decode(stored)
    assert metadata is not None
    note_in(write_notebook(tmp_path / "0003.ipynb"), **stored)
    facts, file = replace(FACTS, confirms=plan), tmp_path / "new.db"
    write_study(file, "again", facts, {3: (tmp_path / "0003.ipynb", metadata)})
    study = Study.open(f"sqlite:///{file}", SETTINGS)
    assert study.n_confirming(plan) == 2
    study.confirm(plan)
    record = study.ask(SamplerFactory(SETTINGS), lambda n: tmp_path / f"{n}.ipynb")
    assert record is not None
    assert (record.number, record.params, record.seed) == (4, {"x": 0.5}, 2)
    assert study.ask(SamplerFactory(SETTINGS), lambda n: tmp_path / f"{n}.ipynb") is None


def test_a_rebuilt_study_has_the_parent_trials_that_nsga2_stored_in_the_studys_attributes(
    tmp_path: Path,
) -> None:
    sampler = {"name": "nsga2", "population_size": 2}
    settings = small_settings("again", study={"trials": 9, "sampler": sampler})
    study = Study.open(f"sqlite:///{tmp_path / 'old.db'}", settings)
    for number in range(5):
        record = study.ask(SamplerFactory(settings), lambda n: tmp_path / f"{n}.ipynb")
        assert record is not None
        proposal = study.proposal(number)
        study.tell(number, TrialOutcome(state=TrialState.COMPLETED, scores={"val": 0.5}))
    study.close()
    metadata = TrialMetadata.decode(SOUND)
    assert metadata is not None and proposal.noted
    metadata = replace(metadata, proposal=replace(proposal, user_attrs={}))
    write_study(tmp_path / "new.db", "again", FACTS, {0: (tmp_path / "0000.ipynb", metadata)})
    storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path / 'new.db'}")
    stored = storage.get_study_system_attrs(storage.get_study_id_from_name("again"))
    assert proposal.noted.items() <= stored.items()


def test_a_study_with_a_trial_that_was_pruned_for_nan_can_be_rebuilt_and_read(
    tmp_path: Path,
) -> None:
    settings = small_settings(
        "again", objective={"acc": "maximize"}, study={"trials": 2, "pruner": "median"}
    )
    series = {"acc": {"steps": [0, 1], "values": [0.5, "nan"]}}
    pruned = {"state": "pruned", "reason": "pruned", "scores": {}, "series": series}
    metadata = TrialMetadata.decode(SOUND | pruned)
    assert metadata is not None
    notebook = write_notebook(tmp_path / "0000.ipynb", "1")
    note_in(notebook, **metadata.encode())
    facts, database = replace(FACTS, settings=settings.as_mapping), tmp_path / "new.db"
    write_study(database, "again", facts, {0: (notebook, metadata)})
    (record,) = Study.load(f"sqlite:///{database}", "again").records()
    assert record.state is TrialState.PRUNED
    (trial,) = optuna.load_study(study_name="again", storage=f"sqlite:///{database}").trials
    assert (trial.state, trial.values) == (OptunaState.PRUNED, None)


@pytest.mark.parametrize("key", ["params", "attempt", "started_at", "proposal"])
def test_a_rebuild_names_a_notebook_that_lacks_data_of_its_trial(tmp_path: Path, key: str) -> None:
    damaged = {name: value for name, value in SOUND.items() if name != key}
    with pytest.raises(StudyError, match=r"0000\.ipynb lacks data that its study needs"):
        rebuild_from(damaged, tmp_path)


@pytest.mark.slow  # it writes many studies
def test_a_rebuild_from_a_notebook_with_changed_metadata_succeeds_or_names_the_notebook(
    tmp_path: Path,
) -> None:
    rng = random.Random(0)
    for index in range(60):
        proposal = {**PROPOSAL, rng.choice([*PROPOSAL]): rng.choice(VALUES)}
        changed = {**SOUND, "proposal": proposal, rng.choice([*SOUND]): rng.choice(VALUES)}
        folder = tmp_path / str(index)
        folder.mkdir()
        try:
            rebuild_from(changed, folder)
        except StudyError as error:
            assert "0000.ipynb" in str(error)
