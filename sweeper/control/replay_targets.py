"""Find the trials that `replay` is to run again, from executed notebooks or from a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import NotebookError, OutputError, SettingsError, StudyError
from ..notebooks.metadata import read_metadata
from ..trials import InputFile, StudyPaths, TrialRecord, TrialState, display_path
from .lookup import ExistingStudy, find_study

_CAN_BE_REPLAYED = (TrialState.COMPLETED, TrialState.PRUNED)
_STORAGE_NAME = "study.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTarget:
    """A trial that is to be run again.

    Attributes:
        metadata: of its executed notebook.
    """

    record: TrialRecord
    metadata: Mapping[str, Any]

    @property
    def replay(self) -> Path:
        """Where the notebook of the replay goes: beside that of the trial."""
        notebook = self.record.notebook
        return notebook.with_name(notebook.stem + ".replay.ipynb")

    def inputs(self, paths: StudyPaths) -> dict[str, InputFile]:
        """What the trial has used of other studies, where its own study keeps it."""
        stored = self.metadata.get("inputs", {})
        files = {name: InputFile.decode(data) for name, data in stored.items()}
        return {
            name: replace(file, path=paths.input(file.sha256, file.artifact))
            for name, file in files.items()
        }


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
        words: executed notebooks of one study, which stand for their trials; or a study and run
            ids.
        storage: the Optuna storage, where the study is in none of the folders above.
        tracking_uri: MLflow with its password, which no study stores.
        takes_all: all trials of the study that ended by themselves or by the pruner.
        sample: only so many of these, evenly spread over the study.

    Raises:
        SettingsError: the words contradict each other.
        StudyError: there is no such study or trial, or it cannot be replayed.
        NotebookError: a notebook is none that a sweep has executed.
        OutputError: another file is where the notebook of a replay goes.
    """
    notebooks = [Path(word) for word in words if word.endswith(".ipynb")]
    if notebooks and len(notebooks) < len(words):
        raise SettingsError("replay takes executed notebooks, or a study with run ids; not both")
    if notebooks:
        existing, run_ids = _study_of(notebooks, storage, tracking_uri)
    else:
        wanted, run_ids = words[0] if words else None, list(words[1:])
        existing = find_study(wanted, storage=storage, tracking_uri=tracking_uri)
    if bool(run_ids) + takes_all + (sample is not None) != 1:
        raise SettingsError(
            f"which trials of {existing.study.name!r} to replay? Give run ids, --all, or "
            "--sample N; or executed notebooks alone"
        )
    if run_ids:
        records = [existing.record(run_id) for run_id in dict.fromkeys(run_ids)]
    else:
        records = [it for it in existing.study.records() if it.state in _CAN_BE_REPLAYED]
        if not records:
            raise StudyError(f"the study {existing.study.name!r} has no trial that has completed")
    if sample is not None:
        if sample < 1:
            raise SettingsError(f"--sample {sample}: expected a whole number of 1 or more")
        n = min(sample, len(records))
        records = [records[index * len(records) // n] for index in range(n)]
    return existing, [_target(existing, record) for record in records]


def _study_of(
    notebooks: Sequence[Path], storage: str | None, tracking_uri: str | None
) -> tuple[ExistingStudy, list[str]]:
    """The one study of some executed notebooks, and the run ids of their trials."""
    written = {notebook: read_metadata(notebook) or {} for notebook in notebooks}
    for notebook, metadata in written.items():
        if "study_id" not in metadata:
            raise NotebookError(
                f"{notebook}: there is no notebook that a sweep has executed; give the executed "
                "notebook of a trial, as in: replay out/digits.0007.ipynb"
            )
    first = notebooks[0]
    wanted = str(written[first]["study"])
    if storage is None:
        folders = (folder / wanted for folder in first.absolute().parents)
        folder = next((it for it in folders if (it / _STORAGE_NAME).is_file()), None)
        if folder is None:
            raise StudyError(
                f"{first}: its study {wanted!r} is in no folder above it; give its storage with "
                "--storage"
            )
        wanted = str(folder)
    existing = find_study(wanted, storage=storage, tracking_uri=tracking_uri)
    for notebook, metadata in written.items():
        if metadata["study_id"] != existing.study.study_id:
            raise StudyError(
                f"{notebook}: it was written by another study than the one in "
                f"{existing.storage_url}; replay one study at a time, and give the right one with "
                "--storage"
            )
    return existing, [str(metadata["run_id"]) for metadata in written.values()]


def _target(existing: ExistingStudy, record: TrialRecord) -> ReplayTarget:
    """A trial with what its notebook says, after a look whether it can be run again."""
    if record.state not in _CAN_BE_REPLAYED:
        remedy = "; retry runs it once more" if record.state is TrialState.FAILED else ""
        raise StudyError(
            f"trial {record.run_id} is {record.state}, and only completed and pruned trials have "
            f"results to compare with{remedy}"
        )
    metadata = read_metadata(record.notebook)
    if metadata is None:
        raise NotebookError(
            f"{display_path(record.notebook)}: the executed notebook of trial {record.run_id} is "
            "gone, and with it what a replay would be compared with"
        )
    target = ReplayTarget(record=record, metadata=metadata)
    earlier = read_metadata(target.replay) or {}
    if target.replay.exists() and earlier.get("study_id") != existing.study.study_id:
        raise OutputError(
            f"{display_path(target.replay)}: is in the way, and no replay of this study has "
            "written it; move it"
        )
    return target
