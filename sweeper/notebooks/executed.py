"""The executed notebook of a trial. The metadata in its file state the trial's progress and end."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from ..files import files_below, write_atomically
from ..trials import Reason, ScoreRank, TrialOutcome, TrialSpec, TrialState
from .metadata import BLANK, TrialMetadata, as_json, metadata_of, put_metadata, read_metadata
from .reading import read_notebook
from .recorded_points import RecordedPoints
from .state_cell import with_state


class ExecutedNotebook:
    """The executed notebook of one running trial. Its file is a valid notebook at every moment.

    Changes of the metadata are kept in memory until `write` writes the file.

    Attributes:
        node: Notebook in memory. The engine that runs the cells writes the outputs into it.
        path: Path of the notebook's file.
        points: Points (values of scores at a step) that the trial has reported so far.

    Args:
        node: Copy of the research notebook with the trial's params.
        spec: The attempt at the trial: its params, and the paths of its files.
        earlier: Metadata of an earlier run of this attempt, if this run resumes from the checkpoint
            of that run. `points` includes the earlier points that this run does not report again
            (see `RecordedPoints`). Default: the metadata of the earlier attempt that
            `spec.continues` names, if any. Both are ignored if the trial has no checkpoint files,
            because it then starts from scratch.
    """

    def __init__(
        self, node: NotebookNode, spec: TrialSpec, *, earlier: TrialMetadata | None = None
    ) -> None:
        self.node = node
        papermill = node.metadata.get("papermill", {})
        if "parameters" in papermill:
            papermill["parameters"] = as_json(papermill["parameters"])
        self.path = spec.notebook
        self._began = _now()
        self._lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._noted = replace(
            BLANK,
            study=spec.study,
            study_id=spec.study_id,
            run_id=spec.run_id,
            params=spec.params,
            fixed=spec.fixed,
            seed=spec.seed,
            attempt=spec.attempt,
            code=spec.code,
            started_at=self._began,
            proposal=spec.proposal,
            inputs=spec.inputs,
        )
        if not files_below(spec.checkpoint_dir):
            earlier = None
        elif earlier is None and spec.continues is not None:
            earlier = read_metadata(spec.continues)
        self.points = RecordedPoints(earlier or BLANK, code=spec.code)

    @property
    def metadata(self) -> TrialMetadata:
        """The metadata of the trial at this moment."""
        with self._lock:
            return self.points.added_to(self._noted)

    def note(self, **changes: Any) -> None:
        """Change fields of the metadata, except the points, which `points` collects."""
        with self._lock:
            self._noted = replace(self._noted, **changes)

    def begin(self) -> None:
        """Record that the trial begins now, because its memory and GPU are reserved.

        The time before counts as waiting, not towards the trial's duration.
        """
        self._began = _now()
        self.note(started_at=self._began)

    def note_freezing(self, idle_s: float, *, is_frozen: bool) -> None:
        """Record that the trial was frozen (paused so that another trial can run) or thawed.

        The time for which a trial is frozen does not count towards its duration.

        Args:
            idle_s: Seconds for which the trial has been frozen since it began.
            is_frozen: Whether the trial is frozen now.
        """
        self.note(
            state=TrialState.FROZEN if is_frozen else TrialState.RUNNING,
            started_at=self._began + datetime.timedelta(seconds=idle_s),
            frozen_at=_now() if is_frozen else None,
        )

    def note_ranks(self, ranks: Mapping[str, ScoreRank]) -> None:
        """Record which source gives each score, such as a report or a variable.

        Scores that are missing in `ranks` keep the source that was recorded before.
        """
        with self._lock:
            given_by = {**self._noted.given_by, **ranks}
            self._noted = replace(self._noted, given_by=given_by)

    def finish(self, outcome: TrialOutcome) -> None:
        """Record in the metadata how the trial has ended. `write` writes it into the file."""
        with self._lock:
            ended = self._noted.ended(outcome)
            self._noted = replace(ended, disagreements=outcome.disagreements)

    def write(self) -> None:
        """Write the file atomically.

        After the trial's end, the file has the layout that Jupyter writes.
        """
        with self._write_lock:
            metadata = self.metadata
            if metadata.state.has_ended:
                text = _text_of(self.node, metadata)
            else:
                # A running trial's file is written whenever a cell starts or ends. One long line
                # takes a third of the time that indented lines take.
                text = _text_of(self.node, metadata, indent=None, split_lines=False)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, text)


def mark_ended(
    path: Path, state: TrialState, message: str, *, reason: Reason | None = None
) -> None:
    """Set the final state in the executed notebook of a trial whose process was killed.

    A killed process cannot do this itself.

    Args:
        path: File of the executed notebook.
        state: Final state of the trial.
        message: Why the trial ended, for people.
        reason: Why the trial ended, for programs. Default: the reason that the notebook states.
    """
    node = read_notebook(path)
    metadata = metadata_of(node) or BLANK
    metadata = replace(metadata, state=state, message=message, reason=reason or metadata.reason)
    for cell in node.cells:
        if cell.metadata.get("papermill", {}).get("status") == "running":
            cell.metadata["papermill"]["status"] = "stopped"
    write_atomically(path, _text_of(node, metadata))


def _text_of(node: NotebookNode, metadata: TrialMetadata, **layout: Any) -> str:
    """Return the text of a notebook's file, with the metadata and a first cell that shows them.

    Args:
        node: Executed notebook. The metadata are also written into it.
        metadata: Metadata of its trial.
        layout: Options of `nbformat.v4.writes`, such as `indent`. Default: Jupyter's layout.
    """
    put_metadata(node, metadata)
    text: str = nbformat.v4.writes(with_state(node, metadata), **layout)
    return text


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
