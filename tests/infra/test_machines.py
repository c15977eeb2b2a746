"""Test the commands `up` and `down` with a stand-in for SkyPilot's `sky`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # because processes are started

INFRA = Path(__file__).parents[2] / "infra"
#: A stand-in for `sky`. It logs its arguments, and `sky status` prints a file.
SKY = """#!/bin/sh
echo "$(basename "$0") $*" >>"$CALLS/log"
case "$*" in
  status) cat "$CALLS/clusters" ;;
  *"$FAILING"*) exit 1 ;;
esac
"""


class Account:
    """A simulated cloud account: a folder with a list of its machines and a log of commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        for name in ("sky", "ssh"):
            (folder / "bin" / name).write_text(SKY)
            (folder / "bin" / name).chmod(0o755)
        (folder / "clusters").write_text("NAME  STATUS\n")
        self.set("SWEEP_BUCKET", "gs://my-sweeps")

    def set(self, name: str, value: str) -> None:
        file = self.folder / "machines.env"
        text = (file if file.exists() else INFRA / "machines.env").read_text("utf-8")
        lines = [f"{name}={value}" if t.startswith(f"{name}=") else t for t in text.splitlines()]
        file.write_text("\n".join(lines) + "\n")

    def call(self, command: str, *, failing: str = "nothing") -> tuple[int, str, list[str]]:
        """Run a command. Return its exit code, its messages, and the commands that it called.

        Commands that only ask for a state are left out.
        """
        environment = {
            **os.environ,
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "CALLS": str(self.folder),
            "FAILING": failing,
            "ENV_FILE": str(self.folder / "machines.env"),
        }
        done = subprocess.run(
            ["bash", str(INFRA / "machines.sh"), command],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        return done.returncode, done.stderr, [line for line in lines if line != "sky status"]


@pytest.fixture
def account(tmp_path: Path) -> Account:
    return Account(tmp_path)


def test_the_command_up_starts_a_missing_tracker_and_then_a_managed_job(account: Account) -> None:
    code, messages, calls = account.call("up")
    assert code == 0, messages
    assert [call.split(" --config")[0] for call in calls] == [
        "sky launch -c sweep-tracker",
        "sky jobs launch -n sweep-digits",
    ]
    assert calls[1].endswith("--infra gcp --env-file " + calls[1].split("--env-file ")[1])
    assert calls[1].endswith("-y -d infra/worker.yaml")
    (account.folder / "log").unlink()
    (account.folder / "clusters").write_text("NAME  STATUS\nsweep-tracker  UP\n")
    assert [call.split()[1] for call in account.call("up")[2]] == ["jobs"]


def test_the_command_down_saves_the_tracker_before_it_is_ended(account: Account) -> None:
    (account.folder / "clusters").write_text("sweep-tracker  UP\n")
    code, messages, calls = account.call("down")
    assert code == 0, messages
    assert calls == [
        "sky jobs cancel -y -n sweep-digits",
        "ssh -o BatchMode=yes sweep-tracker cd sky_workdir && "
        "SWEEP_BUCKET=gs://my-sweeps infra/tracker.sh save",
        "sky down -y sweep-tracker",
    ]
    assert "results and the tracker's data are in gs://my-sweeps" in messages


def test_the_command_down_does_not_end_a_tracker_that_cannot_be_saved(account: Account) -> None:
    (account.folder / "clusters").write_text("sweep-tracker  UP\n")
    code, messages, calls = account.call("down", failing="tracker.sh save")
    assert (code, calls[-1].split()[0]) == (1, "ssh")
    assert "'sky down sweep-tracker' ends it nevertheless" in messages


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("INFRA", "azure", "write gcp with gs://NAME, or aws with s3://NAME"),
        ("SWEEP_BUCKET", "s3://my-sweeps", "INFRA=gcp with SWEEP_BUCKET=s3://my-sweeps"),
        ("SWEEP_NAME", "My Sweep", "write small letters, digits and '-'"),
        ("BUDGET_HOURS", "", "BUDGET_HOURS has no value"),
        ("BUDGET_HOURS", "1d", "write a number of hours"),
    ],
)
def test_the_command_up_refuses_wrong_values_in_machines_env(
    name: str, value: str, message: str, account: Account
) -> None:
    account.set(name, value)
    code, messages, calls = account.call("up")
    assert (code, calls) == (2, [])
    assert message in messages


def test_every_value_in_machines_env_is_used_by_a_machine_or_by_the_command_up() -> None:
    tasks = "".join((INFRA / f"{kind}.yaml").read_text() for kind in ("tracker", "worker"))
    lines = (INFRA / "machines.env").read_text("utf-8").splitlines()
    names = {line.split("=")[0] for line in lines if "=" in line and not line.startswith("#")}
    assert names - {name for name in names if f"  {name}:" in tasks} == {"INFRA"}
