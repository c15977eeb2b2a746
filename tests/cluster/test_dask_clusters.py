"""Test the cluster executor without workers: its parts, and clusters that it starts or refuses."""

from __future__ import annotations

import errno
import gc
import http.client
import os
import re
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil
import pytest
from studies import processes_in, until, workload_of

from sweeper.cluster import executor, files
from sweeper.cluster.dask_cluster import DaskCluster
from sweeper.cluster.executor import DaskExecutor
from sweeper.cluster.files import Mirror, NotebookFolder, difference, files_of, path_of, stamp_of
from sweeper.errors import BrokenError, SettingsError
from sweeper.execution.workload import Workload
from sweeper.settings.machines import Cluster
from sweeper.settings.yaml_reader import read_yaml
from sweeper.study_folder.snapshots import CodeSnapshot
from sweeper.testing import trial_spec, write_notebook
from sweeper.testing.executor_contract import ListedTrials
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


def test_a_trials_files_have_names_without_absolute_paths(tmp_path: Path) -> None:
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
        "checkpoints",
        "artifacts/\0",
        "/etc/passwd",
        "../0004.ipynb",
        "study.db",
        "",
    ],
)
def test_a_name_that_no_file_of_the_trial_can_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is not a file of trial 0003"):
        path_of(a_spec(tmp_path), name)


def test_all_paths_of_a_trial_on_a_worker_are_below_the_workers_root_folder(tmp_path: Path) -> None:
    home, root = tmp_path / "home", tmp_path / "root"
    workload, below = a_workload(home), root / str(home)[1:]
    there = Mirror(root=root).workload(workload, host="node7")
    assert there.cwd == below
    assert there.paths.notebook("0003") == below / "0003.ipynb"
    assert there.frozen == {str(below / "lib" / "far.py"): "far = 1\n"}
    assert there.snapshot == workload.snapshot  # executed notebooks state the name of this snapshot
    spec = trial_spec(3, notebook=home / "a.ipynb", checkpoint_dir=home / "c", continues=None)
    assert Mirror(root=root).spec(spec).checkpoint_dir == below / "c"


def test_a_worker_finds_modules_by_relative_paths_if_the_notebooks_folder_is_a_symlink(
    tmp_path: Path,
) -> None:
    real, home = tmp_path / "nfs" / "alice" / "nb", tmp_path / "nb"
    real.mkdir(parents=True)
    home.symlink_to(real)
    workload = a_workload(home)
    assert workload.snapshot is not None
    files = {"../../../../../../lib/far.py": "far = 1\n", "../lib/near.py": "near = 1\n"}
    snapshot = replace(workload.snapshot, folder=str(real), files=files)
    workload = replace(workload, snapshot=snapshot)
    mirror = Mirror(root=tmp_path / "root")
    mirror.link_folder(workload)
    there = mirror.workload(workload, host="node7")
    mirror.lay_out(there, NotebookFolder())
    for file in files:
        assert (there.cwd.resolve() / file).exists()
    assert all(Path(file).is_relative_to(mirror.root) for file in there.frozen)


def test_a_worker_gets_modules_as_they_were_at_the_sweeps_start_even_if_the_files_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_ALL_BYTES", 10)
    home, root = tmp_path / "home", tmp_path / "root"
    workload = a_workload(home)
    for name in ("data/1.csv", "data/2.csv", "lib/far.py"):
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text("far = 2\n")
    folder = files.notebook_folder(workload)
    assert folder.sent == [home / "data" / "1.csv"]
    assert folder.linked == [home / "data" / "2.csv"]
    mirror = Mirror(root=root)
    there = mirror.workload(workload, host="node7")
    folder.linked.append(home / "lib")
    mirror.lay_out(there, folder)
    assert (there.cwd / "lib" / "far.py").read_text() == "far = 1\n"
    assert (there.cwd / "data" / "2.csv").readlink() == home / "data" / "2.csv"


def close(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody enter a folder, not even root."""
    call = os.stat

    def stat(path: Any, **more: Any) -> os.stat_result:
        if not isinstance(path, int) and folder in Path(path).parents:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return call(path, **more)

    monkeypatch.setattr(os, "stat", stat)


def test_contents_of_a_folder_that_the_user_may_not_enter_are_not_sent_to_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = a_workload(tmp_path / "home")
    closed = tmp_path / "home" / "closed"
    closed.mkdir()
    close(closed, monkeypatch)
    assert files.notebook_folder(workload) == NotebookFolder(made=[closed])


def test_a_worker_makes_no_link_to_a_file_in_a_folder_that_its_user_may_not_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, workload = Mirror(root=tmp_path / "root"), a_workload(tmp_path / "home")
    there = mirror.workload(workload, host="node7")
    close(tmp_path / "home", monkeypatch)
    linked = [tmp_path / "home" / "big.csv"]
    mirror.lay_out(there, NotebookFolder(linked=linked))
    assert not os.path.lexists(there.cwd / "big.csv")


def test_a_notebook_can_write_to_the_path_of_a_large_file_that_the_worker_lacks(
    tmp_path: Path,
) -> None:
    mirror, workload = Mirror(root=tmp_path / "root"), a_workload(tmp_path / "home")
    there = mirror.workload(workload, host="node7")
    lacking = [tmp_path / "home" / name for name in ("best.pt", "runs")]
    mirror.lay_out(there, NotebookFolder(linked=lacking))
    (there.cwd / "best.pt").write_text("weights")
    (there.cwd / "runs").mkdir()


def a_python(version: str = "3.12.1", **packages: str) -> dict[str, object]:
    return {"implementation": "cpython", "version": version, "packages": packages}


@pytest.mark.parametrize(
    ("here", "there", "found"),
    [
        # Versions of package installers, and packages that only one side has, are not compared.
        (a_python(numpy="2.0", pip="1"), a_python("3.12.9", numpy="2.0", pip="2", more="1"), None),
        (a_python(numpy="2.0"), a_python(numpy="0.1"), "numpy: 2.0 here, 0.1 there"),
        (a_python(), a_python("2.7.18"), "Python: cpython 3.12 here, cpython 2.7 there"),
        (a_python(), None, "the Python of the notebook's kernel does not answer there"),
        (None, None, None),  # a kernel of another language has no Python to compare
    ],
)
def test_the_message_about_a_worker_with_another_python_or_other_packages_names_the_difference(
    here: dict[str, object] | None, there: dict[str, object] | None, found: str | None
) -> None:
    assert difference(here, there) == found


@pytest.mark.slow
def test_the_code_on_a_worker_imports_neither_optuna_nor_mlflow() -> None:
    code = "import sys, sweeper.cluster.on_worker; print({'optuna', 'mlflow'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


a_cluster = partial(DaskCluster, on_event=print)
PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"


def test_without_dask_the_error_names_the_command_that_installs_it(
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
        ({"class": "collections.OrderedDict"}, r"OrderedDict is not a cluster class"),
        (
            {"class": "subprocess.check_output", "options": {"args": ["true"]}},
            r"check_output is not a cluster class",
        ),
    ],
)
def test_the_error_about_a_cluster_class_that_cannot_be_used_names_the_class(
    written: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        a_cluster(Cluster.model_validate(written))


@pytest.mark.slow
def test_a_local_cluster_listens_on_loopback_and_has_no_dashboard(
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


def listening() -> set[tuple[str, int]]:
    """Return the addresses on which this process and its children listen, without Unix sockets."""
    found = set()
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):  # a child has ended since it was listed
            found |= {
                (connection.laddr.ip, connection.laddr.port)
                for connection in process.net_connections("inet")
                if connection.status == psutil.CONN_LISTEN
            }
    return found


def answer_of(url: str) -> int | None:
    """Return the HTTP status of a server's answer. None if no HTTP server answers."""
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, http.client.HTTPException):
        return None


def test_the_documented_slurm_cluster_requests_the_stated_resources_with_a_private_tls_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = re.findall(
        r"    cluster:\n      class: .*SLURM.*\n(?:      .*\n)+", PAGE.read_text()
    )
    written = read_yaml(dedent(block))["cluster"]
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


class ScaledCluster:
    """A cluster that starts jobs in a batch system. None of its jobs becomes a worker."""

    place = "some.Class"

    def __init__(self) -> None:
        self.asked: list[int] = []

    def workers(self) -> set[Any]:
        return set()

    def scale(self, workers: int) -> None:
        self.asked.append(workers)

    def close(self) -> None:
        pass


def test_ended_jobs_of_a_cluster_are_replaced_only_while_more_trials_may_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = ScaledCluster()
    monkeypatch.setattr(executor, "DaskCluster", lambda *_, **__: cluster)
    monkeypatch.setattr(executor, "_SCALE_AGAIN_S", 0.0)
    monkeypatch.setattr(executor, "_LOOK_S", 0.01)
    settings = Cluster.model_validate({"class": "some.Class", "max": 8, "wait": "0.3s"})
    workload = workload_of(write_notebook(tmp_path / "nb.ipynb"), study={"trials": 5})
    began = DaskExecutor(workload, settings, most=None)
    began._source = ListedTrials([])
    with pytest.raises(BrokenError):
        began._watch(lambda: False)
    assert len(cluster.asked) > 1
    assert {*cluster.asked} == {5}
    cluster.asked.clear()
    began._source.stop("by hand")  # no trial may begin any more, but one still runs
    with pytest.raises(BrokenError):
        began._watch(lambda: False)
    assert cluster.asked == []


@pytest.mark.kernel
@pytest.mark.slow
def test_a_cluster_class_starts_no_more_workers_than_trials_and_all_workers_end_with_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Local processes take the place of SLURM's jobs."""
    monkeypatch.chdir(tmp_path)
    notebook = write_notebook(tmp_path / "nb.ipynb", "val = x")
    workload = workload_of(notebook, study={"trials": 1})
    # The class splits its command at spaces, and the interpreter's path may contain some.
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    options = {"python": str(python), "cores": 1, "memory": "1GB"}
    settings = Cluster.model_validate(
        {"class": "dask_jobqueue.local.LocalCluster", "options": options, "max": 2}
    )
    jobs = partial(processes_in, tmp_path, "distributed.cli.dask_worker")
    spec = trial_spec(
        0,
        params={"x": 0.5},
        notebook=workload.paths.notebook("0000"),
        checkpoint_dir=workload.paths.checkpoints("0000"),
    )
    source = ListedTrials(
        [spec],
        on_end=lambda *_: counted.append(len(jobs())),
    )
    counted: list[int] = []
    DaskExecutor.open(workload, settings, None).run(source)
    assert source.states == ["completed"]
    assert counted == [1]
    until(lambda: not jobs(), "a job is left")
