"""Find the trials that `replay` is to run again, from executed notebooks or from a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import NotebookError, OutputError, SettingsError, StudyError
from ..notebooks import read_metadata
from ..study_folder.saved import is_intact
from ..trials import InputFile, StudyPaths, TrialRecord, TrialState, display_path
from .lookup import ExistingStudy, find_study

_STORAGE_NAME = "study.db"
#: What the name of a replay's notebook ends in.
_SUFFIX = ".replay.ipynb"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTarget:
    """A trial that is to be run again.

    Attributes:
        original: its executed notebook, which may be a copy in another place.
    """

    record: TrialRecord
    original: Path

    @property
    def replay(self) -> Path:
        """Where the notebook of the replay goes: beside that of the trial."""
        return self.original.with_name(self.original.stem + _SUFFIX)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of its executed notebook."""
        return read_metadata(self.original) or {}


def targets_of(
    words: Sequence[str],
    *,
    storage: str | None,
    tracking_uri: str | None,
    takes_all: bool,
    sample: int | None,
) -> tuple[ExistingStudy, list[ReplayTarget]]:
    """Find what the words of a command line mean.

    Args:
        words: executed notebooks of one study; or a study and run ids.
        storage: the Optuna storage, where the study is in none of the folders above.
        tracking_uri: MLflow with its password, which no study stores.
        takes_all: all trials of the study that ended by themselves or by the pruner.
        sample: only so many of these, the best first, the others evenly spread.

    Raises:
        SettingsError: the words contradict each other.
        StudyError: there is no such study or trial, or it cannot be replayed.
        NotebookError: a notebook is none that a sweep has executed.
        OutputError: another file is where the notebook of a replay goes.
    """
    notebooks = [Path(word) for word in words if word.endswith(".ipynb")]
    if notebooks and len(notebooks) < len(words):
        raise SettingsError("replay takes executed notebooks, or a study with run ids; not both")
    if notebooks and (takes_all or sample is not None):
        raise SettingsError("--all and --sample go with a study, as in: replay out/digits --all")
    if notebooks:
        existing = _study_of(notebooks, storage, tracking_uri)
        targets = [_target(existing, notebook) for notebook in notebooks]
    else:
        wanted = words[0] if words else None
        existing = find_study(wanted, storage=storage, tracking_uri=tracking_uri)
        targets = _chosen(existing, words[1:], takes_all=takes_all, sample=sample)
    # The notebook of a replay means the trial itself, which may be named beside it.
    targets = list({target.record.number: target for target in targets}.values())
    for target in targets:
        _refuse_impossible(existing, target)
    _refuse_lost_inputs(existing, targets)
    return existing, targets


def inputs_of_target(paths: StudyPaths, target: ReplayTarget) -> dict[str, InputFile]:
    """What a trial has used of other studies, where the study keeps it."""
    stored = target.metadata.get("inputs", {})
    files = {name: InputFile.decode(data) for name, data in stored.items()}
    return {
        name: replace(file, path=paths.input(file.sha256, file.artifact))
        for name, file in files.items()
    }


def _refuse_lost_inputs(existing: ExistingStudy, targets: Sequence[ReplayTarget]) -> None:
    """Refuse trials whose inputs are not what they were; each file is read once."""
    whose: dict[InputFile, tuple[str, str]] = {}
    for target in targets:
        for name, file in inputs_of_target(existing.paths, target).items():
            whose.setdefault(file, (target.record.run_id, name))
    for file, (run_id, name) in whose.items():
        if not is_intact(file.path, {"sha256": file.sha256}):
            what = "was changed since" if file.path.exists() else "is gone"
            raise StudyError(
                f"trial {run_id}: {display_path(file.path)} {what}, which was its input {name!r} "
                f"({file}); put it back to replay the trial"
            )


def _study_of(
    notebooks: Sequence[Path], storage: str | None, tracking_uri: str | None
) -> ExistingStudy:
    """The one study of some executed notebooks."""
    stated = {}
    for notebook in notebooks:
        if not notebook.exists():
            raise NotebookError(f"{notebook}: there is no such notebook")
        metadata = read_metadata(notebook)
        if metadata is None or not {"study", "study_id", "run_id"} <= metadata.keys():
            raise NotebookError(
                f"{notebook}: no sweep has executed this notebook; give the executed notebook of a "
                "trial, as in: replay out/digits.0007.ipynb"
            )
        stated[str(metadata["study_id"])] = str(metadata["study"])
    if len(stated) > 1:
        raise SettingsError(f"the notebooks are of {len(stated)} studies; replay one at a time")
    ((study_id, name),) = stated.items()
    folders = [folder / name for folder in notebooks[0].absolute().parents]
    found = next((folder for folder in folders if (folder / _STORAGE_NAME).is_file()), None)
    if found is None and storage is None:
        raise StudyError(
            f"{notebooks[0]}: its study {name!r} is in no folder above it; give its storage with "
            "--storage"
        )
    wanted = name if storage is not None else str(found)
    existing = find_study(wanted, storage=storage, tracking_uri=tracking_uri)
    if existing.study.study_id != study_id:
        raise StudyError(
            f"{notebooks[0]}: it was written by another study of the name {name!r} than the one in "
            f"{existing.storage_url}; give the right one with --storage"
        )
    return existing


def _target(existing: ExistingStudy, notebook: Path) -> ReplayTarget:
    metadata = read_metadata(notebook) or {}
    record = existing.record(str(metadata["run_id"]))
    if "replay" in metadata:  # of a replay, the trial itself is meant
        return ReplayTarget(record=record, original=record.notebook)
    if int(metadata.get("attempt", 1)) != record.attempt or metadata.get("state") == "running":
        raise NotebookError(
            f"{notebook}: not the last attempt at trial {record.run_id}; that is "
            f"{display_path(record.notebook)}"
        )
    return ReplayTarget(record=record, original=notebook)


def _chosen(
    existing: ExistingStudy, run_ids: Sequence[str], *, takes_all: bool, sample: int | None
) -> list[ReplayTarget]:
    if bool(run_ids) + takes_all + (sample is not None) != 1:
        raise SettingsError(
            f"which trials of {existing.study.name!r} to replay? Give run ids, --all, or "
            "--sample N; or an executed notebook instead of the study"
        )
    if run_ids:
        records = [existing.record(run_id) for run_id in run_ids]
    else:
        records = [record for record in existing.study.records() if _can_be_replayed(record)]
        if not records:
            raise StudyError(f"the study {existing.study.name!r} has no trial that has completed")
    if sample is not None:
        best = {record.run_id for record in existing.study.best()}
        records = _sample(records, sample, first=best)
    return [ReplayTarget(record=record, original=record.notebook) for record in records]


def _sample(records: list[TrialRecord], size: int, *, first: set[str]) -> list[TrialRecord]:
    """Choose the best trial, and others evenly over the study."""
    if size < 1:
        raise SettingsError(f"--sample {size}: expected a whole number of 1 or more")
    best = [record for record in records if record.run_id in first][:1]
    others = [record for record in records if record not in best]
    n_others = max(0, min(size - len(best), len(others)))
    chosen = [*best, *(others[index * len(others) // n_others] for index in range(n_others))]
    return sorted(chosen, key=lambda record: record.number)


def _can_be_replayed(record: TrialRecord) -> bool:
    return record.state in (TrialState.COMPLETED, TrialState.PRUNED)


def _refuse_impossible(existing: ExistingStudy, target: ReplayTarget) -> None:
    record = target.record
    if not _can_be_replayed(record):
        remedy = "; retry runs it once more" if record.state is TrialState.FAILED else ""
        raise StudyError(
            f"trial {record.run_id} is {record.state}, and only completed and pruned trials have "
            f"results to compare with{remedy}"
        )
    if not target.original.exists():
        raise NotebookError(
            f"{display_path(target.original)}: the executed notebook of trial {record.run_id} is "
            "gone, and with it what a replay would be compared with"
        )
    if target.replay.exists():
        owner = (read_metadata(target.replay) or {}).get("study_id")
        if owner != existing.study.study_id:
            raise OutputError(
                f"{display_path(target.replay)}: is in the way, and no replay of this study has "
                "written it; move it"
            )
