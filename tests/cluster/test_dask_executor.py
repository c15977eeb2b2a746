"""Test trials on the workers of a Dask cluster: the contract of executors, and file transfer."""

from __future__ import annotations

import json
import shutil
import signal
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import Command, project
from dask_clusters import left_there, started, started_program
from studies import acting_workload, is_listening, processes_in, until, workload_of

from sweeper.cluster import dask_cluster
from sweeper.cluster import executor as executor_module
from sweeper.cluster.dask_cluster import DaskCluster
from sweeper.cluster.executor import DaskExecutor
from sweeper.cluster.on_worker import TrialsOnWorker
from sweeper.data.archive import Dataset
from sweeper.errors import BrokenError, KernelError, SettingsError, StoppedError, StudyError
from sweeper.execution.executor import Executor
from sweeper.notebooks.metadata import BLANK, read_metadata
from sweeper.settings import Settings
from sweeper.settings.machines import Cluster
from sweeper.settings.sections import Data
from sweeper.study_folder.snapshots import CodeSnapshot
from sweeper.sweep import Sweep
from sweeper.testing import trial_spec, write_notebook
from sweeper.testing.executor_contract import ExecutorContract, ListedTrials
from sweeper.tracking import free_port
from sweeper.trials import InputFile, StudyPaths, TrialOutcome, TrialSpec

pytestmark = [pytest.mark.kernel, pytest.mark.slow]


class TestDaskExecutor(ExecutorContract):
    @pytest.fixture(autouse=True)
    def _cluster(self, two_slots: str) -> None:
        self.address = two_slots

    def make(self, folder: Path, *, jobs: int) -> Executor:
        acts = ["complete", "report", "fail", "wait", "lose"]
        workload = acting_workload(folder, space={"act": acts}, kernels="cold")
        settings = Cluster.model_validate({"url": self.address, "wait": "60s"})
        return DaskExecutor.open(workload, settings, jobs)


CHECKPOINTS = """
import sweeper
from pathlib import Path
saved = sweeper.load_checkpoint()
first = (saved or {"epoch": -1})["epoch"] + 1
sweeper.save_checkpoint(epoch=first)
val = float(first) + float(Path(encoder).read_text()) * float(Path("data/small.txt").read_text())
val += Path("data/large.bin").stat().st_size / 11_000_000  # a link: too large to send
val += float(Path("linked/one.txt").read_text())
Path("models/weights.pt").write_text("saved into a folder that has no file to send")
"""


def test_files_are_sent_to_and_from_workers_whose_folders_are_not_those_of_the_sweep(
    tmp_path: Path, two_slots: str, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "home"
    notebook = write_notebook(
        home / "nb.ipynb", "from lib import beside", CHECKPOINTS, parameters="x = 0.0\nencoder = ''"
    )
    (home / "data").mkdir()
    (home / "data" / "small.txt").write_text("2")
    (home / "data" / "empty.txt").touch()
    (home / "data" / "large.bin").write_bytes(bytes(11_000_000))
    (home / "models").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "one.txt").write_text("1000")
    (home / "linked").symlink_to(tmp_path / "elsewhere")
    (home / ".encoder").write_text("100")
    encoder = InputFile(
        study="s",
        study_id="0",
        run_id="0000",
        artifact="encoder",
        sha256="0",
        size_bytes=3,
        path=home / ".encoder",
    )
    workload = replace(
        workload_of(notebook, space={"x": {"low": 0.0, "high": 1.0}}),
        paths=StudyPaths.parse(str(home / "out" / "{run_id}.ipynb"), study="s"),
    )
    files = {"lib/__init__.py": "", "lib/beside.py": "here = 1\n"}
    snapshot = CodeSnapshot(
        folder=str(home), notebook_name="nb.ipynb", notebook=workload.notebook.text, files=files
    )
    workload = replace(workload, snapshot=snapshot)
    stale = home / "out" / "s" / "checkpoints" / "0001"

    def spec(number: int, attempt: int) -> TrialSpec:
        earlier = workload.paths.notebook("0000")
        return trial_spec(
            number,
            attempt=attempt,
            params={"x": 0.5},
            inputs={"encoder": encoder},
            notebook=workload.paths.notebook(f"{number:04d}"),
            checkpoint_dir=workload.paths.checkpoints(f"{number:04d}"),
            continues=earlier.with_suffix(".attempt1.ipynb") if attempt > 1 else None,
        )

    def run(*specs: TrialSpec) -> dict[int, TrialOutcome]:
        source = ListedTrials(specs)
        settings = Cluster(url=two_slots)
        DaskExecutor.open(workload, settings, 1).run(source)
        assert source.reasons == []
        return source.outcomes

    first = run(spec(0, 1), spec(1, 1))
    assert [(first[n].state, first[n].scores) for n in (0, 1)] == [
        ("completed", {"val": 1201.0})
    ] * 2
    (line,) = [it for it in caplog.messages if "are not sent" in it]
    assert line.endswith(f"at the same paths: {home / 'linked'}, {home / 'data' / 'large.bin'}")
    metadata = read_metadata(workload.paths.notebook("0000")) or BLANK
    assert metadata.snapshot == snapshot.name
    assert metadata.host == first[0].host != ""
    environment = json.loads(workload.paths.environment(metadata.environment).read_text())
    assert environment["host"] == first[0].host
    assert [path.name for path in stale.iterdir()] == ["000001.ckpt"]
    # The second attempt resumes from the checkpoint on the sweep's machine. A checkpoint that was
    # removed there is not used, although the worker still had it. The earlier notebook is kept.
    stale.joinpath("000001.ckpt").unlink()
    second = run(spec(0, 2), spec(1, 2))
    assert second[0].scores == {"val": 1202.0}
    assert second[1].scores == {"val": 1201.0}
    kept = workload.paths.notebook("0000").with_suffix(".attempt1.ipynb")
    assert (read_metadata(kept) or BLANK).attempt == 1
    assert list(home.rglob("*.part")) == []
    assert left_there(two_slots) == []


def test_the_error_about_an_unreachable_scheduler_names_its_address_and_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_cluster, "_CONNECT_S", 0.5)
    workload = workload_of(write_notebook(tmp_path / "nb.ipynb", "val = x"))
    with pytest.raises(SettingsError, match=r"tcp://127\.0\.0\.1:9 cannot be reached.*dask sched"):
        DaskExecutor.open(workload, Cluster(url="tcp://127.0.0.1:9"), None)


def test_a_scheduler_with_encryption_needs_certificates_on_the_sweeps_machine() -> None:
    with pytest.raises(SettingsError, match=r"distributed\.comm\.tls\) name no certificates"):
        DaskCluster(Cluster(url="tls://127.0.0.1:9"), on_event=print)


def test_a_cluster_without_a_worker_is_refused_after_a_wait_that_was_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(executor_module, "_SETTLE_S", 0.1)
    workload = workload_of(write_notebook(tmp_path / "nb.ipynb", "val = x"))
    with started(workers=0, threads=1) as address:
        settings = Cluster.model_validate({"url": address, "wait": "1s"})
        with pytest.raises(
            SettingsError, match=r"no worker has connected within 1 s.*dask worker tcp"
        ):
            DaskExecutor.open(workload, settings, None)
    assert (
        f"{address}: waiting for a first worker that can run trials, up to 1.0s" in caplog.messages
    )


def test_a_sweep_waits_for_a_cluster_no_longer_than_its_time_limit(tmp_path: Path) -> None:
    notebook = write_notebook(tmp_path / "nb.ipynb", "val = x", parameters="x = 0.0")
    began_s = time.monotonic()
    with started(workers=0, threads=1) as address:
        changes = {"cluster": {"url": address}, "space": {"x": [0.0, 1.0]}}
        settings = Settings.from_mapping({"objective": {"val": "maximize"}, **changes})
        with pytest.raises(SettingsError, match=r"no worker has connected.*--timeout"):
            Sweep.from_settings(
                settings,
                notebook=notebook,
                output=str(tmp_path / "{run_id}.ipynb"),
                timeout_s=1.0,
            )
    assert time.monotonic() - began_s < Cluster(url=address).wait / 2


def test_a_message_states_a_wait_of_six_hours_for_workers_as_21600_s(tmp_path: Path) -> None:
    workload = workload_of(write_notebook(tmp_path / "nb.ipynb", "val = x"))
    with started(workers=0, threads=1) as address:
        settings = Cluster.model_validate({"url": address, "wait": "6h"})
        executor = DaskExecutor(workload, settings, most=None)
        assert "within 21600 s" in executor._lack()
        executor.close()


def test_a_stop_ends_the_wait_for_the_workers_of_a_cluster(tmp_path: Path) -> None:
    workload = workload_of(write_notebook(tmp_path / "nb.ipynb", "val = x"))
    with started(workers=0, threads=1) as address:
        settings = Cluster.model_validate({"url": address, "wait": "60s"})
        with pytest.raises(StoppedError):
            DaskExecutor.open(workload, settings, None, is_stopped=lambda: True)


def test_a_cluster_is_refused_if_the_sweeps_machine_lacks_the_notebooks_kernel(
    tmp_path: Path,
) -> None:
    notebook = write_notebook(tmp_path / "nb.ipynb", "val = x", kernel="no-such")
    workload = replace(workload_of(notebook), kernel_name="no-such")
    with pytest.raises(KernelError, match="the kernel 'no-such' is not installed"):
        DaskExecutor.open(workload, Cluster(url="tcp://127.0.0.1:9"), None)


def test_a_sweep_ends_at_once_if_no_worker_can_fetch_the_data(
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
    workload = replace(acting_workload(tmp_path), data=data)
    settings = Cluster.model_validate({"url": two_slots, "wait": "600s"})
    executor = DaskExecutor.open(workload, settings, None)
    source = ListedTrials([])
    began_s = time.monotonic()
    with pytest.raises(
        BrokenError, match=r"no worker can run these trials: worker tcp://.*archives"
    ):
        executor.run(source)
    assert time.monotonic() - began_s < 120


def test_a_sweep_whose_study_another_sweep_took_over_does_not_wait_for_trials_on_workers(
    tmp_path: Path, two_slots: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = DaskExecutor.open(acting_workload(tmp_path), Cluster(url=two_slots), 1)
    source = ListedTrials(TestDaskExecutor().specs(tmp_path, "wait"))

    def check_held() -> None:
        if source.points[0]:
            raise StudyError("taken over")

    monkeypatch.setattr(source, "check_held", check_held)
    began_s = time.monotonic()
    executor.run(source)
    assert (source.states, source.outcomes[0].message) == (["stopped"], "taken over")
    assert time.monotonic() - began_s < 50, "the trial ran for a minute"


def test_a_scheduler_that_is_lost_ends_the_sweep(tmp_path: Path) -> None:
    port = free_port(24_100)
    address = f"tcp://127.0.0.1:{port}"
    workload = acting_workload(tmp_path, kernels="cold")
    with ExitStack() as stack:
        place = ["--local-directory", str(tmp_path), "--nthreads", "1", "--no-nanny"]
        processes = [
            started_program(stack, "scheduler", "--port", str(port)),
            started_program(stack, "worker", address, *place),
        ]

        def lose(*_: object) -> None:
            for process in processes:
                process.kill()
                process.wait()

        until(lambda: is_listening(port), "no scheduler")
        executor = DaskExecutor.open(workload, Cluster(url=address), 1)
        source = ListedTrials(TestDaskExecutor().specs(tmp_path, *["complete"] * 3), on_end=lose)
        with pytest.raises(BrokenError, match=r"was lost.*resume with the same command"):
            executor.run(source)
        assert source.states[0] == "completed"
        assert 2 not in source.outcomes


def sabotage(dask_worker: Any) -> None:
    """Make the thread of each trial die."""
    (plugin,) = (it for it in dask_worker.plugins.values() if isinstance(it, TrialsOnWorker))

    def die(*_: object, **__: object) -> None:
        raise SystemExit("the thread dies")

    plugin.run = die  # type: ignore[method-assign, assignment]


def test_a_trial_whose_thread_dies_on_a_worker_has_failed(tmp_path: Path, two_slots: str) -> None:
    # Imported here: at the top it would cost each test process 0.5 s.
    from distributed import Client

    workload = acting_workload(tmp_path)
    executor = DaskExecutor.open(workload, Cluster(url=two_slots), 1)
    with Client(two_slots, set_as_default=False) as client:  # type: ignore[no-untyped-call]
        client.run(sabotage)
    source = ListedTrials(TestDaskExecutor().specs(tmp_path, "complete"))
    executor.run(source)
    assert source.states == ["failed"]
    assert source.outcomes[0].message.endswith("SystemExit: the thread dies")


def test_a_sweep_that_gets_sigterm_while_it_waits_for_workers_leaves_no_jobs(
    tmp_path: Path,
) -> None:
    job = tmp_path / "job"  # a worker that never connects, like a job that waits in a queue
    job.write_text("#!/bin/sh\necho Registered to: >&2\nwhile true; do sleep 0.1; done\n")
    job.chmod(0o755)
    cluster = (
        "cluster:\n  class: dask_jobqueue.local.LocalCluster\n"
        f"  options: {{python: {job}, cores: 1, memory: 1GB}}\n"
    )

    sweep = Command(*project("val = x", settings=cluster, folder=tmp_path), cwd=tmp_path)
    try:
        until(lambda: processes_in(tmp_path, str(job)), "no job was started")
        sweep.send_signal(signal.SIGTERM)
        assert sweep.wait(timeout=60) == 143
        until(lambda: not processes_in(tmp_path, str(job)), "a job is left")
    finally:
        sweep.kill()
        sweep.communicate()
