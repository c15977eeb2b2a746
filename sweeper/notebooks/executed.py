"""The executed notebook of a trial: its file and the metadata that states the trial's state.

It writes the points of `metadata.sweeper`, which `scores` reads; what the kernel and the trial have
come to is added by its worker.
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from ..files import write_atomically
from ..notebook_api.checkpoints import checkpoint_files
from ..notebook_api.messages import Point, PointSource, encode_float
from ..trials import ScoreRank, TrialOutcome, TrialSpec, TrialState
from .metadata import BLANK, METADATA, as_json, read_metadata
from .reading import read_notebook

#: By source, the section of the metadata with its series; what is displayed stays in the outputs.
SECTIONS = {
    PointSource.REPORTED: "series",
    PointSource.PRINTED: "printed",
    PointSource.OBSERVED: "logged",
    PointSource.LOGGED: "logged",
}


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
            **{section: {} for section in SECTIONS.values()},
            "finals": {},
            "variables": {},
        }
        if spec.proposal:
            self.metadata["proposal"] = dict(spec.proposal)
        if spec.inputs:
            self.metadata["inputs"] = {name: it.encode() for name, it in spec.inputs.items()}
        earlier = BLANK
        if spec.continues is not None and checkpoint_files(spec.checkpoint_dir):
            earlier = read_metadata(spec.continues) or BLANK
        stored = earlier.encode()
        #: A trial that continues from a checkpoint does not report the steps before it again.
        self._earlier: dict[str, dict[str, Any]] = {
            section: stored[section] for section in SECTIONS.values()
        }
        self._is_same_code = earlier.code == spec.code

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

        Each source has series of its own, so that none stands in for another one. A displayed point
        is left to the outputs: scores that a notebook clears there do not count.
        """
        if point.source is PointSource.DISPLAYED:
            return
        section = SECTIONS[point.source]
        for name, value in point.metrics.items():
            if point.step is None:
                self.metadata["finals"][name] = encode_float(value)
                continue
            series = self._begun(section, name, point.step)
            series["steps"].append(point.step)
            series["values"].append(encode_float(value))
            if point.library:
                series["library"] = point.library
        for name, text in point.unread.items():
            series = self._begun(section, name, point.step or 0)
            series["unread"] = {"step": point.step, "text": text}
        for name in point.too_slow:
            self._begun(section, name, point.step or 0)["too_slow"] = True

    def note_ranks(self, ranks: Mapping[str, ScoreRank]) -> None:
        """Note which source gives each score, as far as is known."""
        known = {name: rank.name for name, rank in ranks.items()}
        self.metadata["given_by"] = {**self.metadata.get("given_by", {}), **known}

    def keep_earlier_series(self) -> None:
        """Copy the series of an earlier attempt that this one, of the same code, did not report."""
        if self._is_same_code:  # other code may give these scores in another way, or not at all
            for section, earlier in self._earlier.items():
                self.metadata[section] = {**earlier, **self.metadata[section]}

    def steps_before(self, source: PointSource) -> dict[str, int]:
        """Count the steps of each series that an earlier attempt has, where steps are positions."""
        earlier = self._earlier[SECTIONS[source]]
        unread = {name: series.get("unread", {"step": -1}) for name, series in earlier.items()}
        return {
            name: 1 + max([*series["steps"], unread[name]["step"]])
            for name, series in earlier.items()
        }

    def _begun(self, section: str, name: str, step: int) -> dict[str, Any]:
        """Find a series; a new one begins with what an earlier attempt has before a step."""
        kept: dict[str, dict[str, Any]] = self.metadata[section]
        if name not in kept:
            earlier = self._earlier[section].get(name, {"steps": [], "values": []})
            points = zip(earlier["steps"], earlier["values"], strict=True)
            before = [(s, value) for s, value in points if s < step]
            kept[name] = {"steps": [s for s, _ in before], "values": [v for _, v in before]}
            if earlier.get("unread", {"step": step})["step"] < step:
                kept[name]["unread"] = earlier["unread"]
        return kept[name]

    def finish(self, outcome: TrialOutcome) -> None:
        """Put the trial's outcome into the metadata."""
        self.metadata["state"] = str(outcome.state)
        self.metadata["scores"] = {k: encode_float(v) for k, v in outcome.scores.items()}
        self.metadata["duration_s"] = round(outcome.duration_s, 3)
        if outcome.disagreements:
            found = [as_json(asdict(it)) for it in outcome.disagreements]
            self.metadata["disagreements"] = found
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
