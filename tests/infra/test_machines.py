"""One command up, one command down: what they run, with a stand-in for SkyPilot's `sky`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import machines
import pytest
from machines import MachinesError, read_values

ENV = Path(machines.__file__).with_name("machines.env")

#: Writes down how it was called, and answers questions from files.
SKY = """#!/bin/sh
echo "$(basename "$0") $*" >>"$CALLS/log"
case "$*" in
  "status -o json") cat "$CALLS/clusters" ;;
  "jobs queue -a -o json") cat "$CALLS/jobs" ;;
  "jobs cancel"*) echo '[]' >"$CALLS/jobs" ;;
  *"$CALLS_FAIL"*) exit 1 ;;
esac
"""


class Account:
    """A cloud account in a folder: what runs there, and what was called."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "bin").mkdir()
        for name in ("sky", "ssh"):
            program = folder / "bin" / name
            program.write_text(SKY)
            program.chmod(0o755)
        self.has(clusters={}, jobs={})
        values = ENV.read_text("utf-8").replace("SWEEP_BUCKET= ", "SWEEP_BUCKET=gs://my-sweeps ")
        (folder / "machines.env").write_text(values)

    def has(self, *, clusters: dict[str, str], jobs: dict[str, str]) -> None:
        for name, rows, field in (("clusters", clusters, "name"), ("jobs", jobs, "job_name")):
            content = [{field: key, "status": state} for key, state in rows.items()]
            (self._folder / name).write_text(json.dumps(content))

    def call(self, *arguments: str, failing: str = "nothing") -> tuple[int, str, list[str]]:
        """Exit code, messages, and the commands that were called except questions."""
        done = subprocess.run(
            [
                *(sys.executable, machines.__file__, *arguments),
                *("--env-file", str(self._folder / "machines.env")),
            ],
            env={
                **os.environ,
                "PATH": f"{self._folder}/bin:{os.environ['PATH']}",
                "CALLS": str(self._folder),
                "CALLS_FAIL": failing,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        log = self._folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        return done.returncode, done.stderr, [line for line in lines if "-o json" not in line]


@pytest.fixture
def account(tmp_path: Path) -> Account:
    return Account(tmp_path)


def test_up_starts_the_tracker_and_then_a_managed_job(account: Account) -> None:
    code, messages, calls = account.call("up")
    assert code == 0, messages
    assert [call.split(" --config")[0] for call in calls] == [
        "sky launch -c sweep-tracker",
        "sky jobs launch -n sweep-digits",
    ]
    assert "--infra gcp -y -d" in calls[1]
    assert "--env SWEEP_OUTPUT=out/digits.{run_id}.ipynb" in calls[1]
    assert "--env BUDGET_HOURS=24" in calls[1]
    assert calls[1].endswith("worker.yaml")


def test_the_first_up_needs_no_jobs_controller(tmp_path: Path, account: Account) -> None:
    (tmp_path / "jobs").unlink()  # without one, `sky jobs queue` fails
    assert account.call("up")[0] == 0
    account.has(clusters={"sky-jobs-controller-ab12": "INIT"}, jobs={})
    (tmp_path / "jobs").unlink()
    code, messages, _ = account.call("down")
    assert (code, "machines.py: sky jobs queue -a -o json:" in messages) == (2, True)


def test_up_leaves_a_tracker_that_is_there(account: Account) -> None:
    account.has(clusters={"sweep-tracker": "UP"}, jobs={"sweep-digits": "SUCCEEDED"})
    code, _, calls = account.call("up")
    assert code == 0
    assert [call.split()[1] for call in calls] == ["jobs"]


def test_a_worker_is_not_started_twice(account: Account) -> None:
    account.has(clusters={"sweep-tracker": "UP"}, jobs={"sweep-digits": "RECOVERING"})
    code, messages, calls = account.call("up")
    assert (code, calls) == (2, [])
    assert "the worker sweep-digits is RECOVERING already; `machines.py down` ends it" in messages


def test_jupyterlab_runs_on_a_machine_that_ends_when_it_is_idle(account: Account) -> None:
    code, _, calls = account.call("up", "--notebook")
    assert code == 0
    assert calls[1].startswith("sky launch -c sweep-digits -i 10 --wait-for jobs --down")
    assert "--env WORKER_TASK=notebook" in calls[1]


def test_down_saves_the_tracker_before_it_ends_it(account: Account) -> None:
    account.has(
        clusters={"sweep-tracker": "UP", "sky-jobs-controller-ab12": "UP"},
        jobs={"sweep-digits": "RUNNING"},
    )
    code, messages, calls = account.call("down")
    assert code == 0, messages
    assert calls == [
        "sky jobs cancel -y -n sweep-digits",
        "ssh -o BatchMode=yes sweep-tracker cd sky_workdir && "
        "SWEEP_BUCKET=gs://my-sweeps infra/tracker.sh save",
        "sky down -y sweep-tracker",
        "sky down sky-jobs-controller-ab12",
    ]
    assert "ended; results and the tracker's data are in gs://my-sweeps" in messages


def test_a_tracker_that_cannot_be_saved_is_not_ended(account: Account) -> None:
    account.has(clusters={"sweep-tracker": "UP"}, jobs={})
    code, messages, calls = account.call("down", failing="tracker.sh save")
    assert (code, len(calls)) == (2, 1)
    assert "`machines.py down --without-saving` ends it nevertheless" in messages
    code, _, calls = account.call("down", "--without-saving", failing="tracker.sh save")
    assert (code, calls[1:]) == (0, ["sky down -y sweep-tracker"])


def test_down_with_nothing_there_does_nothing(account: Account) -> None:
    code, _, calls = account.call("down")
    assert (code, calls) == (0, [])


def test_without_skypilot_one_message_names_the_remedy(
    tmp_path: Path, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sky", "ssh"):
        (tmp_path / "bin" / name).unlink()
    monkeypatch.setenv("PATH", "/nowhere")
    code, messages, _ = account.call("up")
    assert (code, messages) == (
        2,
        "machines.py: there is no `sky` command: pip install 'skypilot[gcp,aws]'\n",
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("INFRA", "azure", "INFRA=azure: write gcp or aws, or gcp/REGION"),
        ("SWEEP_BUCKET", "", "SWEEP_BUCKET has no value"),
        ("SWEEP_BUCKET", "s3://my-sweeps", "with INFRA=gcp write gs://NAME"),
        ("SWEEP_NAME", "My Sweep", "write small letters, digits and '-'"),
        ("BUDGET_HOURS", "", "neither BUDGET_HOURS nor BUDGET has a value; set a limit"),
        ("BUDGET", "48", "BUDGET needs PRICE_PER_HOUR"),
        ("SWEEP_PARAMETERS", "", "SWEEP_PARAMETERS has no value"),
    ],
)
def test_wrong_values_are_refused(name: str, value: str, message: str, tmp_path: Path) -> None:
    lines = ENV.read_text("utf-8").splitlines()
    right = {"SWEEP_BUCKET": "gs://my-sweeps", name: value}
    for key, text in right.items():
        lines = [f"{key}={text}" if line.startswith(f"{key}=") else line for line in lines]
    file = tmp_path / "machines.env"
    file.write_text("\n".join(lines))
    with pytest.raises(MachinesError) as refused:
        read_values(file)
    assert message in str(refused.value)
    assert str(file) in str(refused.value)


def test_every_value_of_the_example_is_known_to_a_machine_or_to_up() -> None:
    text = ENV.with_name("machines.yaml").read_text("utf-8")
    names = [line.split("=")[0] for line in ENV.read_text("utf-8").splitlines() if "=" in line[:20]]
    assert len(names) > 10
    assert [name for name in names if f"  {name}:" not in text and name != "INFRA"] == []
