"""The parts of the cluster executor that need no worker."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from studies import workload_of

from sweeper.execution.dask_files import Mirror, difference, files_of, path_of, stamp_of
from sweeper.execution.workload import Workload
from sweeper.study_folder.snapshots import CodeSnapshot
from sweeper.testing import trial_spec, write_notebook
from sweeper.trials import TrialSpec


def a_workload(folder: Path) -> Workload:
    workload = workload_of(write_notebook(folder / "nb.ipynb"))
    snapshot = CodeSnapshot(
        folder=str(folder),
        notebook_name="nb.ipynb",
        notebook=workload.notebook.text,
        files={"lib/far.py": "far = 1\n"},
    )
    return replace(workload, snapshot=snapshot)


def a_spec(folder: Path, **changes: object) -> TrialSpec:
    return trial_spec(
        3,
        attempt=2,
        notebook=folder / "0003.ipynb",
        checkpoint_dir=folder / "c",
        artifact_dir=folder / "a",
        **changes,
    )


def test_a_trials_files_are_known_by_names_without_places(tmp_path: Path) -> None:
    for file in ("0003.ipynb", "c/1.ckpt", "c/.x.part/half", "a/m/w.pt"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(file)
    spec = a_spec(tmp_path)
    found = files_of(spec)
    assert list(found) == ["notebook", "checkpoints/1.ckpt", "artifacts/m/w.pt"]
    assert {stamp_of(path_of(spec, name).stat()) for name in found} == set(found.values())


@pytest.mark.parametrize(
    "name",
    [
        "checkpoints/../0003.ipynb",
        "checkpoints//etc/passwd",
        "checkpoints/",
        "checkpoints/.",
        "checkpoints",
        "artifacts/a/../../b",
        "artifacts/\0",
        "/etc/passwd",
        "../0004.ipynb",
        "study.db",
        "",
    ],
)
def test_a_name_that_leads_out_of_the_trials_own_folders_is_refused(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(ValueError, match="no file of trial 0003"):
        path_of(a_spec(tmp_path), name)


def test_a_workers_paths_stand_below_its_root(tmp_path: Path) -> None:
    home, root = tmp_path / "home", tmp_path / "root"
    workload, below = a_workload(home), root / str(home)[1:]
    there = Mirror(root=root).workload(workload, host="node7")
    assert there.cwd == below
    assert there.paths.notebook("0003") == below / "0003.ipynb"
    assert there.frozen == {str(below / "lib" / "far.py"): "far = 1\n"}
    assert there.snapshot == workload.snapshot  # whose name the executed notebooks have
    spec = trial_spec(3, notebook=home / "a.ipynb", checkpoint_dir=home / "c", continues=None)
    assert Mirror(root=root).spec(spec).checkpoint_dir == below / "c"


def a_python(version: str = "3.12.1", **packages: str) -> dict[str, object]:
    return {"implementation": "cpython", "version": version, "packages": packages}


@pytest.mark.parametrize(
    ("here", "there", "found"),
    [
        # What installs packages has no part in a result, and what one side lacks is no difference.
        (a_python(numpy="2.0", pip="1"), a_python("3.12.9", numpy="2.0", pip="2", more="1"), ""),
        (a_python(numpy="2.0"), a_python(numpy="0.1"), "numpy: 2.0 here, 0.1 there"),
        (a_python(), a_python("2.7.18"), "Python: cpython 3.12 here, cpython 2.7 there"),
        (a_python(), None, "the Python of the notebook's kernel does not answer there"),
        (None, None, ""),  # a kernel of another language
    ],
)
def test_a_worker_is_refused_for_what_differs(
    here: dict[str, object] | None, there: dict[str, object] | None, found: str
) -> None:
    assert difference(here, there) == found


@pytest.mark.slow
def test_what_runs_on_a_worker_imports_neither_optuna_nor_mlflow() -> None:
    code = "import sys, sweeper.execution.dask_worker; print({'optuna', 'mlflow'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
