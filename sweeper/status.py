"""The state of a study from its storage alone, also while it runs elsewhere or after it died."""

from __future__ import annotations

from pathlib import Path

from .errors import StudyError
from .notebook import mark_stopped, read_metadata
from .ownership import is_held, owner_of
from .results import SweepResult
from .study import Study
from .tracking import Tracker
from .trials import StudyPaths, TrialRecord, TrialState, shown

_STORAGE_NAME = "study.db"


def find_storages(wanted: str, *, storage: str | None) -> list[tuple[str, str]]:
    """Storage and name of the studies that are meant by a name or a folder.

    Args:
        wanted: a study's name, its folder, or a folder of outputs with several studies.
        storage: an Optuna storage in which to look for the name instead.

    Raises:
        StudyError: there is none.
    """
    if storage is not None:
        if wanted not in Study.names(storage):
            known = ", ".join(Study.names(storage)) or "none"
            raise StudyError(f"{storage}: there is no study {wanted!r}; known: {known}")
        return [(storage, wanted)]
    folder = Path(wanted)
    files = [folder / _STORAGE_NAME, *sorted(folder.glob(f"*/{_STORAGE_NAME}"))]
    if not folder.is_dir() and folder.name == wanted:
        files = sorted(Path().glob(f"*/{wanted}/{_STORAGE_NAME}"))
    urls = [f"sqlite:///{file.absolute()}" for file in files if file.is_file()]
    found = [(url, name) for url in urls for name in Study.names(url)]
    if not found:
        raise StudyError(
            f"there is no study in {wanted!r}; give a study's name, the folder of its outputs, or "
            "its name with --storage"
        )
    return found


def look(storage_url: str, name: str) -> tuple[SweepResult, str | None]:
    """What a study has come to, and who sweeps it now.

    Where no sweep is alive, trials and MLflow runs that one left `running` are corrected first.

    Raises:
        StudyError: the storage cannot be opened.
    """
    study = Study.load(storage_url, name)
    facts = study.facts
    paths = StudyPaths.parse(facts["template"], study=name)
    owner = owner_of(paths) if is_held(paths) else None
    if owner is None and any(r.state is TrialState.RUNNING for r in study.records()):
        _correct(study, facts["tracking_uri"], paths)
    result = SweepResult(
        study=name,
        storage=storage_url,
        tracking_uri=facts["tracking_uri"],
        experiment_id=facts["experiment_id"],
        objectives=facts["objectives"],
        records=study.records(),
        best=study.best(),
        mlflow_run_ids=facts.get("mlflow_run_ids", {}),
        compare_url=facts.get("compare_url"),
    )
    return result, owner


def _correct(study: Study, tracking_uri: str, paths: StudyPaths) -> None:
    interrupted: list[TrialRecord] = study.mark_interrupted()
    for record in interrupted:
        if (read_metadata(record.notebook) or {}).get("study_id") == study.study_id:
            mark_stopped(record.notebook, record.message)
    tracker = Tracker.open(
        tracking_uri,
        study=study.name,
        study_id=study.study_id,
        embedded=paths.tracking,
        artifacts=paths.artifacts,
    )
    for record in interrupted:
        tracker.ended(record, {}, {})
    if tracker.close():
        raise StudyError(f"{shown(paths.folder)}: MLflow at {tracking_uri} does not take the state")
