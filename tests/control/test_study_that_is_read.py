"""Test how a study is read: in a notebook or script, as tables, as a page, and with `diff`."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
from pathlib import Path

import pandas as pd
import pytest
from studies import sweep_of

import sweeper
from sweeper.cli import main
from sweeper.control.diff import diff_in_words, diff_trials
from sweeper.control.loaded import Trials
from sweeper.control.lookup import find_study
from sweeper.errors import NotebookError, StudyError
from sweeper.notebooks.compare import Differences
from sweeper.page import one_file
from sweeper.study_folder.notes import Notes
from sweeper.testing import write_notebook
from sweeper.trials import RunningTrial, TrialOutcome, TrialRecord, TrialSpec, TrialState

pytestmark = pytest.mark.slow  # because the fixture's sweep writes to MLflow


def test_each_trial_is_a_row_with_its_state_scores_params_and_notebook(folder: Path) -> None:
    study = sweeper.load(folder)
    table = study.dataframe()
    assert list(table.index) == [f"000{n}" for n in range(6)]
    assert list(table.columns[:3]) == ["state", "val", "loss"]
    assert {*table.columns[3:7]} == {"x", "kind", "param_seed", "depth"}
    for record in study.trials:
        row = table.loc[record.run_id]
        assert row["state"] == str(record.state)
        assert (row["x"], row["kind"]) == (record.params["x"], record.params["kind"])
        assert (row["param_seed"], row["seed"]) == (record.params["seed"], record.seed)
        assert pd.isna(row["depth"]) == ("depth" not in record.params)
        assert row["notebook"] == str(record.notebook)
    assert pd.isna(table.loc["0003", "val"])
    assert table.loc["0003", "message"] == "In [2]: ValueError: no"


def test_notes_about_trials_are_in_the_dataframe_the_exported_csv_and_the_json_of_status(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    note = {"trial_name": "the wide one", "note": "look again", "starred": True}
    file = sweeper.load(folder).page().path.with_name("notes.json")
    Notes(file).change({"0001": note})
    try:
        table = sweeper.load(folder).dataframe()
        assert table.loc["0001", [*note]].to_dict() == note
        assert pd.isna(table.loc["0000", ["trial_name", "note"]]).all()
        assert not table.loc["0000", "starred"]
        csv = tmp_path / "trials.csv"
        assert main(["export", str(folder), "--csv", str(csv)]) == 0
        assert pd.read_csv(csv).loc[1, [*note]].to_dict() == note
        capsys.readouterr()
        assert main(["status", str(folder), "--json"]) == 0
        _, noted, *_ = json.loads(capsys.readouterr().out)["trials"]
        assert {name: noted[name] for name in note} == note
    finally:
        file.unlink()


def test_the_series_of_a_trial_have_a_row_for_each_step(folder: Path) -> None:
    study = sweeper.load(folder)
    series = study.series("0000")
    assert list(series.index) == [0, 1]
    assert series.index.name == "step"
    # If a step was reported several times, its last value counts.
    assert list(series["val"]) == [0.0, study.trials[0].params["x"]]
    assert pd.isna(series.loc[0, "loss"])
    assert series.loc[1, "loss"] == 0.25


def test_an_executed_notebook_is_displayed_as_html_that_cannot_run_scripts(folder: Path) -> None:
    notebook = sweeper.load(folder).notebook("0001")
    assert notebook.path == folder.parent / "0001.ipynb"
    page = notebook._repr_html_()
    assert page.startswith("<iframe sandbox srcdoc=")
    assert "<script>" not in page


def test_jupyter_displays_a_study_with_the_best_trial_first(folder: Path) -> None:
    study = sweeper.load(folder)
    assert isinstance(study.best, TrialRecord)
    counts = "study seen: 5 completed, 1 failed"
    assert f"{counts}; best: {study.best.run_id}, val=" in repr(study)
    page = study._repr_html_()
    assert counts in page
    assert f"<dd>{study.best.run_id}  val=" in page
    assert page.index(f">{study.best.run_id}</a>") < page.index(">0003</a>")
    assert "<b>" not in page


def test_jupyter_displays_trials_as_a_table_and_a_study_without_backticks(folder: Path) -> None:
    study = sweeper.load(folder)
    assert isinstance(study.trials, Trials)
    table = study.trials._repr_html_()
    assert table.count("<tr>") == 7
    assert '<td title="&lt;b&gt;"' in table
    assert "`" not in study._repr_html_()


def test_the_page_of_a_study_that_a_cell_displays_needs_no_other_file(folder: Path) -> None:
    (folder / "page" / "notebooks" / "0001.js").unlink()
    page = sweeper.load(folder).page()
    frame = page._repr_html_()
    assert page.path == folder / "index.html"
    assert "allow-same-origin" not in frame
    assert '[data-jp-theme-light="false"] iframe' in frame, (
        "the frame has no style for JupyterLab's dark theme"
    )
    packed = re.search(r"atob\(&quot;([^&]+)&quot;\)", frame)
    assert packed is not None
    text = gzip.decompress(base64.b64decode(packed[1])).decode()
    assert re.findall(r'(?:src|href)="page/', text) == []
    assert [f'sweeper.notebook("000{n}"' in text for n in range(6)] == [True] * 6
    assert "<script>alert" not in text


def test_a_page_in_a_cell_leaves_out_notebooks_of_worse_trials_above_a_size_limit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = sweeper.load(folder).page()
    rendered = folder / "page" / "notebooks"
    of_best = sum((rendered / f"{n}.js").stat().st_size for n in ("styles", page.run_ids[0]))
    monkeypatch.setattr(one_file, "_MOST_BYTES", of_best)
    limited = len(page._repr_html_())
    monkeypatch.undo()
    assert limited < len(page._repr_html_())


def test_a_missing_study_or_trial_is_reported_in_one_message(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="there is no study in"):
        sweeper.load(tmp_path)
    with pytest.raises(StudyError, match="no trial 0099; it has 0000 to 0005"):
        sweeper.load(folder).series("0099")


def test_with_several_objectives_best_is_a_list_and_a_score_named_duration_s_has_its_own_column(
    tmp_path: Path,
) -> None:
    def run(spec: TrialSpec, _: RunningTrial) -> TrialOutcome:
        scores = {"duration_s": float(spec.number % 3), "val": 1.0}
        return TrialOutcome(state=TrialState.COMPLETED, scores=scores, duration_s=9.0)

    objective = {"duration_s": "minimize", "val": "maximize"}
    notebook = write_notebook(tmp_path / "nb.ipynb", "duration_s = val = x", parameters="x = 0")
    sweep_of(notebook, "fast", run, study={"trials": 4}, objective=objective).run()
    study = sweeper.load(tmp_path / "out" / "fast")
    best = study.best
    assert not isinstance(best, TrialRecord | None)
    assert [record.run_id for record in best] == ["0000", "0003"]
    table = study.dataframe()
    assert list(table["score_duration_s"]) == [0.0, 1.0, 2.0, 0.0]
    assert list(table["duration_s"]) == [9.0] * 4
    with pytest.raises(NotebookError, match=r"0000\.ipynb"):
        study.series("0000")


def rendered(folder: Path) -> dict[str, int]:
    """Return the modification time of each rendered notebook of a page, by file name."""
    files = (folder / "page" / "notebooks").glob("0*.js")
    return {file.stem: file.stat().st_mtime_ns for file in files}


def test_a_sweep_leaves_a_page_with_all_notebooks(folder: Path) -> None:
    text = (folder / "page" / "study.js").read_text()
    study = json.loads(text.strip().removeprefix("sweeper.study(").removesuffix(");"))
    assert not study["is_running"]
    assert study["compare_url"].startswith("http://127.0.0.1")
    assert [trial["has_notebook"] for trial in study["all"]] == [True] * 6
    assert set(rendered(folder)) == {f"000{n}" for n in range(6)}


def test_export_renders_only_notebooks_that_are_missing_or_have_changed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = rendered(folder)
    (folder / "page" / "notebooks" / "0001.js").unlink()
    os.utime(folder.parent / "0003.ipynb")
    assert main(["export", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["2 notebooks are rendered", f"seen: {folder / 'index.html'}"]
    after = rendered(folder)
    assert {name for name in after if after[name] != before[name]} == {"0001", "0003"}


def test_a_broken_notebook_is_logged_in_one_line_and_the_page_is_written(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    notebook = folder.parent / "0002.ipynb"
    whole = notebook.read_text()
    notebook.write_text("{")
    try:
        assert main(["export", str(folder)]) == 0
        assert "0002.ipynb: not a" in caplog.text
    finally:
        notebook.write_text(whole)


def test_csv_and_parquet_tables_have_one_row_for_each_trial_and_the_same_floats(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    csv, parquet = tmp_path / "new folder" / "t.csv", tmp_path / "t.parquet"
    assert main(["export", str(folder), "--csv", str(csv), "--parquet", str(parquet)]) == 0
    assert f"seen: 6 trials in {csv}" in capsys.readouterr().out
    text = pd.read_csv(csv, dtype={"run_id": str}).set_index("run_id")
    typed = pd.read_parquet(parquet)
    for table in (text, typed):
        assert list(table.index) == [f"000{n}" for n in range(6)]
        assert table["x"]["0004"] == 1 / 3
        assert set(table["kind"]) == {"a", "<b>", "3"}
    assert list(text["x"]) == list(typed["x"])


def test_a_table_file_that_cannot_be_written_is_reported_in_one_message(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["export", str(folder), "--csv", f"{tmp_path}/file/t.csv"]) == 2
    assert f"--csv {tmp_path}/file/t.csv: cannot be written" in capsys.readouterr().err


def between(folder: Path, first: str, second: str) -> Differences:
    return diff_trials(find_study(str(folder), storage=None), first, second)


def test_two_trials_with_equal_results_have_no_differences(folder: Path) -> None:
    lines = diff_in_words("0000", "0001", between(folder, "0000", "0001"))
    assert [line for line in lines if "no difference" in line] == [
        *("params: no difference", "scores: no difference", "outputs: no difference")
    ]
    assert "  val: equal at all 3 points" in lines


def test_the_differences_of_two_trials_include_params_scores_steps_and_outputs(
    folder: Path,
) -> None:
    found = between(folder, "0000", "0002")
    lines = diff_in_words("0000", "0002", found)
    assert lines[1:] == [
        "params",
        "  x: 0.5 → 0.25",
        "scores",
        "  val: 0.5 → 0.25 (-0.25)",
        "series",
        "  val: equal at the first 1 points; from step 1 on 0.25 → 0.125 (-0.125)",
        "  loss: equal at all 1 points",
        "outputs",
        f"  cell {found.outputs[0].cell}, from line 2 on: '0.5' → '0.25'",
    ]


def test_the_differences_of_two_trials_include_a_param_that_was_fixed_to_different_values(
    folder: Path,
) -> None:
    assert between(folder, "0003", "0005").params["epochs"] == ("10", "30")


def test_diff_prints_the_differences_and_a_json_object(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", str(folder), "0000", "0003", "--json"]) == 0
    printed = capsys.readouterr()
    assert "0000 and 0003:" in printed.err
    assert "  state: completed → failed" in printed.err
    assert "  message: none → In [2]: ValueError: no" in printed.err
    data = json.loads(printed.out.splitlines()[-1])
    assert data["run_ids"] == ["0000", "0003"]
    assert data["series"]["val"]["step"] == 1


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (["0000"], "give two run ids"),
        (["a", "0000", "0001", "0002"], "give two run ids"),
        (["0000", "0099"], "no trial 0099; it has 0000 to 0005"),
    ],
)
def test_a_wrong_diff_command_is_reported_in_one_message(
    folder: Path, capsys: pytest.CaptureFixture[str], targets: list[str], words: str
) -> None:
    if len(targets) == 2:
        targets = [str(folder), *targets]
    assert main(["diff", *targets]) == 2
    assert words in capsys.readouterr().err
