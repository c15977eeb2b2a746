"""Test the files that `export` writes for a study whose trials ran without kernels."""

from __future__ import annotations

from pathlib import Path

import nbformat
from opened_studies import asked, opened_in
from studies import note_in, small_settings

from sweeper.control.exporting import write_code
from sweeper.control.lookup import find_study
from sweeper.study_folder.snapshots import CodeSnapshot, keep_snapshot
from sweeper.testing import write_notebook
from sweeper.trials import StudyPaths

SETTINGS = small_settings("exported")


def test_the_code_of_a_script_is_exported_as_a_notebook(tmp_path: Path) -> None:
    paths = StudyPaths.parse(f"{tmp_path}/out/{{run_id}}.ipynb", study="exported")
    study = opened_in(paths, SETTINGS)
    record = asked(study, SETTINGS, paths)
    cells = [nbformat.v4.new_code_cell("val = 1")]
    snapshot = CodeSnapshot(
        folder=str(tmp_path),
        notebook_name="train.py",
        notebook=nbformat.writes(nbformat.v4.new_notebook(cells=cells)),
        files={"model.py": "X = 1\n"},
    )
    write_notebook(record.notebook, "val = 1")
    note_in(record.notebook, study_id=study.study_id, snapshot=keep_snapshot(paths, snapshot))
    study.close()
    written = write_code(find_study(str(paths.folder), storage=None), record.run_id).notebook
    assert written == paths.code / "0000" / "train.ipynb"
    assert nbformat.read(written, as_version=4).cells[0].source == "val = 1"
    assert {file.name for file in written.parent.iterdir()} == {"train.ipynb", "model.py"}


def test_the_exported_code_of_a_trial_includes_the_parameters_file_of_the_sweep(
    tmp_path: Path,
) -> None:
    paths = StudyPaths.parse(f"{tmp_path}/out/{{run_id}}.ipynb", study="exported")
    study = opened_in(paths, SETTINGS)
    record = asked(study, SETTINGS, paths)
    notebook = write_notebook(tmp_path / "my.ipynb", "val = 1")
    study.note_facts(notebook=str(notebook))
    snapshot = CodeSnapshot(
        folder=str(tmp_path),
        notebook_name="my.ipynb",
        notebook=notebook.read_text(),
        parameters_name="my.yml",
        parameters="study: {trials: 3}\n",
        files={},
    )
    write_notebook(record.notebook, "val = 1")
    note_in(record.notebook, study_id=study.study_id, snapshot=keep_snapshot(paths, snapshot))
    study.close()
    existing = find_study(str(paths.folder), storage=None)
    written = write_code(existing, record.run_id)
    assert written.parameters is not None
    assert written.parameters.read_text() == "study: {trials: 3}\n"
