"""A study with a real storage, as one process opens it, and outcomes of its trials."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import RDBStorage
from studies import small_settings

from sweeper.search.samplers import SamplerFactory
from sweeper.settings import Settings
from sweeper.settings.addresses import Address
from sweeper.study.access import close_storage, open_storage
from sweeper.study.study import Study
from sweeper.study_folder.ownership import held_folder
from sweeper.trials import Reason, StudyPaths, TrialOutcome, TrialRecord, TrialState, run_id_of

COMPLETED, FAILED = TrialState.COMPLETED, TrialState.FAILED
RUNNING, STOPPED = TrialState.RUNNING, TrialState.STOPPED

RANGE = {"x": {"low": 0.0, "high": 1.0}}
BRANCHES = {
    "optimizer": ["sgd", "adam"],
    "momentum": {"low": 0.8, "high": 0.99, "when": {"optimizer": "sgd"}},
}


@dataclass
class Opened:
    """A study as one process opens it, with the settings of that process."""

    storage: RDBStorage
    settings: Settings

    def __post_init__(self) -> None:
        self.study = Study.open(self.storage, self.settings)
        self.samplers = SamplerFactory(self.settings)

    def again(self, *, trials: int | None = None) -> Opened:
        """Return the study as the next process opens it after this one was killed."""
        return Opened(self.storage, self.settings.with_overrides(trials=trials))

    def ask(self) -> TrialRecord:
        record = self.next()
        assert record is not None
        return record

    def next(self) -> TrialRecord | None:
        return self.study.ask(self.samplers, notebook_of)

    def run(self, *scores: float) -> list[TrialRecord]:
        """Ask for a trial for each score, and complete it with this score."""
        return [self.study.tell(self.ask().number, completed(score)) for score in scores]

    def optunas(self) -> list[optuna.trial.FrozenTrial]:
        """Return the trials as Optuna reads them from the storage."""
        return optuna.load_study(study_name=self.settings.name, storage=self.storage).trials


def changed(opened: Opened, **parts: Any) -> Settings:
    return small_settings(opened.settings.name, **{"objective": {"acc": "maximize"}, **parts})


def counts_of(study: Study) -> Counter[TrialState]:
    """Return the number of trials by state."""
    return Counter(record.state for record in study.records())


def notebook_of(number: int) -> Path:
    return Path("out") / f"{run_id_of(number)}.ipynb"


def completed(score: float = 0.5, **scores: float) -> TrialOutcome:
    return TrialOutcome(state=COMPLETED, scores={"acc": score, **scores}, duration_s=1.5)


def failed(**scores: float) -> TrialOutcome:
    return TrialOutcome(state=FAILED, reason=Reason.CELL_ERROR, message="1/0", scores=scores)


def stopped() -> TrialOutcome:
    return TrialOutcome(state=STOPPED, reason=Reason.INTERRUPTED, message="the sweep was stopped")


def opened_in(paths: StudyPaths, settings: Settings, /, **facts: Any) -> Study:
    """Return a study in its folder, in the state that it has before a sweep's first trial."""
    with held_folder(paths) as held:
        held.is_needed = True
        study = Study.open(f"sqlite:///{paths.storage}", settings)
        study.note_facts(template=paths.template, **facts)
        study.queue_first(settings)
    return study


def asked(study: Study, settings: Settings, paths: StudyPaths) -> TrialRecord:
    """Ask for the next trial of a study in its folder. Return its record."""
    record = study.ask(SamplerFactory(settings), lambda n: paths.notebook(run_id_of(n)))
    assert record is not None
    return record


@pytest.fixture(scope="session")
def empty_storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a SQLite file with Optuna's tables, because creating them takes most of a second."""
    file = tmp_path_factory.mktemp("storage") / "empty.db"
    close_storage(open_storage(Address.of_file(file)))
    return file


@pytest.fixture
def storage(empty_storage: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RDBStorage]:
    """Open a new SQLite file with Optuna's tables.

    The object itself caches no trials, so a study that is opened again reads them from the file.
    """
    file = tmp_path_factory.mktemp("storage") / "study.db"
    shutil.copy(empty_storage, file)
    opened = open_storage(Address.of_file(file), is_known=True)
    yield opened
    close_storage(opened)


@pytest.fixture
def begin(storage: RDBStorage) -> Any:
    """Return a function that opens a study of the test, with given parts of a parameters file."""
    begun = []

    def begin(
        space: Mapping[str, Any] = RANGE,
        *,
        objective: Mapping[str, str] | None = None,
        start: Sequence[Mapping[str, Any]] = (),
        **study: Any,
    ) -> Opened:
        begun.append(1)
        name = f"study {len(begun)}"
        sections = {"space": space, "objective": objective or {"acc": "maximize"}, "start": start}
        settings = small_settings(name, **sections, study={"trials": 100, **study})
        opened = Opened(storage, settings)
        opened.study.queue_first(settings)
        return opened

    return begin
