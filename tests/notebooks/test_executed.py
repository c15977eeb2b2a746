"""Test the metadata of an executed notebook, and that its file is valid at every moment."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import nbformat
import pytest

from sweeper.notebook_api.messages import Point, PointSource
from sweeper.notebooks.executed import ExecutedNotebook, mark_ended
from sweeper.notebooks.metadata import TrialMetadata, read_metadata
from sweeper.notebooks.reading import read_notebook
from sweeper.notebooks.research import ResearchNotebook
from sweeper.testing import write_notebook
from sweeper.trials import Reason, TrialOutcome, TrialSpec, TrialState

MakeSpec = Callable[..., TrialSpec]


def strict_json(path: Path) -> Any:
    """Return the content of a JSON file. Fail for NaN, which only Python accepts."""

    def refuse(constant: str) -> NoReturn:
        raise AssertionError(f"{path} contains {constant}, which is not JSON")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


def stored_in(path: Path) -> dict[str, Any]:
    """Return `metadata.sweeper` in a notebook file as the JSON that other programs read."""
    stored: dict[str, Any] = strict_json(path)["metadata"]["sweeper"]
    return stored


@pytest.fixture
def begin(tmp_path: Path, make_spec: MakeSpec) -> Callable[..., ExecutedNotebook]:
    """Return a function that makes an executed notebook from parts of a trial's spec."""
    path = write_notebook(tmp_path / "research.ipynb", "print(x)")

    def begin(
        *, papermill: Any = None, earlier: TrialMetadata | None = None, **stated: Any
    ) -> ExecutedNotebook:
        node = ResearchNotebook(path).fresh_copy()
        node.metadata["papermill"] = papermill or {}
        return ExecutedNotebook(node, make_spec(**stated), earlier=earlier)

    return begin


Begin = Callable[..., ExecutedNotebook]


def test_an_executed_notebook_states_its_trial_from_the_start_and_its_outcome_after_the_end(
    begin: Begin,
) -> None:
    file = begin()
    file.write()
    expected: dict[str, Any] = {"study": "digits", "study_id": "d1g175", "run_id": "0007"}
    expected |= {"params": {"lr": 0.1}, "seed": 123, "attempt": 1}
    assert stored_in(file.path).items() >= {**expected, "state": "running"}.items()
    outcome = TrialOutcome(
        state=TrialState.FAILED,
        scores={"val_acc": 0.5},
        reason=Reason.CELL_ERROR,
        message="ZeroDivisionError",
        duration_s=1.23456,
    )
    file.finish(outcome)
    file.write()
    expected |= {"state": "failed", "reason": "cell_error", "message": "ZeroDivisionError"}
    expected |= {"scores": {"val_acc": 0.5}, "duration_s": 1.235}
    assert stored_in(file.path).items() >= expected.items()


def test_the_second_run_of_a_trial_keeps_series_of_the_first_only_if_there_is_a_checkpoint(
    begin: Begin, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoints"
    first = begin(checkpoint_dir=folder)
    for step in range(2):
        first.points.record(Point(step=step, metrics={"loss": 1.0}))
    anew = begin(checkpoint_dir=folder, earlier=first.metadata)
    folder.mkdir()
    (folder / "000001.ckpt").touch()
    resumed = begin(checkpoint_dir=folder, earlier=first.metadata)
    for second in (anew, resumed):
        second.points.record(Point(step=2, metrics={"loss": 0.5}))
    assert list(anew.metadata.series["loss"].steps) == [2]
    assert list(resumed.metadata.series["loss"].steps) == [0, 1, 2]


def test_numbers_that_are_not_finite_are_written_to_an_executed_notebook_as_valid_json(
    begin: Begin,
) -> None:
    fixed = {"clip": math.inf, "bounds": [0.0, math.nan], "deep": {"a": -math.inf}}
    file = begin(fixed=fixed, papermill={"parameters": fixed})
    file.points.record(Point(step=0, metrics={"loss": math.nan}))
    file.points.record(Point(step=None, metrics={"best": -math.inf}))
    file.finish(TrialOutcome(state=TrialState.FAILED, scores={"loss": math.nan}))
    file.write()
    content = strict_json(file.path)
    metadata = content["metadata"]["sweeper"]
    assert content["metadata"]["papermill"]["parameters"] == metadata["fixed"]
    assert metadata["fixed"] == {"clip": "inf", "bounds": [0.0, "nan"], "deep": {"a": "-inf"}}
    assert metadata["series"] == {"loss": {"steps": [0], "values": ["nan"]}}
    assert metadata["finals"] == {"best": "-inf"}
    assert metadata["scores"] == {"loss": "nan"}


def test_a_reader_always_finds_a_whole_valid_notebook_while_it_is_written(begin: Begin) -> None:
    file = begin()
    file.write()
    states: list[str] = []
    done = threading.Event()

    def keep_writing() -> None:
        for step in range(40):
            file.points.record(Point(step=step, metrics={"loss": 1.0}))
            file.node.cells[1].outputs = [
                nbformat.v4.new_output("stream", text="loss\n" * 200 * step)
            ]
            file.write()
        file.finish(TrialOutcome(state=TrialState.COMPLETED))
        file.write()
        done.set()

    writer = threading.Thread(target=keep_writing)
    writer.start()
    while not done.is_set() or states[-1:] != ["completed"]:
        content = strict_json(file.path)
        states.append(content["metadata"]["sweeper"]["state"])
    writer.join()
    nbformat.validate(read_notebook(file.path))
    assert states[0] == "running"
    assert [entry.name for entry in file.path.parent.iterdir()] == [file.path.name]


def test_the_file_of_a_trial_whose_sweep_was_killed_is_marked_stopped(begin: Begin) -> None:
    file = begin()
    file.node.cells[0].metadata["papermill"] = {"status": "completed"}
    file.node.cells[1].metadata["papermill"] = {"status": "running"}
    file.write()
    mark_ended(file.path, TrialState.STOPPED, "the sweep was killed")
    metadata = read_metadata(file.path)
    assert metadata is not None
    assert (metadata.state, metadata.message) == (TrialState.STOPPED, "the sweep was killed")
    statuses = [cell.metadata["papermill"]["status"] for cell in read_notebook(file.path).cells]
    assert statuses == ["completed", "stopped"]


def test_the_reason_worker_lost_replaces_an_earlier_reason_in_the_notebook_of_a_lost_trial(
    begin: Begin,
) -> None:
    file = begin()
    file.finish(TrialOutcome(state=TrialState.STOPPED, reason=Reason.FILE, message="full"))
    file.write()
    for reason, stated in ((None, Reason.FILE), (Reason.WORKER_LOST, Reason.WORKER_LOST)):
        mark_ended(file.path, TrialState.STOPPED, "its worker is lost", reason=reason)
        metadata = read_metadata(file.path)
        assert metadata is not None and metadata.reason is stated


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"metadata": {}}', '{"metadata": {"sweeper": 3}}', "\ud7ff{"]
)
def test_a_file_that_no_sweep_has_written_has_no_metadata(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.ipynb"
    path.write_text(content, encoding="utf-8")
    assert read_metadata(path) is None
    assert read_metadata(tmp_path / "nowhere.ipynb") is None


@pytest.mark.parametrize(
    ("checkpoint", "code", "kept"),
    [
        ("000001.ckpt", "1", {"a": [0, 1], "b": [0, 1]}),
        # Changed code may give `a` in another way, so its earlier points are dropped.
        ("000001.ckpt", "2", {"b": [0, 1]}),
        # A checkpoint that a library has written counts too.
        ("lightning/last.ckpt", "1", {"a": [0, 1], "b": [0, 1]}),
        ("000001.ckpt.part", "1", {"b": [1]}),
        ("", "1", {"b": [1]}),
    ],
)
def test_the_series_of_an_earlier_attempt_are_kept_if_its_checkpoint_is_resumed(
    begin: Begin, tmp_path: Path, checkpoint: str, code: str, kept: Any
) -> None:
    earlier = begin(notebook=tmp_path / "earlier.ipynb", code="1")
    for step in range(2):
        earlier.points.record(Point(step=step, metrics={"a": step}))
    earlier.points.record(Point(step=0, metrics={"b": 1}))
    earlier.write()
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    if checkpoint:
        (folder / checkpoint).parent.mkdir(exist_ok=True)
        (folder / checkpoint).touch()
    later = begin(continues=earlier.path, checkpoint_dir=folder, code=code)
    later.points.record(Point(step=1, metrics={"b": 1}))
    series = later.metadata.series
    assert {name: list(points.steps) for name, points in series.items()} == kept


def test_an_attempt_killed_before_its_first_report_keeps_the_points_of_the_previous_attempt(
    begin: Begin, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "000004.ckpt").touch()
    first = begin(notebook=tmp_path / "first.ipynb")
    for step in range(5):
        first.points.record(Point(step=step, metrics={"a": step}, source=PointSource.PRINTED))
    first.write()
    options = {"checkpoint_dir": folder, "code": first.metadata.code}
    second = begin(continues=first.path, notebook=tmp_path / "second.ipynb", **options)
    second.write()
    third = begin(continues=second.path, notebook=tmp_path / "third.ipynb", **options)
    assert third.points.steps_before(PointSource.PRINTED) == {"a": 5}
    third.points.record(Point(step=5, metrics={"a": 5}, source=PointSource.PRINTED))
    assert list(third.metadata.printed["a"].steps) == [*range(6)]
