"""Several coordinators that sweep one study on PostgreSQL, of which some are killed or leave."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import Command
from joint_study import EVENTS, MACHINE, Events, write_files
from jupyter_client.kernelspec import KernelSpecManager
from postgres_servers import PostgresServer, started_postgres
from studies import until

from sweeper.study import Study
from sweeper.tracking import free_port
from sweeper.trials import TrialState

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

TRIALS = 10


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with started_postgres(port=free_port(24_000)) as server:
        yield server


@pytest.fixture(scope="module")
def storage(server: PostgresServer) -> str:
    return server.make_database("optuna")


@pytest.fixture(scope="module")
def mlflow(server: PostgresServer) -> str:
    """A database for all tests, because MLflow takes seconds to make its tables."""
    return server.make_database("mlflow")


@pytest.fixture
def study(request: pytest.FixtureRequest) -> str:
    """The name of the test's study."""
    return str(request.node.name[:20])


Begin = Callable[..., Command]


@pytest.fixture
def begin(storage: str, mlflow: str, study: str, tmp_path: Path) -> Begin:
    """Begins to sweep the study of the test on a machine, which has a folder of its own."""

    def begin(machine: str, *options: str, **env: str) -> Command:
        folder = tmp_path / f"machine {machine}"
        arguments = write_files(folder, trials=TRIALS, study=study)
        servers = ["--storage", storage, "--tracking-uri", mlflow, "--json"]
        environment = {**os.environ, MACHINE: machine, EVENTS: str(tmp_path), **env}
        with open(tmp_path / f"{machine}.log", "w") as log:
            return Command(*arguments, *servers, *options, cwd=folder, env=environment, stderr=log)

    return begin


@pytest.fixture
def events(tmp_path: Path) -> Events:
    return Events(tmp_path)


def log_of(folder: Path, machine: str) -> str:
    return (folder / f"{machine}.log").read_text()


def test_when_the_leader_is_killed_another_leads_and_no_trial_that_ended_is_run_again(
    begin: Begin, events: Events, storage: str, study: str, tmp_path: Path
) -> None:
    (tmp_path / "slow").touch()
    leader = begin("a")
    until(lambda: events.of("begins", "a"))
    other = begin("b")
    until(lambda: events.of("begins", "b"))
    (tmp_path / "slow").unlink()
    until(lambda: len(events.of("ends")) >= 4)
    (tmp_path / "slow").touch()
    # Four trials are in the middle, two on each machine.
    until(lambda: len(events.of("begins")) == len(events.of("ends")) + 4)
    ended_before = events.of("ends")
    os.kill(leader.pid, signal.SIGKILL)
    leader.wait()
    until(lambda: "is gone; this machine may lead the study now" in log_of(tmp_path, "b"))
    (tmp_path / "slow").unlink()
    stdout, _ = other.communicate(timeout=300)
    assert other.wait() == 0, log_of(tmp_path, "b")

    run_ids = [f"{number:04}" for number in range(TRIALS)]
    ends = events.of("ends")
    assert Counter(run_id for run_id, _ in ends) == Counter(run_ids)
    again = {run_id for run_id, attempt in ends if attempt == "2"}
    assert len(again) == 4
    assert again.isdisjoint(run_id for run_id, _ in ended_before)
    result = json.loads(stdout)
    assert result["counts"] == {"completed": TRIALS, "pruned": 0, "failed": 0, "stopped": 0}

    records = Study.load(storage, study).records()
    assert [record.run_id for record in records] == run_ids
    assert {record.state for record in records} == {TrialState.COMPLETED}

    from mlflow import MlflowClient

    client = MlflowClient(result["tracking_uri"])
    experiment = client.get_experiment_by_name(study)
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert sorted(run.info.run_name or "" for run in runs) == run_ids
    assert {run.info.status for run in runs} == {"FINISHED"}
    scores = {run.info.run_name: run.data.metrics["val"] for run in runs}
    assert scores == {record.run_id: record.scores["val"] for record in records}


def test_who_leaves_takes_no_trial_along_and_who_leads_ends_the_sweep_for_all(
    begin: Begin, events: Events, study: str, tmp_path: Path
) -> None:
    leader = begin("a")
    until(lambda: events.of("begins", "a"))
    (tmp_path / "slow").touch()
    leaves, stays = begin("b"), begin("c")
    until(lambda: len(events.of("begins", "b")) == 2 and len(events.of("begins", "c")) == 2)
    left = events.of("begins", "b")
    leaves.send_signal(signal.SIGINT)
    assert leaves.wait(timeout=120) == 130
    assert f"{study}: this machine has left (Ctrl-C)" in log_of(tmp_path, "b")
    (tmp_path / "slow").unlink()
    again = {(run_id, str(int(attempt) + 1)) for run_id, attempt in left}
    until(lambda: again <= {*events.of("ends")})  # the others run them again
    leader.send_signal(signal.SIGINT)
    stdout, _ = leader.communicate(timeout=120)
    assert json.loads(stdout)["counts"]["failed"] == 0
    stdout, _ = stays.communicate(timeout=120)
    assert stays.wait() == 0, log_of(tmp_path, "c")
    assert json.loads(stdout)["ended"] == "it was stopped there"
    assert not list((tmp_path / "machine c").glob("out/*"))
    assert not events.of("ends", "b")


def test_a_machine_that_the_leader_cannot_use_says_why_and_ends(
    begin: Begin, events: Events, tmp_path: Path
) -> None:
    (tmp_path / "slow").touch()
    spec = KernelSpecManager().get_kernel_spec("python3").to_dict()
    (tmp_path / "kernels" / "of-a").mkdir(parents=True)
    (tmp_path / "kernels" / "of-a" / "kernel.json").write_text(json.dumps(spec))
    leader = begin("a", "-k", "of-a", JUPYTER_PATH=str(tmp_path))
    until(lambda: events.of("begins", "a"))
    assert begin("b", "-k", "of-a").wait(timeout=120) == 2
    (line,) = [line for line in log_of(tmp_path, "b").splitlines() if "cannot use" in line]
    assert "leads the study, cannot use this machine: " in line
    assert "of-a" in line
    assert not events.of("begins", "b")
    leader.kill()
    leader.wait()
