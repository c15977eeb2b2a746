"""Keep the code of a sweep as it was when the sweep began, and run it in all trials.

The code is read once. Later edits of the notebook or its modules do not reach the trials.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ..errors import NotebookError
from ..notebooks.local_code import read_code
from ..notebooks.research import ResearchNotebook
from ..settings import Settings
from ..study_folder.snapshots import CodeSnapshot


def snapshot_of(
    notebook: ResearchNotebook, settings: Settings, code: Mapping[Path, bytes]
) -> CodeSnapshot:
    """Return the snapshot of the code that a sweep has read.

    Args:
        notebook: The research notebook.
        settings: Settings of the sweep. The snapshot contains them as a parameters file.
        code: Contents of the local modules by path, as `notebooks.local_code` read
            them.
    """
    folder = notebook.path.parent.resolve()
    return CodeSnapshot(
        folder=str(folder),
        notebook_name=notebook.path.name,
        notebook=notebook.text,
        parameters_name="" if settings.file is None else settings.file.name,
        parameters=settings.to_yaml(),
        files={
            Path(os.path.relpath(path, folder)).as_posix(): content.decode(
                "utf-8", "surrogateescape"
            )
            for path, content in sorted(code.items())
        },
    )


def changed_meanwhile(snapshot: CodeSnapshot, notebook: ResearchNotebook) -> list[str]:
    """Return a list with one remark, which names the code files that changed during the sweep.

    The list is empty if no file has changed.

    Args:
        snapshot: Code that the trials ran.
        notebook: The research notebook as it was read when the sweep began.
    """
    try:
        is_same = ResearchNotebook(notebook.path).code == notebook.code
    except NotebookError:
        is_same = False
    changed = [] if is_same else [notebook.display_name]
    for path, source in snapshot.files.items():
        if read_code(Path(snapshot.folder, path)) != source.encode("utf-8", "surrogateescape"):
            changed.append(path)
    if not changed:
        return []
    return [
        f"{', '.join(changed)} changed while the sweep ran: trials ran the code as it was at the "
        "start, but files that they read themselves were the new ones"
    ]
