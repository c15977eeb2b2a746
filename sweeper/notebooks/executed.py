"""The executed notebook of a trial: its file and the metadata that states the trial's state.

It writes the points of `metadata.sweeper`, which `scores` reads; what the kernel and the trial have
come to is added by its worker.
"""

from __future__ import annotations

import datetime
import threading
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from ..files import write_atomically
from ..notebook_api.checkpoints import checkpoint_files
from ..notebook_api.messages import Point, PointSource, encode_float
from ..trials import TrialOutcome, TrialSpec, TrialState
from .metadata import METADATA, as_json, read_metadata
from .reading import read_notebook


class ExecutedNotebook:
    """The file of one trial while it runs, valid and up to date at every moment.

    Attributes:
        node: the notebook, which the engine shares to fill in the outputs.
        path: the file.
        metadata: the content of `metadata.sweeper`, in the form in which it is stored.
    """

    def __init__(self, node: NotebookNode, spec: TrialSpec) -> None:
        self.node = node
        if "parameters" in (papermill := node.metadata.get("papermill", {})):
            papermill["parameters"] = as_json(papermill["parameters"])
        self.path = spec.notebook
        self._began = _now()
        self._lock = threading.Lock()
        self.metadata: dict[str, Any] = {
            "study": spec.study,
            "study_id": spec.study_id,
            "run_id": spec.run_id,
            "state": str(TrialState.RUNNING),
            "params": as_json(spec.params),
            "fixed": as_json(spec.fixed),
            "seed": spec.seed,
            "attempt": spec.attempt,
            "code": spec.code,
            "scores": {},
            "started_at": _stamp(self._began),
            "series": {},
            "printed": {},
            "finals": {},
            "variables": {},
        }
        if spec.inputs:
            self.metadata["inputs"] = {name: it.encode() for name, it in spec.inputs.items()}
        earlier = None
        if spec.continues is not None and checkpoint_files(spec.checkpoint_dir):
            earlier = read_metadata(spec.continues)
        #: A trial that continues from a checkpoint does not report the steps before it again.
        self._earlier: dict[str, Any] = dict((earlier or {}).get("series", {}))
        self._is_same_code = (earlier or {}).get("code") == spec.code

    def begin(self) -> None:
        """Note that the trial begins now, with a place on its machine."""
        self._began = _now()
        self.metadata["started_at"] = _stamp(self._began)

    def note_freezing(self, idle_s: float, *, is_frozen: bool) -> None:
        """Note whether the trial is frozen; the time in which it was is not its own.

        Args:
            idle_s: how long it has been frozen since it began.
        """
        self.metadata["state"] = str(TrialState.FROZEN if is_frozen else TrialState.RUNNING)
        self.metadata["started_at"] = _stamp(self._began + datetime.timedelta(seconds=idle_s))
        self.metadata.pop("frozen_at", None)
        if is_frozen:
            self.metadata["frozen_at"] = _stamp(_now())

    def record(self, point: Point) -> None:
        """Keep a point in the metadata, where no notebook clears it as it may clear outputs.

        A displayed point is left to the outputs: scores that a notebook clears there do not count.
        """
        if point.source is PointSource.DISPLAYED:
            return
        printed = point.source is PointSource.PRINTED
        kept = self.metadata["printed" if printed else "series"]
        for name, value in point.metrics.items():
            if point.step is None:
                self.metadata["finals"][name] = encode_float(value)
                continue
            if name not in kept:
                before = [] if printed else self._earlier_points(name, point.step)
                kept[name] = {"steps": [s for s, _ in before], "values": [v for _, v in before]}
            series = kept[name]
            series["steps"].append(point.step)
            series["values"].append(encode_float(value))
        for name, text in point.unread.items():
            series = kept.setdefault(name, {"steps": [], "values": []})
            series["unread"] = {"step": point.step, "text": text}

    def keep_earlier_series(self) -> None:
        """Copy the series of an earlier attempt that this one, of the same code, did not report."""
        if self._is_same_code:  # other code may give these scores in another way, or not at all
            self.metadata["series"] = {**self._earlier, **self.metadata["series"]}

    def _earlier_points(self, name: str, step: int) -> list[tuple[int, float | str]]:
        """List what an earlier attempt reported of a series before a step."""
        series = self._earlier.get(name, {"steps": [], "values": []})
        points = zip(series["steps"], series["values"], strict=True)
        return [(s, value) for s, value in points if s < step]

    def finish(self, outcome: TrialOutcome) -> None:
        """Put the trial's outcome into the metadata."""
        self.metadata["state"] = str(outcome.state)
        self.metadata["scores"] = {k: encode_float(v) for k, v in outcome.scores.items()}
        self.metadata["duration_s"] = round(outcome.duration_s, 3)
        if outcome.reason is not None:
            self.metadata["reason"] = str(outcome.reason)
            self.metadata["message"] = outcome.message
        if outcome.is_infeasible:
            self.metadata["is_infeasible"] = True
        if outcome.not_replicable:
            self.metadata["not_replicable"] = list(outcome.not_replicable)

    def write(self) -> None:
        """Write the file atomically; once the trial has ended, as Jupyter formats it."""
        with self._lock:
            self.node.metadata[METADATA] = self.metadata
            if not TrialState(self.metadata["state"]).has_ended:
                # On one line this takes a third of the time, and it is done at each cell's ends.
                text = nbformat.v4.writes(self.node, indent=None, split_lines=False)
            else:
                text = nbformat.v4.writes(self.node)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, text)


def mark_ended(path: Path, state: TrialState, message: str) -> None:
    """Set the state in the file of a trial whose process was killed before it could do so."""
    node = read_notebook(path)
    node.metadata[METADATA].update(state=str(state), message=message)
    for cell in node.cells:
        if cell.metadata.get("papermill", {}).get("status") == "running":
            cell.metadata["papermill"]["status"] = "stopped"
    write_atomically(path, nbformat.writes(node, version=4))


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _stamp(moment: datetime.datetime) -> str:
    return moment.isoformat(timespec="milliseconds")
