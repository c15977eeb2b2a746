"""Two hosts with networks of their own sweep one study together, where the machine allows that."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from commands import Command
from joint_study import EVENTS, MACHINE, Events, write_files
from postgres_servers import PostgresServer, started_postgres
from studies import until

from sweeper.study import Study
from sweeper.study.coordinators.leadership import Leadership
from sweeper.tracking import free_port
from sweeper.trials import TrialState

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.usefixtures("started_kernels")]

TRIALS = 8
#: The command line on a host; what writes to MLflow for it stays outside of the host's network.
ENTER = """\
import ctypes, os, sys

network = os.open("{network}", os.O_RDONLY)
if ctypes.CDLL(None, use_errno=True).setns(network, 0) != 0:
    raise OSError(ctypes.get_errno(), "setns")
from sweeper.cli import main

sys.exit(main())
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Hosts:
    """Network namespaces that a bridge connects, each with an address of its own."""

    NET = "10.213.77"

    def __init__(self, *names: str) -> None:
        self._stack = ExitStack()
        self._bridge = f"hpo{os.getpid()}"
        self.address = f"{self.NET}.1"
        self.addresses = {name: f"{self.NET}.{10 + i}" for i, name in enumerate(names)}

    def open(self) -> None:
        ip("link", "add", self._bridge, "type", "bridge")
        self._stack.callback(ip, "link", "del", self._bridge)
        ip("address", "add", f"{self.address}/24", "dev", self._bridge)
        ip("link", "set", self._bridge, "up")
        for name, address in self.addresses.items():
            space, here = self._space(name), f"{self._bridge}{name}"
            ip("netns", "add", space)
            self._stack.callback(ip, "netns", "del", space)
            ip("link", "add", here, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", here, "master", self._bridge, "up")
            ip("-n", space, "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")

    def close(self) -> None:
        self._stack.close()

    def file(self, name: str) -> str:
        """The file of a host's network, which a process opens to enter it."""
        return f"/run/netns/{self._space(name)}"

    def _space(self, name: str) -> str:
        return f"{self._bridge}{name}"


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root, and the program ip")
    hosts = Hosts("a", "b")
    with closing(hosts):
        try:
            hosts.open()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this machine has no network namespaces: {error.stderr.decode().strip()}")
        yield hosts


@pytest.fixture
def server(hosts: Hosts) -> Iterator[PostgresServer]:
    with started_postgres(port=free_port(24_000), address=hosts.address) as server:
        yield server


def begin(hosts: Hosts, name: str, server: PostgresServer, folder: Path) -> Command:
    own = folder / f"host {name}"
    words = write_files(own, trials=TRIALS)
    words += ["--storage", server.database("optuna"), "--tracking-uri", server.database("mlflow")]
    enter = own / "enter.py"
    enter.write_text(ENTER.format(network=hosts.file(name)))
    environment = {**os.environ, MACHINE: name, EVENTS: str(folder)}
    with open(folder / f"{name}.log", "w") as log:
        return Command(
            *words, cwd=own, env=environment, stdout=log, stderr=subprocess.STDOUT, script=enter
        )


def test_a_study_goes_on_at_another_host_when_the_one_that_leads_dies(
    hosts: Hosts, server: PostgresServer, tmp_path: Path
) -> None:
    server.make_database("optuna")
    server.make_database("mlflow")

    events = Events(tmp_path)
    (tmp_path / "slow").touch()
    leads = begin(hosts, "a", server, tmp_path)
    until(lambda: len(events.of("begins", "a")) == 2)
    follows = begin(hosts, "b", server, tmp_path)
    until(lambda: len(events.of("begins", "b")) == 2)
    with closing(Leadership(server.database("optuna"), "joint")) as leadership:
        leader = leadership.leader()
    assert leader is not None
    assert leader.address.startswith(f"tls://{hosts.addresses['a']}:")
    (tmp_path / "slow").unlink()
    until(lambda: len(events.of("ends")) >= 4)
    (tmp_path / "slow").touch()
    # A slot begins its next trial when the last one is recorded.
    until(lambda: len(events.of("begins")) == len(events.of("ends")) + 4)
    leads.kill()
    leads.wait()
    # By then no trial of the dead one's sweep runs any more.
    until(lambda: "is gone; this machine may lead" in (tmp_path / "b.log").read_text())
    (tmp_path / "slow").unlink()
    assert follows.wait(timeout=300) == 0, (tmp_path / "b.log").read_text()
    run_ids = [f"{number:04}" for number in range(TRIALS)]
    assert Counter(run_id for run_id, _ in events.of("ends")) == Counter(run_ids)
    records = Study.load(server.database("optuna"), "joint").records()
    assert [record.run_id for record in records] == run_ids
    assert {record.state for record in records} == {TrialState.COMPLETED}
