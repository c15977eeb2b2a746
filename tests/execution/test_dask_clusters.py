"""Clusters that a sweep starts, and what is refused before it does."""

from __future__ import annotations

import gc
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from studies import PATIENCE_S, until

from sweeper.errors import SettingsError
from sweeper.execution.dask import DaskExecutor
from sweeper.execution.dask_cluster import DaskCluster, DaskWorker
from sweeper.execution.workload import Workload
from sweeper.notebooks.research import ResearchNotebook
from sweeper.settings import Settings
from sweeper.settings.machines import Cluster
from sweeper.settings.yaml_reader import read_yaml
from sweeper.testing import trial_spec, write_notebook
from sweeper.testing.executor_contract import ListedTrials
from sweeper.trials import StudyPaths, TrialOutcome, TrialSpec

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"


def test_without_dask_the_command_that_installs_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(SettingsError, match=r"pip install 'notebook-hpo\[dask\]'"):
        DaskCluster.open(Cluster(url="local:2"))


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"class": "no_such_jobs.SLURMCluster"}, r"no_such_jobs.*; pip install no-such-jobs"),
        ({"class": "dask_jobqueue.SLURMClster"}, r"'dask_jobqueue' has no attribute 'SLURMClster'"),
        (
            {"class": "dask_jobqueue.SLURMCluster", "options": {"coers": 2}},
            r"SLURMCluster: cannot be started with options {'coers': 2}: ",
        ),
        ({"class": "collections.OrderedDict"}, r"OrderedDict: gives no client: "),
    ],
)
def test_a_class_that_cannot_be_used_is_refused_by_its_name(
    written: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        DaskCluster.open(Cluster.model_validate(written))


def blocks_with_clusters() -> list[dict[str, Any]]:
    """The sections `cluster` on the page about clusters."""
    parts = PAGE.read_text("utf-8").split("\n    cluster:\n")[1:]
    texts = ["\n".join(iter_block(part.splitlines())) for part in parts]
    return [read_yaml("cluster:\n" + text)["cluster"] for text in texts]


def iter_block(lines: list[str]) -> list[str]:
    end = next(n for n, line in enumerate([*lines, ""]) if not line.startswith("      "))
    return [line[4:] for line in lines[:end]]


def test_the_script_for_slurm_asks_for_what_the_page_has_and_only_the_user_reads_its_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = next(block for block in blocks_with_clusters() if "SLURM" in block["class"])
    monkeypatch.chdir(tmp_path)
    opened = DaskCluster.open(Cluster.model_validate(written))
    try:
        assert opened._cluster is not None
        script = opened._cluster.job_script()
        (key,) = tmp_path.glob(".dask-jobqueue.worker.key.*")
        assert key.stat().st_mode & 0o777 == 0o600
        assert f"--tls-key {key}" in script
    finally:
        opened.close()
    del opened
    gc.collect()
    assert list(tmp_path.iterdir()) == []
    for line in ("-p gpu", "--cpus-per-task=2", "--mem=30G", "-t 08:00:00", "--gres=gpu:1"):
        assert f"#SBATCH {line}\n" in script
    assert "--nthreads 2" in script
    assert f"\n{sys.executable} -m distributed.cli.dask_worker tls://" in script
    assert "--tls-ca-file" in script


def test_the_page_has_settings_that_load() -> None:
    blocks = blocks_with_clusters()
    assert len(blocks) == 2
    for block in blocks:
        assert Cluster.model_validate(block).max == 8


@pytest.mark.kernel
@pytest.mark.slow
def test_a_class_gets_workers_for_the_trials_that_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs that are processes here stand for those of SLURM."""
    monkeypatch.chdir(tmp_path)
    go = tmp_path / "go"
    ended: list[int] = []
    retired: list[list[int]] = []
    retire = DaskCluster.retire

    def watched(self: DaskCluster, worker: DaskWorker) -> None:
        assert len(_jobs(tmp_path)) == 2
        retired.append(list(ended))
        retire(self, worker)
        until(lambda: len(_jobs(tmp_path)) == 1, "the job goes on")
        go.touch()

    monkeypatch.setattr(DaskCluster, "retire", watched)
    waits = (
        f"import os, time\nend_s = time.monotonic() + {PATIENCE_S}\n"
        f"while pause and not os.path.exists({str(go)!r}) and time.monotonic() < end_s:\n"
        "    time.sleep(0.1)\nval = 3.0"
    )
    notebook = write_notebook(tmp_path / "nb.ipynb", waits, parameters="pause = 0.0")
    workload = Workload(
        notebook=ResearchNotebook(notebook),
        settings=Settings.from_mapping(
            {
                "study": {"trials": 3},
                "objective": {"val": "maximize"},
                "space": {"pause": {"low": 0.0, "high": 99.0}},
            }
        ),
        kernel_name="python3",
        cwd=tmp_path,
        paths=StudyPaths.parse(str(tmp_path / "{run_id}.ipynb"), study="s"),
    )
    # The class takes a command apart at its spaces, which the interpreter's path may have.
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    settings = Cluster.model_validate(
        {
            "class": "dask_jobqueue.local.LocalCluster",
            "options": {
                "python": str(python),
                "cores": 1,
                "memory": "1GB",
            },
            "max": 2,
        }
    )
    executor = DaskExecutor.open(workload, settings, None)
    # The first trial lasts until the worker that has run the others is given back.

    def note(spec: TrialSpec, outcome: TrialOutcome) -> None:
        ended.append(spec.number)

    specs = [
        trial_spec(
            number,
            params={"pause": pause},
            notebook=workload.paths.notebook(f"{number:04d}"),
            checkpoint_dir=workload.paths.checkpoints(f"{number:04d}"),
        )
        for number, pause in enumerate([1.0, 0.0, 0.0])
    ]
    source = ListedTrials(specs, on_end=note)
    executor.run(source)
    assert source.states == ["completed"] * 3
    assert sorted(retired[0]) == [1, 2]
    until(lambda: not _jobs(tmp_path), "a job is left")


def _jobs(cwd: Path) -> list[str]:
    """The jobs that were submitted from this folder, in which they run."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            is_ours = (folder / "cwd").readlink() == cwd
        except OSError:
            continue
        if is_ours and "distributed.cli.dask_worker" in command:
            found.append(command)
    return found
