"""Write the notebook and the modules of a trial as the trial had them."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import OutputError, StudyError, first_line
from ..notebooks.metadata import read_metadata
from ..study_folder.snapshots import read_snapshot
from ..trials import display_path
from .lookup import ExistingStudy

#: Where a trial ran, beside its code.
_ENVIRONMENT = "environment.json"


def write_code(existing: ExistingStudy, run_id: str) -> Path:
    """Write what a trial ran into `code/RUN_ID` of the study's folder, as the files lay.

    Beside the notebook and its modules: the parameters file, and `environment.json` with where the
    trial ran.

    Returns:
        the path of the notebook.

    Raises:
        StudyError: there is no such trial, or its code was not kept.
        OutputError: a file cannot be written, or would replace another one.
    """
    executed = existing.record(run_id).notebook
    metadata = read_metadata(executed) or {}
    if "snapshot" not in metadata:
        raise StudyError(
            f"trial {run_id}: {display_path(executed)}, which names its code, is missing or not an "
            "executed notebook; choose a trial that has one"
        )
    snapshot = read_snapshot(existing.paths, metadata["snapshot"])
    folder = existing.paths.code / run_id
    contents = {snapshot.notebook_path: snapshot.notebook.encode() + b"\n"}
    for path, source in snapshot.frozen_in(snapshot.folder).items():
        contents[path] = source.encode("utf-8", "surrogateescape")
    # Modules outside of the notebook's folder keep their places to it.
    above = os.path.commonpath([os.path.dirname(path) for path in contents])
    files = {folder / os.path.relpath(path, above): data for path, data in contents.items()}
    notebook = folder / os.path.relpath(snapshot.notebook_path, above)
    if snapshot.parameters_name:
        beside = notebook.with_name(snapshot.parameters_name)
        files.setdefault(beside, snapshot.parameters.encode())
    environment = existing.paths.environment(metadata.get("environment", ""))
    if environment.exists():
        files.setdefault(folder / _ENVIRONMENT, environment.read_bytes())
    for file, data in files.items():
        try:
            if file.exists() and file.read_bytes() != data:
                raise OutputError(
                    f"--code {run_id}: {display_path(file)} is there, and differs from what would "
                    "be written; move it away"
                )
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        except OSError as error:
            raise OutputError(
                f"--code {run_id}: {file} cannot be written: {first_line(error)}"
            ) from error
    return notebook
