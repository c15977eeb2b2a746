"""Clusters that a sweep starts, and what is refused before it does."""

from __future__ import annotations

import gc
import http.client
import os
import shlex
import sys
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from studies import until, workload_of

from sweeper.errors import SettingsError
from sweeper.execution.dask import DaskExecutor
from sweeper.execution.dask_cluster import DaskCluster
from sweeper.settings.machines import Cluster
from sweeper.settings.yaml_reader import read_yaml
from sweeper.testing import trial_spec, write_notebook
from sweeper.testing.executor_contract import ListedTrials

a_cluster = partial(DaskCluster, topic="t", on_event=print)
PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"


def test_without_dask_the_command_that_installs_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(SettingsError, match=r"pip install 'notebook-hpo\[dask\]'"):
        a_cluster(Cluster(url="local:2"))


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"class": "no_such_jobs.SLURMCluster"}, r"no_such_jobs.*; pip install no-such-jobs"),
        ({"class": "dask_jobqueue.SLURMClster"}, r"'dask_jobqueue' has no attribute 'SLURMClster'"),
        (
            {"class": "dask_jobqueue.SLURMCluster", "options": {"coers": 2}},
            r"SLURMCluster: cannot be started with options {'coers': 2}: ",
        ),
        ({"class": "collections.OrderedDict"}, r"OrderedDict cannot be reached: "),
    ],
)
def test_a_class_that_cannot_be_used_is_refused_by_its_name(
    written: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        a_cluster(Cluster.model_validate(written))


@pytest.mark.slow
def test_a_cluster_on_this_machine_listens_on_loopback_and_shows_nothing_to_whoever_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = listening()
    cluster = a_cluster(Cluster(url="local:1"))
    try:
        (worker,) = cluster.workers()
        assert worker.address.startswith("tls://127.0.0.1:")
        assert {folder.name for folder in tmp_path.iterdir()} == {
            f"notebook-hpo-dask-{os.geteuid()}"
        }
        opened = listening() - before
        assert {host for host, _ in opened} == {"127.0.0.1"}
        answers = {
            (place, page): answer
            for place in opened
            for page in ("status", "info/main/workers.html", "json/counts.json", "health")
            if (answer := answer_of(f"http://{place[0]}:{place[1]}/{page}")) is not None
        }
        assert answers
        assert set(answers.values()) == {404}, answers
    finally:
        cluster.close()


def test_a_folder_for_dask_that_others_may_have_made_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = tmp_path / f"notebook-hpo-dask-{os.geteuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(SettingsError, match=f"{folder} is no folder that is yours alone; set TMP"):
        a_cluster(Cluster(url="local:1"))


def listening() -> set[tuple[str, int]]:
    """Where this process and those that it has started listen, without Unix sockets."""
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return {
        (it.laddr.ip, it.laddr.port)
        for one in family
        for it in one.net_connections("inet")
        if it.status == psutil.CONN_LISTEN
    }


def answer_of(url: str) -> int | None:
    """The status with which a server answers; None where none of HTTP is there."""
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, http.client.HTTPException):
        return None


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
    opened = a_cluster(Cluster.model_validate(written))
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
def test_a_class_gets_no_more_workers_than_there_are_trials_and_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs that are processes here stand for those of SLURM."""
    monkeypatch.chdir(tmp_path)
    notebook = write_notebook(tmp_path / "nb.ipynb", "val = x")
    workload = workload_of(notebook, study={"trials": 1})
    # The class takes a command apart at its spaces, which the interpreter's path may have.
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    options = {"python": str(python), "cores": 1, "memory": "1GB"}
    settings = Cluster.model_validate(
        {"class": "dask_jobqueue.local.LocalCluster", "options": options, "max": 2}
    )
    source = ListedTrials(
        [
            trial_spec(
                0,
                params={"x": 0.5},
                notebook=workload.paths.notebook("0000"),
                checkpoint_dir=workload.paths.checkpoints("0000"),
            )
        ],
        on_end=lambda *_: counted.append(len(_jobs(tmp_path))),
    )
    counted: list[int] = []
    DaskExecutor.open(workload, settings, None).run(source)
    assert source.states == ["completed"]
    assert counted == [1]
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
