"""The executed notebook of one trial, from its first moment on, and what it says of the trial."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from ..files import write_atomically
from ..notebook_api.messages import Point, PointSource, encode_float
from ..trials import TrialOutcome, TrialSpec, TrialState
from .reading import METADATA, read_notebook


class ExecutedNotebook:
    """The file of one trial, from its first moment on: valid and true whenever one looks.

    `node` is shared with the engine, which fills in the outputs.
    """

    def __init__(self, node: NotebookNode, spec: TrialSpec, *, started_at: str) -> None:
        self.node = node
        if "parameters" in (papermills := node.metadata.get("papermill", {})):
            papermills["parameters"] = _as_json(papermills["parameters"])
        self.path = spec.notebook
        self._lock = threading.Lock()
        self.metadata: dict[str, Any] = {
            "study": spec.study,
            "study_id": spec.study_id,
            "run_id": spec.run_id,
            "state": str(TrialState.RUNNING),
            "params": _as_json(spec.params),
            "fixed": _as_json(spec.fixed),
            "seed": spec.seed,
            "attempt": spec.attempt,
            "code": spec.code,
            "scores": {},
            "started_at": started_at,
            "series": {},
            "printed": {},
            "finals": {},
            "variables": {},
        }
        earlier = None if spec.continues is None else read_metadata(spec.continues)
        #: A trial that goes on from a checkpoint says nothing of the steps before it.
        self._earlier: dict[str, Any] = dict((earlier or {}).get("series", {}))

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

    def keep_earlier_series(self) -> None:
        """Take over what this try had no need to say again."""
        for name in self._earlier.keys() - self.metadata["series"].keys():
            self.metadata["series"][name] = self._earlier[name]

    def _earlier_points(self, name: str, step: int) -> list[tuple[int, float | str]]:
        """What an earlier try reported before a step."""
        series = self._earlier.get(name, {"steps": [], "values": []})
        points = zip(series["steps"], series["values"], strict=True)
        return [(s, value) for s, value in points if s < step]

    def finish(self, outcome: TrialOutcome) -> None:
        """State how the trial ended."""
        self.metadata["state"] = str(outcome.state)
        self.metadata["scores"] = {k: encode_float(v) for k, v in outcome.scores.items()}
        self.metadata["duration_s"] = round(outcome.duration_s, 3)
        if outcome.reason is not None:
            self.metadata["reason"] = str(outcome.reason)
            self.metadata["message"] = outcome.message

    def write(self) -> None:
        """Write the file beside its place and rename it into it."""
        with self._lock:
            self.node.metadata[METADATA] = self.metadata
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, nbformat.writes(self.node, version=4))


def _as_json(value: Any) -> Any:
    """A parameter's value as JSON can carry it, however deep a NaN or an infinity sits."""
    if isinstance(value, float):
        return encode_float(value)
    if isinstance(value, Mapping):
        return {key: _as_json(inner) for key, inner in value.items()}
    return [_as_json(inner) for inner in value] if isinstance(value, list | tuple) else value


def read_metadata(path: Path) -> Mapping[str, Any] | None:
    """What an executed notebook says of its trial; None when we did not write the file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        metadata = data["metadata"][METADATA]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return metadata if isinstance(metadata, Mapping) else None


def read_executed(path: Path) -> NotebookNode:
    """Read an executed notebook, to scrape it again.

    Raises:
        NotebookError: the file is missing or is no notebook.
    """
    return read_notebook(path, str(path))


def mark_stopped(path: Path, message: str) -> None:
    """Correct the state in the file of a trial whose sweep was killed under it."""
    node = read_notebook(path, str(path))
    node.metadata[METADATA].update(state=str(TrialState.STOPPED), message=message)
    for cell in node.cells:
        if cell.metadata.get("papermill", {}).get("status") == "running":
            cell.metadata["papermill"]["status"] = "stopped"
    write_atomically(path, nbformat.writes(node, version=4))
