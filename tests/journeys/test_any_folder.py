"""Test a study in all its steps, in folders whose names a URL, a template or a shell could misread.

The tests also run with the oldest versions of libraries that are allowed (.ci/lowest).
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from commands import call, project
from studies import mlflow_runs

pytestmark = pytest.mark.kernel

#: A folder name with characters that are special in URLs, templates or shells.
NASTY = "a?b {run_id} #1 %41 100% (2) it's & josé@corp.com 2026-11-26T13:10 日本 [x]"
CELL = """
import sweeper
sweeper.report(0, val=x + seed % 7)
with open(f"{seed}.txt", "w") as note:
    note.write("of it")
sweeper.save_artifact(f"{seed}.txt")
"""


def test_a_study_works_in_a_folder_with_any_name_from_the_sweep_to_the_remote_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder, other, copies = (tmp_path / f"{name} {NASTY}" for name in ("one", "other", "copies"))
    folder.mkdir()
    monkeypatch.chdir(folder)
    names = "x = 0.5\nseed = 0"
    study = "study: {name: 'étude 1', trials: 3, sampler: random}"
    sync = f"sync: {json.dumps({'url': f'file://{copies}'})}"
    words = project(CELL, settings=f"{study}\n{sync}", parameters=names)
    words += ["-j", "2", "--confirm", "1", "--seeds", "2"]
    words[words.index("-o") + 1] = "résultats {study}/{run_id}.ipynb"
    swept = call(*words, "--json")
    assert swept.returncode == 0, swept.stderr
    assert "Traceback" not in swept.stderr
    answer = json.loads(swept.stdout.splitlines()[-1])
    assert answer["counts"]["completed"] == 3

    results = Path("résultats étude 1")
    known = json.loads(call("status", "étude 1", "--json").stdout)
    assert known["trials"] == answer["trials"]
    assert known["storage"] == answer["storage"]
    assert known["best"]["won_by"] == "confirmed_mean"
    replayed = call("replay", str(results / "0000.ipynb"))
    assert replayed.returncode == 0, replayed.stderr
    assert call("export", "étude 1").returncode == 0
    assert Path(answer["page"]).is_file()
    runs = mlflow_runs(answer["tracking_uri"], "étude 1")
    assert len(runs) == 3
    for run in runs:
        artifacts = Path(unquote(urlsplit(run.info.artifact_uri).path))
        assert artifacts.is_relative_to(folder)
        assert list(artifacts.rglob(f"{run.info.run_name}.ipynb"))

    other.mkdir()
    for name in ("nb.ipynb", "p.yml"):
        shutil.copy(name, other)
    monkeypatch.chdir(other)
    resumed = call(*words, "--json")
    assert resumed.returncode == 0, resumed.stderr
    restored = json.loads(resumed.stdout.splitlines()[-1])
    assert [trial["attempt"] for trial in restored["trials"]] == [1, 1, 1]
    assert [trial["scores"] for trial in restored["trials"]] == [
        trial["scores"] for trial in answer["trials"]
    ]
    assert {run.info.run_name for run in mlflow_runs(restored["tracking_uri"], "étude 1")} == {
        "0000",
        "0001",
        "0002",
    }
    assert set(tmp_path.iterdir()) == {folder, other, copies}, "nothing lies elsewhere"
