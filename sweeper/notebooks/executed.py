"""The executed notebook of a trial: its file, with the metadata that state how the trial is."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from ..files import write_atomically
from ..notebook_api.checkpoints import checkpoint_files
from ..trials import ScoreRank, TrialOutcome, TrialSpec, TrialState
from .metadata import BLANK, TrialMetadata, as_json, metadata_of, put_metadata, read_metadata
from .reading import read_notebook
from .recorded_points import RecordedPoints


class ExecutedNotebook:
    """The file of one trial while it runs, valid and up to date at every moment.

    Attributes:
        node: Notebook, which the engine shares to fill in the outputs.
        path: Path of the file.
        points: Points that the trial has reported so far.
    """

    def __init__(self, node: NotebookNode, spec: TrialSpec) -> None:
        self.node = node
        if "parameters" in (papermill := node.metadata.get("papermill", {})):
            papermill["parameters"] = as_json(papermill["parameters"])
        self.path = spec.notebook
        self._began = _now()
        self._lock, self._write_lock = threading.Lock(), threading.Lock()
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
        earlier = BLANK
        if spec.continues is not None and checkpoint_files(spec.checkpoint_dir):
            earlier = read_metadata(spec.continues) or BLANK
        self.points = RecordedPoints(earlier, code=spec.code)

    @property
    def metadata(self) -> TrialMetadata:
        """What is known of the trial now."""
        with self._lock:
            return self.points.added_to(self._noted)

    def note(self, **changes: Any) -> None:
        """Change fields of the metadata, but for the points."""
        with self._lock:
            self._noted = replace(self._noted, **changes)

    def begin(self) -> None:
        """Note that the trial begins now, with a place on its machine."""
        self._began = _now()
        self.note(started_at=self._began)

    def note_freezing(self, idle_s: float, *, is_frozen: bool) -> None:
        """Note whether the trial is frozen; the time in which it was is not its own.

        Args:
            idle_s: How long the trial has been frozen since it began.
        """
        self.note(
            state=TrialState.FROZEN if is_frozen else TrialState.RUNNING,
            started_at=self._began + datetime.timedelta(seconds=idle_s),
            frozen_at=_now() if is_frozen else None,
        )

    def note_ranks(self, ranks: Mapping[str, ScoreRank]) -> None:
        """Note which source gives each score, as far as is known."""
        with self._lock:
            given_by = {**self._noted.given_by, **ranks}
            self._noted = replace(self._noted, given_by=given_by)

    def finish(self, outcome: TrialOutcome) -> None:
        """Note how the trial has ended."""
        with self._lock:
            ended = self._noted.ended(outcome)
            self._noted = replace(ended, disagreements=outcome.disagreements)

    def write(self) -> None:
        """Write the file atomically; once the trial has ended, as Jupyter formats it."""
        with self._write_lock:
            metadata = self.metadata
            put_metadata(self.node, metadata)
            if metadata.state.has_ended:
                text = nbformat.v4.writes(self.node)
            else:
                # On one line this takes a third of the time, and it is done at each cell's ends.
                text = nbformat.v4.writes(self.node, indent=None, split_lines=False)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, text)


def change_metadata(path: Path, **changes: Any) -> None:
    """Change fields of the metadata in the file of a trial that has ended."""
    node = read_notebook(path)
    put_metadata(node, replace(metadata_of(node) or BLANK, **changes))
    write_atomically(path, nbformat.v4.writes(node))


def mark_ended(path: Path, state: TrialState, message: str) -> None:
    """Set the state in the file of a trial whose process was killed before it could do so."""
    node = read_notebook(path)
    metadata = metadata_of(node) or BLANK
    put_metadata(node, replace(metadata, state=state, message=message))
    for cell in node.cells:
        if cell.metadata.get("papermill", {}).get("status") == "running":
            cell.metadata["papermill"]["status"] = "stopped"
    write_atomically(path, nbformat.writes(node, version=4))


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
