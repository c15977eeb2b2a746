"""The code that all trials of a sweep run: read once when it begins, whatever is edited later."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ..errors import NotebookError
from ..notebooks import ResearchNotebook
from ..settings import Settings
from ..study_folder.snapshots import CodeSnapshot

#: The most files that a message names.
_MOST_NAMES = 4


def snapshot_of(
    notebook: ResearchNotebook, settings: Settings, code: Mapping[Path, bytes]
) -> CodeSnapshot:
    """Make the snapshot of what a sweep has read.

    Args:
        code: what `local_code` of `notebooks.fingerprint` has read.
    """
    folder = notebook.path.parent.resolve()
    text = ""
    if settings.file is not None:
        with suppress(OSError):  # it was read a moment ago, and may have been a pipe
            text = settings.file.read_text("utf-8", "replace")
    return CodeSnapshot(
        folder=str(folder),
        notebook_name=notebook.path.name,
        notebook=notebook.text,
        parameters_name=settings.file.name if text and settings.file is not None else "",
        parameters=text,
        files={
            Path(os.path.relpath(path, folder)).as_posix(): content.decode(
                "utf-8", "surrogateescape"
            )
            for path, content in sorted(code.items())
        },
    )


def changed_meanwhile(
    snapshot: CodeSnapshot, notebook: ResearchNotebook, *, is_frozen: bool
) -> list[str]:
    """What users should know of code that was changed while a sweep ran, one sentence each.

    Args:
        is_frozen: whether kernels have imported modules from the snapshot.
    """
    kept: list[str] = []
    followed: list[str] = []
    try:
        is_same = ResearchNotebook(notebook.path).code == notebook.code
    except NotebookError:
        is_same = False
    if not is_same:
        kept.append(notebook.display_name)
    for path, source in snapshot.files.items():
        try:
            is_same = Path(snapshot.folder, path).read_bytes() == source.encode(
                "utf-8", "surrogateescape"
            )
        except OSError:
            is_same = False
        if not is_same:
            # A notebook that a cell runs (`%run other.ipynb`) is read from disk each time.
            (kept if is_frozen and path.endswith(".py") else followed).append(path)
    found = []
    if kept:
        found.append(
            f"{_listed(kept)} changed while the sweep ran, and its trials used the code of its "
            "start; the study goes on with the code of now only with --allow-changes"
        )
    if followed:
        found.append(
            f"{_listed(followed)} changed while the sweep ran, and trials that began later used "
            "the code of then: they cannot be compared with earlier ones"
        )
    return found


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
