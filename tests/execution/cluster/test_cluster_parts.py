"""The parts of the cluster executor that need no worker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sweeper.execution.cluster.acceptance import Acceptance
from sweeper.execution.cluster.messages import CHUNK_BYTES, Looked
from sweeper.execution.cluster.mirror import ArrivingFiles, Mirror, folders_for, parts_of
from sweeper.execution.workload import Workload
from sweeper.notebooks import ResearchNotebook
from sweeper.settings import Settings
from sweeper.study_folder.snapshots import CodeSnapshot
from sweeper.testing import trial_spec, write_notebook
from sweeper.trials import InputFile, StudyPaths


def a_workload(folder: Path, *cells: str, kernel: str = "python3") -> Workload:
    notebook = ResearchNotebook(write_notebook(folder / "nb.ipynb", *cells))
    return Workload(
        notebook=notebook,
        settings=Settings.from_mapping({"objective": {"val": "maximize"}, "space": {"x": [1, 2]}}),
        kernel_name=kernel,
        cwd=folder,
        paths=StudyPaths.parse(str(folder / "out" / "{run_id}.ipynb"), study="s"),
        snapshot=CodeSnapshot(
            folder=str(folder),
            notebook_name="nb.ipynb",
            notebook=notebook.text,
            files={"../lib/far.py": "far = 1\n"},
        ),
    )


def test_a_large_file_arrives_in_parts_and_replaces_the_old_one_at_once(tmp_path: Path) -> None:
    source, place = tmp_path / "a.ckpt", tmp_path / "there" / "a.ckpt"
    source.write_bytes(bytes(range(256)) * (CHUNK_BYTES // 256 + 7))
    arriving = ArrivingFiles(lambda path: place)
    first, *others = parts_of(source, source)
    arriving.take(first)
    assert not place.exists()
    for part in others:
        arriving.take(part)
        arriving.take(part)  # repeated, because the answer to the first time was lost
    assert place.read_bytes() == source.read_bytes()
    assert [path.name for path in place.parent.iterdir()] == ["a.ckpt"]


def test_parts_that_follow_a_lost_one_are_ignored(tmp_path: Path) -> None:
    source, place = tmp_path / "a.ckpt", tmp_path / "there" / "a.ckpt"
    source.write_bytes(bytes(2 * CHUNK_BYTES + 1))
    arriving = ArrivingFiles(lambda path: place)
    first, _, last = parts_of(source, source)
    arriving.take(first)
    arriving.take(last)
    assert not place.exists()
    arriving.drop()
    assert list(place.parent.iterdir()) == []


def test_a_file_that_is_gone_has_no_parts_and_an_empty_one_has_one(tmp_path: Path) -> None:
    assert list(parts_of(tmp_path / "none", tmp_path / "none")) == []
    (tmp_path / "empty").touch()
    (part,) = parts_of(tmp_path / "empty", tmp_path / "empty")
    assert part.is_last


def test_a_workers_paths_stand_below_its_root(tmp_path: Path) -> None:
    home, root = tmp_path / "home", tmp_path / "root"
    workload, below = a_workload(home), root / str(home)[1:]
    there = Mirror(root=root).workload(workload, host="node7")
    assert there.cwd == below
    assert there.paths.notebook("0003") == below / "out" / "0003.ipynb"
    assert there.frozen == {str(below.parent / "lib" / "far.py"): "far = 1\n"}
    assert there.snapshot == workload.snapshot  # whose name the executed notebooks have
    spec = trial_spec(3, notebook=home / "a.ipynb", checkpoint_dir=home / "c", continues=None)
    assert Mirror(root=root).spec(spec).checkpoint_dir == below / "c"


def test_what_a_trial_uses_of_other_studies_is_sent_once(tmp_path: Path) -> None:
    used = InputFile(
        study="pretrain",
        study_id="1",
        run_id="0003",
        artifact="model",
        sha256="f00",
        size_bytes=3,
        path=tmp_path / "inputs" / "model",
    )
    for file in ("inputs/model/weights", "saved/kept.pt", "saved/.half.1.part/weights"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("abc")
    spec = trial_spec(
        3,
        checkpoint_dir=tmp_path / "none",
        artifact_dir=tmp_path / "saved",
        inputs={"encoder": used},
    )
    sent: set[Path] = set()
    first, second = ([it.path for it in folders_for(spec, sent)] for _ in range(2))
    saved = [tmp_path / "none", tmp_path / "saved", tmp_path / "saved" / "kept.pt"]
    assert first == [*saved, tmp_path / "inputs" / "model" / "weights"]
    assert second == saved
    there = Mirror(root=tmp_path / "root").spec(spec)
    assert there.inputs["encoder"].path.is_relative_to(tmp_path / "root")
    assert there.artifact_dir.is_relative_to(tmp_path / "root")
    shared = Mirror(root=tmp_path / "root", shares_checkpoints=True).spec(spec)
    assert (shared.inputs, shared.artifact_dir) == (spec.inputs, spec.artifact_dir)


def test_on_a_disk_of_both_only_the_executed_notebooks_are_copies(tmp_path: Path) -> None:
    home, root = tmp_path / "home", tmp_path / "root"
    workload = a_workload(home)
    mirror = Mirror(root=root, shares_code=True, shares_checkpoints=True)
    there = mirror.workload(workload, host="node7")
    assert (there.cwd, there.frozen) == (home, workload.frozen)
    spec = mirror.spec(trial_spec(3, notebook=home / "a.ipynb", checkpoint_dir=home / "c"))
    assert (spec.checkpoint_dir, spec.notebook) == (home / "c", root / str(home)[1:] / "a.ipynb")


@pytest.mark.parametrize(
    ("changes", "packages", "found"),
    [
        ({}, {}, []),
        ({}, {"pip": "1.0"}, []),  # it has no part in a result
        ({}, {"only-there": "1.0"}, []),
        ({}, {"numpy": "0.1"}, ["numpy: {numpy} here, 0.1 there"]),
        ({"version": "2.7.18"}, {}, ["Python: {python} here, 2.7.18 there"]),
        ({"missing": ["numpy"]}, {}, ["numpy: installed here, missing there"]),
        ({"missing": ["no_such_module"]}, {}, []),  # here neither: the notebook does without
    ],
)
def test_a_worker_is_refused_for_what_differs(
    tmp_path: Path, changes: dict[str, object], packages: dict[str, str], found: list[str]
) -> None:
    acceptance = Acceptance(
        a_workload(
            tmp_path, "import numpy\ntry:\n    import no_such_module\nexcept ImportError: pass"
        )
    )
    here = acceptance.python
    assert here is not None
    there = {**here, **changes, "packages": {**here["packages"], **packages}}
    expected = [
        text.format(numpy=here["packages"]["numpy"], python=here["version"]) for text in found
    ]
    assert acceptance.differences(Looked(host="node7", python=there)) == expected


def test_without_the_kernel_at_home_the_first_worker_is_the_measure(tmp_path: Path) -> None:
    acceptance = Acceptance(a_workload(tmp_path, kernel="no-such-kernel"))
    python = {"implementation": "cpython", "version": "3.11.1", "packages": {"numpy": "2.0"}}
    assert acceptance.differences(Looked(host="node1", python=python)) == []
    other = {**python, "packages": {"numpy": "1.0"}}
    assert acceptance.differences(Looked(host="node2", python=other)) == [
        "numpy: 2.0 on node1, 1.0 there"
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "without"),
    [
        ("host", {"optuna", "mlflow", "dask"}),
        ("relay", {"optuna", "mlflow", "papermill", "pydantic"}),  # it runs in the Dask worker
    ],
)
def test_what_runs_on_a_worker_imports_neither_optuna_nor_mlflow(
    module: str, without: set[str]
) -> None:
    code = f"import sys, sweeper.execution.cluster.{module}; print({without} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
