"""Test the files of a study's comparison page."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from studies import note_in, small_settings, study_of_page, trial_record

from sweeper.page import Page, shown_surfaces
from sweeper.testing import write_notebook
from sweeper.trials import Importance, TrialRecord, TrialState

SPACE = {
    "x": {"low": 1e-4, "high": 1.0, "log": True},
    "depth": {"low": 1, "high": 9, "when": {"kind": "tree"}},
    "kind": ["tree", "line"],
    "layers": {"choices": [[32], [64, 64]]},
    "scale": [True, False],
    "decay": {"choices": [None, 1.0, 1e-5]},
}


def record(number: int, folder: Path, **more: Any) -> TrialRecord:
    params = {"x": 0.5, "kind": "line", "layers": [32], "scale": True, "decay": None}
    notebook = folder / f"{number:04d}.ipynb"
    return trial_record(number, params=params, notebook=notebook, **more)


def write(folder: Path, *records: TrialRecord, is_running: bool = False) -> None:
    """Write the page of a study with these trials."""
    best = [r for r in records if r.state is TrialState.COMPLETED][:1]
    Page(folder / "index.html", folder / "page", folder / "notes.json").write(
        study_of_page("digits", records, best=best),
        small_settings("digits", space=SPACE),
        importances={"val": {"x": Importance(1.0, 1.0, 1.0)}},
        surfaces={"val": [{"params": ["x", "kind"], "interaction": 0.5}]},
        is_running=is_running,
    )


def data(folder: Path, name: str) -> Any:
    """Return the data in a script of the page, which is the argument of its only call."""
    text = (folder / "page" / f"{name}.js").read_text().strip()
    return json.loads(text.removeprefix(f"sweeper.{name}(").removesuffix(");"))


def write_curve(path: Path, points: Sequence[Sequence[float]]) -> None:
    steps, values = zip(*points, strict=True)
    series = {"val": {"steps": steps, "values": values}}
    note_in(write_notebook(path, "val = x"), series=series)


def test_every_file_that_the_page_loads_is_in_the_folder_next_to_the_page(tmp_path: Path) -> None:
    write(tmp_path, record(0, tmp_path))
    html = (tmp_path / "index.html").read_text()
    loaded = [part.partition('"')[0] for part in html.split('="page/')[1:]]
    assert {"echarts.min.js", "study.js", "page.css"} <= set(loaded)
    for name in loaded:
        assert (tmp_path / "page" / name).is_file(), name
    assert "http://" not in html
    assert "https://" not in html
    assert not list(tmp_path.glob("**/*.part"))


def test_the_pages_data_have_an_axis_for_each_param_and_all_trials(tmp_path: Path) -> None:
    records = [
        record(0, tmp_path),
        record(1, tmp_path, state=TrialState.FAILED, scores={"val": float("nan")}, message="oh"),
    ]
    (tmp_path / "page" / "notebooks").mkdir(parents=True)
    records[1].notebook.touch()
    (tmp_path / "page" / "notebooks" / "0001.js").touch()
    write(tmp_path, *records, is_running=True)
    study = data(tmp_path, "study")
    assert study["is_running"]
    assert study["best"] == ["0000"]
    assert study["surfaces"] == {"val": [{"params": ["x", "kind"], "interaction": 0.5}]}
    params = {entry["name"]: entry for entry in study["params"]}
    assert params["x"]["is_log"]
    assert params["depth"]["is_whole"]
    assert params["layers"]["choices"] == ["[32]", "[64, 64]"]
    first, second = study["all"]
    assert first["params"]["x"] == 0.5
    # A value has the same text in a trial, in the list of choices and in messages.
    assert params["scale"]["choices"] == ["True", "False"]
    assert params["decay"]["choices"] == ["None", 1.0, 1e-5]
    for name, value in {"layers": "[32]", "kind": "line", "scale": "True", "decay": "None"}.items():
        assert first["params"][name] == value
        assert value in params[name]["choices"]
    assert [first["has_notebook"], second["has_notebook"]] == [False, True]
    assert second["scores"] == {"val": "nan"}
    assert second["message"] == "oh"


def test_in_the_pages_data_a_trial_ends_when_the_kernel_has_ended_however_long_it_was_frozen(
    tmp_path: Path,
) -> None:
    times: dict[str, Any] = {"started_at_s": 100.0, "duration_s": 50.0}
    records = [
        record(0, tmp_path, **times, ended_at_s=4000.0),
        record(1, tmp_path, **times),
        record(2, tmp_path, started_at_s=100.0, state=TrialState.FROZEN),
    ]
    write(tmp_path, *records, is_running=True)
    ends = [trial.get("ended_at_s") for trial in data(tmp_path, "study")["all"]]
    assert ends == [4000.0, 150.0, None]


def test_a_trials_curve_is_still_on_the_next_page_after_its_notebook_was_removed(
    tmp_path: Path,
) -> None:
    write_curve(tmp_path / "0000.ipynb", [(0, 0.1), (1, 0.2), (1, 0.3)])
    write(tmp_path, record(0, tmp_path))
    assert data(tmp_path, "curves") == {"0000": ["1 0.0", {"val": [[0, 1], [0.1, 0.3]]}]}
    (tmp_path / "0000.ipynb").unlink()
    write_curve(tmp_path / "0001.ipynb", [(0, 0.5)])
    write(tmp_path, record(0, tmp_path), record(1, tmp_path))
    assert data(tmp_path, "curves")["0000"] == ["1 0.0", {"val": [[0, 1], [0.1, 0.3]]}]
    assert data(tmp_path, "curves")["0001"] == ["1 0.0", {"val": [[0], [0.5]]}]


@pytest.mark.parametrize("text", ["", "sweeper.curves({", "sweeper.curves([1]);", "\xff"])
def test_curves_in_a_damaged_file_are_read_again_from_the_notebooks(
    tmp_path: Path, text: str
) -> None:
    write_curve(tmp_path / "0000.ipynb", [(0, 0.1)])
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "curves.js").write_bytes(text.encode("latin-1"))
    write(tmp_path, record(0, tmp_path))
    assert data(tmp_path, "curves") == {"0000": ["1 0.0", {"val": [[0], [0.1]]}]}


def test_the_page_of_a_new_study_shows_no_curve_or_notebook_of_an_old_study_in_its_folder(
    tmp_path: Path,
) -> None:
    write_curve(tmp_path / "0000.ipynb", [(0, 0.1)])
    (tmp_path / "page" / "notebooks").mkdir(parents=True)
    (tmp_path / "page" / "notebooks" / "0000.js").touch()
    write(tmp_path, record(0, tmp_path, started_at_s=1.0))
    assert data(tmp_path, "study")["all"][0]["has_notebook"]
    write_curve(tmp_path / "0000.ipynb", [(0, 0.9)])
    write(tmp_path, record(0, tmp_path, started_at_s=2.0))
    assert data(tmp_path, "curves")["0000"][1] == {"val": [[0], [0.9]]}
    assert not data(tmp_path, "study")["all"][0]["has_notebook"]


def test_a_long_learning_curve_is_thinned_to_about_300_points_with_the_first_and_the_last(
    tmp_path: Path,
) -> None:
    write_curve(tmp_path / "0000.ipynb", [(step, step / 2) for step in range(10_001)])
    write(tmp_path, record(0, tmp_path))
    _, curves = data(tmp_path, "curves")["0000"]
    steps, values = curves["val"]
    assert len(steps) == len(values) <= 301
    assert (steps[0], steps[-1], values[-1]) == (0, 10_000, 5_000.0)


def test_only_the_best_of_many_trials_have_curves(tmp_path: Path) -> None:
    records = [record(n, tmp_path, scores={"val": n / 600}) for n in range(600)]
    records[7] = record(7, tmp_path, scores={}, state=TrialState.FAILED)
    write_curve(tmp_path / "0000.ipynb", [(step, step / 2) for step in range(300)])
    for one in records[1:]:
        one.notebook.hardlink_to(tmp_path / "0000.ipynb")
    write(tmp_path, *records)
    assert sorted(data(tmp_path, "curves")) == [f"{n:04d}" for n in range(100, 600)]
    assert (tmp_path / "page" / "curves.js").stat().st_size < 5_000_000
    records[8] = record(8, tmp_path, scores={"val": 1.0})
    write(tmp_path, *records)
    assert data(tmp_path, "curves").keys() ^ {f"{n:04d}" for n in range(101, 600)} == {"0008"}


def test_the_pages_data_say_whether_torch_is_installed_to_predict_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = ModuleType("torch")
    torch.__spec__ = ModuleSpec("torch", None)
    for has_torch in (True, False):
        monkeypatch.setitem(sys.modules, "torch", torch if has_torch else None)
        write(tmp_path, record(0, tmp_path))
        assert data(tmp_path, "study")["is_predicting"] is has_torch


def test_writing_a_page_fails_and_creates_no_folder_if_the_studys_folder_is_gone(
    tmp_path: Path,
) -> None:
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "gone", record(0, tmp_path))
    assert not (tmp_path / "gone").exists()


def test_predicted_scores_are_reused_only_from_a_complete_page_of_the_same_search_space(
    tmp_path: Path,
) -> None:
    settings = small_settings("digits", space=SPACE)
    assert shown_surfaces(tmp_path / "page", settings) is None
    write(tmp_path, record(0, tmp_path))
    surfaces = {"val": [{"params": ["x", "kind"], "interaction": 0.5}]}
    assert shown_surfaces(tmp_path / "page", settings) == surfaces
    assert shown_surfaces(tmp_path / "page", small_settings("digits", space={"x": [1, 2]})) is None
    write(tmp_path, record(0, tmp_path), is_running=True)
    assert shown_surfaces(tmp_path / "page", settings) is None
