"""Trials on the workers of a Dask cluster: the contract of executors, and files both ways."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dask_clusters import left_there, started

from sweeper.errors import SettingsError
from sweeper.execution.cluster.executor import ClusterExecutor
from sweeper.execution.executor import Executor
from sweeper.execution.workload import Workload
from sweeper.notebooks import ResearchNotebook, read_metadata
from sweeper.settings import Settings
from sweeper.settings.machines import Cluster
from sweeper.settings.sections import Data
from sweeper.study_folder.snapshots import CodeSnapshot
from sweeper.sync.archive import Dataset
from sweeper.testing import trial_spec, write_notebook
from sweeper.testing.executor_contract import ACTING_CELL, ExecutorContract, ListedTrials
from sweeper.trials import StudyPaths, TrialOutcome, TrialSpec

pytestmark = [pytest.mark.kernel, pytest.mark.slow]


def workload_of(notebook: Path, space: dict[str, Any], **settings: Any) -> Workload:
    folder = notebook.parent
    return Workload(
        notebook=ResearchNotebook(notebook),
        settings=Settings.from_mapping(
            {"objective": {"val": "maximize"}, "space": space, **settings}
        ),
        kernel_name="python3",
        cwd=folder,
        paths=StudyPaths.parse(str(folder / "{run_id}.ipynb"), study="contract"),
    )


class TestClusterExecutor(ExecutorContract):
    @pytest.fixture(autouse=True)
    def _cluster(self, two_slots: str) -> None:
        self.address = two_slots

    def make(self, folder: Path, *, jobs: int) -> Executor:
        notebook = write_notebook(folder / "nb.ipynb", ACTING_CELL, parameters="act = 'complete'")
        acts = ["complete", "report", "fail", "wait", "lose"]
        workload = workload_of(notebook, {"act": acts}, kernels="cold")
        settings = Cluster.model_validate({"url": self.address, "wait": "60s"})
        return ClusterExecutor.open(workload, settings, jobs, own_folders=True)


CHECKPOINTS = """
import sweeper
from pathlib import Path
saved = sweeper.load_checkpoint()
first = (saved or {"epoch": -1})["epoch"] + 1
sweeper.save_checkpoint(epoch=first)
val = float(first) + 100 * float(Path("data/small.txt").read_text())
"""


def test_files_travel_both_ways_between_folders_of_their_own(
    tmp_path: Path, two_slots: str, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "home"
    notebook = write_notebook(home / "nb.ipynb", "from lib import beside", CHECKPOINTS)
    (home / "data").mkdir()
    (home / "data" / "small.txt").write_text("2")
    (home / "data" / "large.bin").write_bytes(bytes(11_000_000))
    workload = workload_of(notebook, {"x": {"low": 0.0, "high": 1.0}})
    files = {"lib/__init__.py": "", "lib/beside.py": "here = 1\n"}
    snapshot = CodeSnapshot(
        folder=str(home), notebook_name="nb.ipynb", notebook=workload.notebook.text, files=files
    )
    workload = Workload(
        notebook=workload.notebook,
        settings=workload.settings,
        kernel_name="python3",
        cwd=home,
        paths=StudyPaths.parse(str(home / "out" / "{run_id}.ipynb"), study="s"),
        snapshot=snapshot,
    )
    stale = home / "out" / "s" / "checkpoints" / "0001"

    def spec(number: int, attempt: int) -> TrialSpec:
        earlier = workload.paths.notebook("0000")
        return trial_spec(
            number,
            attempt=attempt,
            params={"x": 0.5},
            notebook=workload.paths.notebook(f"{number:04d}"),
            checkpoint_dir=workload.paths.checkpoints(f"{number:04d}"),
            continues=earlier.with_suffix(".attempt1.ipynb") if attempt > 1 else None,
        )

    def run(*specs: TrialSpec) -> dict[int, TrialOutcome]:
        source = ListedTrials(specs)
        settings = Cluster.model_validate(two_slots)
        ClusterExecutor.open(workload, settings, 1, own_folders=True).run(source)
        assert source.reasons == []
        return source.outcomes

    first = run(spec(0, 1), spec(1, 1))
    assert [(first[n].state, first[n].scores) for n in (0, 1)] == [
        ("completed", {"val": 200.0})
    ] * 2
    assert "large.bin (11 MB)" in caplog.text
    assert caplog.text.count("do not travel") == 1
    metadata = read_metadata(workload.paths.notebook("0000")) or {}
    assert metadata["snapshot"] == snapshot.name
    assert metadata["host"] == first[0].host != ""
    environment = json.loads(workload.paths.environment(metadata["environment"]).read_text())
    assert environment["host"] == first[0].host
    assert [path.name for path in stale.iterdir()] == ["000001.ckpt"]
    # The second attempt goes on from the checkpoint that home has, and finds none where it was
    # removed there; the earlier notebook is kept.
    stale.joinpath("000001.ckpt").unlink()
    second = run(spec(0, 2), spec(1, 2))
    assert second[0].scores == {"val": 201.0}
    assert second[1].scores == {"val": 200.0}
    kept = workload.paths.notebook("0000").with_suffix(".attempt1.ipynb")
    assert (read_metadata(kept) or {})["attempt"] == 1
    assert list(home.rglob("*.part")) == []
    assert left_there(two_slots) == []


def test_a_scheduler_that_cannot_be_reached_is_named_with_the_remedy(tmp_path: Path) -> None:
    workload = workload_of(write_notebook(tmp_path / "nb.ipynb", "val = x"), {"x": [1.0, 2.0]})
    with pytest.raises(SettingsError, match=r"tcp://127\.0\.0\.1:9 cannot be reached.*dask sched"):
        ClusterExecutor.open(workload, Cluster.model_validate("tcp://127.0.0.1:9"), None)


def test_a_cluster_without_workers_is_refused_when_the_time_is_over(tmp_path: Path) -> None:
    workload = workload_of(write_notebook(tmp_path / "nb.ipynb", "val = x"), {"x": [1.0, 2.0]})
    with started(workers=0, threads=1) as address:
        settings = Cluster.model_validate({"url": address, "wait": "1s"})
        with pytest.raises(SettingsError, match=r"no worker has come within 1 s.*dask worker tcp"):
            ClusterExecutor.open(workload, settings, None)


def test_a_kernel_that_the_workers_lack_is_refused_by_name(tmp_path: Path, two_slots: str) -> None:
    notebook = write_notebook(tmp_path / "nb.ipynb", "val = x", kernel="no-such")
    workload = workload_of(notebook, {"x": [1.0, 2.0]})
    workload = Workload(
        notebook=workload.notebook,
        settings=workload.settings,
        kernel_name="no-such",
        cwd=tmp_path,
        paths=workload.paths,
    )
    with pytest.raises(SettingsError, match=r"no worker can run these trials.*'no-such' is not in"):
        ClusterExecutor.open(workload, Cluster.model_validate(two_slots), None)


def test_workers_that_cannot_have_the_data_end_the_sweep_at_once(
    tmp_path: Path, two_slots: str
) -> None:
    remote = tmp_path / "remote"
    first, second = (
        Data.model_validate({"path": str(tmp_path / name), "from": remote.as_uri()})
        for name in ("pushed", "fetched")
    )
    (tmp_path / "pushed").mkdir()
    (tmp_path / "pushed" / "some.txt").write_text("some")
    Dataset(first, folder=tmp_path).push(lambda _: None)
    data = Dataset(second, folder=tmp_path)
    data.settle()
    shutil.rmtree(remote / "archives")
    notebook = write_notebook(tmp_path / "nb.ipynb", ACTING_CELL, parameters="act = 'complete'")
    workload = replace(workload_of(notebook, {"act": ["complete"]}), data=data)
    settings = Cluster.model_validate({"url": two_slots, "wait": "600s"})
    executor = ClusterExecutor.open(workload, settings, None)
    source = ListedTrials([])
    began_s = time.monotonic()
    executor.run(source)
    assert time.monotonic() - began_s < 120
    (reason,) = source.reasons
    assert "no worker can run these trials: worker tcp://" in reason
    assert "archives" in reason
