"""What the command `export` writes of a study: its comparison page, and its trials as tables."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pandas as pd
import pytest

from sweeper.cli import main

pytestmark = pytest.mark.slow  # MLflow, in the sweep before them


def rendered(folder: Path) -> dict[str, int]:
    """When each notebook of a page was rendered."""
    files = (folder / "page" / "notebooks").glob("0*.js")
    return {file.stem: file.stat().st_mtime_ns for file in files}


def test_a_sweep_leaves_a_page_with_all_notebooks(folder: Path) -> None:
    text = (folder / "page" / "study.js").read_text()
    study = json.loads(text.strip().removeprefix("sweeper.study(").removesuffix(");"))
    assert not study["is_running"]
    assert study["compare_url"].startswith("http://127.0.0.1")
    assert [trial["has_notebook"] for trial in study["all"]] == [True] * 6
    assert set(rendered(folder)) == {f"000{n}" for n in range(6)}


def test_export_renders_what_is_missing_or_has_changed_and_nothing_else(
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


def test_a_notebook_that_is_broken_is_one_line_and_the_page_is_written(
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


def test_both_tables_have_one_row_for_each_trial_and_the_same_floats(
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


def test_a_file_that_cannot_be_written_is_one_message(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["export", str(folder), "--csv", f"{tmp_path}/file/t.csv"]) == 2
    assert f"--csv {tmp_path}/file/t.csv: cannot be written" in capsys.readouterr().err
